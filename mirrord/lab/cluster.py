"""One Kafka cluster on this machine. Its brokers can be started, killed, paused and stopped."""

import shutil
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

from mirrord.config.security import Mechanism
from mirrord.lab.broker_readiness import brokers_seen
from mirrord.lab.jars import kafka_jars
from mirrord.lab.node import Node
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.lab.security import security_table, write_certificates, write_passwords
from mirrord.lab.server_properties import (
    ADMIN,
    CONTROLLER_ID,
    LabOptions,
    Ports,
    archive_options,
    jvm_options,
    node_properties,
    render,
    scram_credentials,
)
from mirrord.lab.storage import format_folder, new_id
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.java import find_java

_START_SECONDS = 120
_POLL_SECONDS = 0.05
_TRIES = 3
_PORT_TAKEN = "Address already in use"


class Cluster:
    """A cluster of brokers with the ids 1, 2, and so on. Each broker has a separate process, log and data folder.

    All methods block. A coroutine must call them through `asyncio.to_thread`. The methods raise EnvironmentFault if
    Java or the jars are missing, or if a broker does not start.
    """

    def __init__(
        self, options: LabOptions | None = None, folder: Path | None = None, *, detached: bool = False
    ) -> None:
        """Create a cluster without starting it. `folder` must be empty or new. If `folder` is None, the cluster uses a
        temporary folder, which `close` removes. The processes of a detached cluster outlive this process."""
        self.options = options or LabOptions()
        self._detached = detached
        self._temporary = folder is None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="mirrord-lab-"))
        self._ports: dict[int, Ports] = {}
        self._nodes: dict[int, Node] = {}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    @property
    def bootstrap(self) -> str:
        """Return the addresses (host:port) of all brokers, separated by commas."""
        return ",".join(f"{LOOPBACK}:{self._ports[broker].client}" for broker in self.options.broker_ids)

    @property
    def aside(self) -> str:
        """Return the addresses (host:port) of the second listener for clients of each broker, separated by commas. Only
        a cluster with `LabOptions.aside` has these listeners."""
        return ",".join(f"{LOOPBACK}:{self._ports[broker].aside}" for broker in self.options.broker_ids)

    def ports(self, node_id: int = 1) -> Ports:
        return self._ports[node_id]

    @property
    def pids(self) -> list[int]:
        """Return the ids of the running processes. If the controller is running, its process id comes first."""
        return [node.pid for node in self._nodes.values() if node.running]

    def security(self, user: str = ADMIN, mechanism: Mechanism = "SCRAM-SHA-512") -> dict[str, str]:
        """Return the `security` table of a conf.toml for this user. `mechanism` has an effect only with SASL."""
        return security_table(self.options, self.folder, user, mechanism)

    def start(self) -> Self:
        """Format and start all nodes. Return when every broker is serving clients and knows all other brokers."""
        try:
            java, jars = find_java(), kafka_jars(self.options.version)
            for attempt in range(1, _TRIES + 1):
                self._prepare(java, jars)
                try:
                    self._launch()
                except _PortTakenError:
                    self._kill_all()
                    if attempt == _TRIES:
                        raise
                else:
                    return self
        except BaseException:
            self.close()
            raise
        return self

    def kill(self, broker: int = 1) -> None:
        """Kill a broker with `kill -9`. Data that the broker has written but not flushed to disk is not lost, because
        it is still in this machine's page cache."""
        self._nodes[broker].kill()

    def stop(self, broker: int = 1) -> None:
        """Stop a broker with a controlled shutdown."""
        self._nodes[broker].stop()

    def restart(self, broker: int = 1) -> None:
        """Start a killed or stopped broker or controller again, with the same ports and data. Return when it is serving
        clients again."""
        node = self._nodes[broker]
        node.start()
        if broker == CONTROLLER_ID:
            self._await_open(node)
        else:
            self._await_ready(broker, {broker}, [node])

    def change_version(self, version: str, broker: int = 1) -> None:
        """Stop a broker, and start it again with another version of Kafka. `broker` may also be the controller."""
        self.stop(broker)
        node = self._nodes[broker]
        node.run(self._command(find_java(), kafka_jars(version), broker))
        self.restart(broker)

    def pause(self, broker: int = 1) -> None:
        """Pause a broker with SIGSTOP. Its connections stay open, but requests to it are not answered."""
        self._nodes[broker].pause()

    def resume(self, broker: int = 1) -> None:
        self._nodes[broker].resume()

    def is_running(self, broker: int = 1) -> bool:
        return self._nodes[broker].running

    def pid(self, broker: int = 1) -> int:
        return self._nodes[broker].pid

    def mend(self) -> None:
        """Restart every broker that is not running, and resume every broker that is paused."""
        for broker in self.options.broker_ids:
            if self._nodes[broker].running:
                self.resume(broker)
            else:
                self.restart(broker)

    def log_tail(self, broker: int = 1, lines: int = 20) -> str:
        return self._nodes[broker].log_tail(lines)

    def close(self) -> None:
        """Kill all processes immediately and remove the temporary folder if there is one. A second call has no
        effect."""
        self._kill_all()
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_all(self) -> None:
        for node in self._nodes.values():
            node.kill()

    def _prepare(self, java: str, jars: Path) -> None:
        """Create an empty cluster: its files, formatted data folders, and nodes. The nodes are not started."""
        options = self.options
        free = iter(free_ports(4 * len(options.node_ids)))
        self._ports = {node: Ports(next(free), next(free), next(free), next(free)) for node in options.node_ids}
        self.folder.mkdir(parents=True, exist_ok=True)
        if options.tls:
            write_certificates(options, self.folder)
        if options.sasl:
            write_passwords(options, self.folder)
        classes = archive_options(java, jars) if options.quick_start else []
        tool = [java, "-XX:TieredStopAtLevel=1", *classes, "-cp", f"{jars}/*", "kafka.tools.StorageTool", "format"]
        cluster_id, credentials = new_id(), scram_credentials(options)
        for node_id in options.node_ids:
            folder = self.folder / f"node-{node_id}"
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            properties = folder / "server.properties"
            properties.touch(mode=0o600)
            properties.write_text(render(node_properties(options, node_id, self._ports, self.folder)))
            format_folder(tool, credentials, properties, folder / "data", (cluster_id, node_id))
            run = self._command(java, jars, node_id)
            environment = options.environments.get(node_id, {})
            self._nodes[node_id] = Node(node_id, folder, run, detached=self._detached, environment=environment)

    def _command(self, java: str, jars: Path, node_id: int) -> list[str]:
        """Return the command that runs a node with these jars."""
        options = self.options
        classes = archive_options(java, jars) if options.quick_start else []
        folder = self.folder / f"node-{node_id}"
        # Compression codecs extract native libraries there, and a killed process does not remove them.
        jvm = [*jvm_options(options), f"-Djava.io.tmpdir={folder}", *(options.java_options or classes)]
        return [java, *jvm, "-cp", f"{jars}/*", "kafka.Kafka", str(folder / "server.properties")]

    def _launch(self) -> None:
        brokers = set(self.options.broker_ids)
        for node in self._nodes.values():
            node.start()
        for broker in brokers:
            self._await_ready(broker, brokers, list(self._nodes.values()))

    def _await_ready(self, broker: int, expected: set[int], needed: Sequence[Node]) -> None:
        """Wait until the broker is serving clients and knows the expected brokers. Raises EnvironmentFault if one of
        the `needed` nodes exits, or if the wait takes too long."""
        deadline = time.monotonic() + _START_SECONDS
        while not self._sees(broker, expected):
            for node in needed:
                if not node.running:
                    self._fail(node, "ended while starting")
            if time.monotonic() > deadline:
                self._fail(self._nodes[broker], f"did not serve clients within {_START_SECONDS} s")
            time.sleep(_POLL_SECONDS)

    def _await_open(self, controller: Node) -> None:
        """Wait until the controller listens on its port."""
        deadline = time.monotonic() + _START_SECONDS
        while not controller.listens_on({self._ports[controller.node_id].controller}):
            if not controller.running:
                self._fail(controller, "ended while starting")
            if time.monotonic() > deadline:
                self._fail(controller, f"did not listen within {_START_SECONDS} s")
            time.sleep(_POLL_SECONDS)

    def _sees(self, broker: int, expected: set[int]) -> bool:
        ports = self._ports[broker]
        # A broker opens its listeners one after the other. If the port of the last listener is taken, the first
        # listener may already have answered. Therefore the check requires that all listeners be open.
        if not self._nodes[broker].listens_on({ports.client, ports.internal}):
            return False
        try:
            return expected <= brokers_seen(ports.internal)
        except OSError:
            return False

    def _fail(self, node: Node, what: str) -> None:
        message = f"node {node.node_id} of the lab {what}; the end of its log:\n{node.log_tail()}"
        raise (_PortTakenError if _PORT_TAKEN in node.log_tail(200) else EnvironmentFault)(message)


def start_together(clusters: Iterable[Cluster]) -> None:
    """Start several clusters in parallel, because starting a cluster mostly means waiting. If one of the clusters does
    not start, close all of them."""
    clusters = list(clusters)
    try:
        with ThreadPoolExecutor(max(1, len(clusters))) as starters:
            list(starters.map(Cluster.start, clusters))
    except BaseException:
        for cluster in clusters:
            cluster.close()
        raise


class _PortTakenError(EnvironmentFault):
    """Raised when another process has taken a port after the port was found to be free, but before the broker opened
    it."""
