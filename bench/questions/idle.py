"""What does a mirror cost that has many partitions and nothing to do?"""

import time
from collections.abc import Callable, Sequence

import msgspec

from bench.harness import copiers
from bench.harness.clusters import Admin
from bench.harness.copiers import Copier, Engine
from bench.harness.load import Topic
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

SIZES = (100, 1_000, 5_000)
"""Number of partitions overall."""
PARTITIONS = 50
"""Partitions of each topic."""
START_S = 600.0
"""Time limit until all target topics exist, also for a copier that creates one topic at a time."""
SETTLE_S = 10.0
MEASURED_S = 60.0
_LOOK_S = 0.5

PrintLine = Callable[[str], None]


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the processes that copy: of mirrord the replicator, which is the only process with the engine
    "process"."""

    engine: str
    """mirrord's engine, or the name of another copier."""
    partitions: int
    seconds: float
    core_share: float
    """CPU-seconds per second."""
    rss_bytes: int
    """The largest resident memory so far."""


def measure(
    source: Cluster, target: Cluster, engines: Sequence[Engine], share: float, print_line: PrintLine
) -> list[Idle]:
    """Measure each engine and MirrorMaker 2 with each number of partitions. Raises EnvironmentFault."""
    found: list[Idle] = []
    for size in SIZES:
        topics = [f"idle-{size}-{number}" for number in range(size // PARTITIONS)]
        Admin(source.bootstrap).create([Topic(topic, PARTITIONS, "none") for topic in topics])
        pattern = f"idle-{size}-.*"
        for engine in engines:
            with copiers.mirrord(source, target, pattern, f"idle-{engine}-{size}", engine) as copier:
                found.append(_measure(target, copier, engine, [f"eu.{topic}" for topic in topics], share, print_line))
        with copiers.mm2(source, target, pattern, f"mm2-{size}") as copier:
            found.append(
                _measure(target, copier, "MM2", [f"mm2-{size}.{topic}" for topic in topics], share, print_line)
            )
        for cluster in (source, target):
            Admin(cluster.bootstrap).delete_like(f"idle-{size}-")
    return found


def _measure(
    target: Cluster, copier: Copier, name: str, copies: Sequence[str], share: float, print_line: PrintLine
) -> Idle:
    copier.used()
    _await_copies(target, copies)
    copier.await_partitions(len(copies) * PARTITIONS, START_S)
    time.sleep(SETTLE_S)
    print_line(f"idle, {name}: {len(copies) * PARTITIONS:,} partitions for {MEASURED_S * share:.0f} s")
    began, before = time.monotonic(), copier.used()
    time.sleep(MEASURED_S * share)
    after, seconds = copier.used(), time.monotonic() - began
    return Idle(
        engine=name,
        partitions=len(copies) * PARTITIONS,
        seconds=seconds,
        core_share=(after.cpu_s - before.cpu_s) / seconds,
        rss_bytes=after.peak_bytes,
    )


def _await_copies(target: Cluster, copies: Sequence[str]) -> None:
    admin, deadline = Admin(target.bootstrap), time.monotonic() + START_S
    while len(missing := set(copies) - admin.names()):
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"there are {len(missing)} of {len(copies)} copies missing after {START_S:g} s")
        time.sleep(_LOOK_S)
