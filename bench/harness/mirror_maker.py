"""MirrorMaker 2 itself, dedicated or as one connector on Kafka Connect, for takeovers and comparisons."""

import tempfile
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from mirrord.lab.jars import MIRROR_MAKER, kafka_jars
from mirrord.lab.node import Node
from mirrord.lab.server_properties import LabOptions, jvm_options
from mirrord.runtime.java import find_java

DEDICATED = "org.apache.kafka.connect.mirror.MirrorMaker"
STANDALONE = "org.apache.kafka.connect.cli.ConnectStandalone"

ONE_BROKER = """
replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
us.offset.storage.replication.factor = 1
us.config.storage.replication.factor = 1
us.status.storage.replication.factor = 1
"""


class Reached(Protocol):
    """A cluster, by an address."""

    @property
    def bootstrap(self) -> str: ...


def properties(path: Path, source: Reached, target: Reached, topics: str, *, alias: str = "eu", more: str = "") -> Path:
    """Return a file for one flow from `alias` to "us" that stores its position every second."""
    path.write_text(
        f"clusters = {alias}, us\n{alias}.bootstrap.servers = {source.bootstrap}\n"
        f"us.bootstrap.servers = {target.bootstrap}\n"
        f"{alias}->us.enabled = true\n{alias}->us.topics = {topics}\n"
        f"us->{alias}.enabled = false\nemit.heartbeats.enabled = false\nsync.topic.acls.enabled = false\n"
        f"refresh.topics.interval.seconds = 1\nus.offset.flush.interval.ms = 1000\n{ONE_BROKER}{more}"
    )
    return path


class MirrorMaker:
    """One process of it, configured by properties files; it ends with this process. Raises EnvironmentFault without
    Java."""

    def __init__(self, *properties: Path, options: LabOptions | None = None, main: str = DEDICATED) -> None:
        options = options or LabOptions()
        self._temporary = tempfile.TemporaryDirectory(prefix="mirrord-mm2-")
        command = [find_java(), *jvm_options(options), "-cp", f"{kafka_jars(options.version, MIRROR_MAKER)}/*"]
        command += [main, *map(str, properties)]
        self._node = Node(0, Path(self._temporary.name), command, detached=False)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._node.kill()
        self._temporary.cleanup()

    @property
    def pid(self) -> int:
        """The pid of the process. Raises RuntimeError if there is none."""
        return self._node.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended by itself."""
        return self._node.running

    def start(self) -> None:
        """Start it, or resume where it was."""
        self._node.start()

    def kill(self) -> None:
        """Send kill -9."""
        self._node.kill()

    def stop(self) -> None:
        """Send SIGTERM, and wait for its end."""
        self._node.stop()

    def log_tail(self, lines: int = 40) -> str:
        """Return the end of its output."""
        return self._node.log_tail(lines)
