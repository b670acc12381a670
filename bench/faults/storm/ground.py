"""The clusters, the daemons and the load of a chapter, as the strikes see them."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Literal, NamedTuple

from bench.faults.storm.clocks import Clock
from bench.faults.storm.disks import SmallDisk
from bench.faults.storm.load import Streams
from bench.faults.storm.network import Network
from bench.harness.daemon import Daemon
from mirrord.lab.cluster import Cluster, start_together
from mirrord.lab.server_properties import CONTROLLER_ID, LabOptions

Side = Literal["source", "target"]
SIDES: tuple[Side, ...] = ("source", "target")
OLDER = "3.9.1"
_FULL_DISK_BROKER = 1
"""The broker of each cluster whose data is on a small disk, in chapters that have these."""


class Blow(NamedTuple):
    """A fault that was caused."""

    what: str
    heal: Callable[[], None] = lambda: None
    parts: tuple[str, ...] = ()
    """What is claimed until the fault is healed."""


@dataclass
class Ground:
    """What can be struck."""

    clusters: Mapping[Side, Cluster]
    daemon: Daemon
    second: Daemon
    """A daemon of the same flow that runs only while the first one is frozen."""
    streams: Streams
    print_line: Callable[[str], None]
    network: Network | None = None
    disks: dict[str, SmallDisk] = field(default_factory=dict[str, SmallDisk])
    """By side, and `spill`."""
    clocks: dict[str, Clock] = field(default_factory=dict[str, Clock])
    """By side and broker, such as `source-1`, and `mirrord`."""
    older: set[tuple[Side, int]] = field(default_factory=set[tuple[Side, int]])
    """Nodes that still run the older version."""
    ending: threading.Event = field(default_factory=threading.Event)
    _claimed: set[str] = field(default_factory=set[str])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def claim(self, *parts: str) -> bool:
        """Claim parts, unless one of them is claimed."""
        with self._lock:
            if self._claimed & set(parts):
                return False
            self._claimed |= set(parts)
            return True

    def release(self, parts: tuple[str, ...]) -> None:
        with self._lock:
            self._claimed -= set(parts)

    def is_claimed(self, part: str) -> bool:
        return part in self._claimed

    def free_broker(self, side: Side, chance: Random) -> int | None:
        """Claim a random broker. Return None if that one is claimed."""
        broker = chance.choice(self.clusters[side].options.broker_ids)
        return broker if self.claim(part(side, broker)) else None


def part(side: Side, node: int) -> str:
    """Return the name of a node among the claims."""
    return f"{side}-{node}"


def properties(brokers: int) -> dict[str, str]:
    """Return the properties of a cluster of this size. No record is too old, and topics are cleaned soon."""
    return {
        "log.retention.ms": "-1",
        "file.delete.delay.ms": "1000",
        "log.retention.check.interval.ms": "2000",
        "log.cleaner.backoff.ms": "2000",
        "min.insync.replicas": "2" if brokers > 2 else "1",
        "replica.lag.time.max.ms": "6000",
        "auto.leader.rebalance.enable": "false",
    }


@contextmanager
def clusters(
    sizes: Mapping[Side, int], version: str, environments: Mapping[str, Mapping[str, str]], folder: Path
) -> Generator[dict[Side, Cluster]]:
    """Start both clusters. `environments` has those of single nodes, such as `source-1`."""
    made: dict[Side, Cluster] = {}
    with ExitStack() as closing:
        for side, size in sizes.items():
            mine = {each: environments.get(part(side, each), {}) for each in (*range(1, size + 1), CONTROLLER_ID)}
            options = LabOptions(
                version=version, brokers=size, aside=True, properties=properties(size), environments=mine
            )
            made[side] = Cluster(options, folder / side)
            closing.callback(made[side].close)
        start_together(made.values())
        yield made


def put_on_small_disk(cluster: Cluster) -> SmallDisk:
    """Move the data of one broker to a disk that can become full."""
    cluster.stop(_FULL_DISK_BROKER)
    disk = SmallDisk(data_folder(cluster))
    cluster.restart(_FULL_DISK_BROKER)
    return disk


def data_folder(cluster: Cluster) -> Path:
    return cluster.folder / f"node-{_FULL_DISK_BROKER}" / "data"


def full_disk_broker() -> int:
    return _FULL_DISK_BROKER
