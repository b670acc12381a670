"""What does a daemon cost that has a thousand partitions and nothing to do?"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec
import psutil

from bench.clusters import Admin
from bench.daemon import Daemon, Settings
from bench.load import Topic
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

TOPICS = 20
PARTITIONS = 50
REPLICATORS = 1
START_S = 180.0
SETTLE_S = 10.0
MEASURED_S = 60.0
_TOPIC = "idle-"


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    """Of the replicator processes alone; with the engine "process" supervisor and HTTP are part of the one process."""

    engine: str
    partitions: int
    seconds: float
    core_share: float
    """CPU-seconds per second."""
    rss_bytes: int
    """Resident memory at the end."""


def measure(
    source: Cluster, target: Cluster, engine: Literal["ray", "process"], share: float, tell: Callable[[str], None]
) -> Idle:
    """Starts a daemon and lets it idle. Raises EnvironmentFault."""
    partitions = TOPICS * PARTITIONS
    Admin(source.bootstrap).create([Topic(f"{_TOPIC}{number}", PARTITIONS, "none") for number in range(TOPICS)])
    with tempfile.TemporaryDirectory(prefix="mirrord-idle-") as folder:
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=f"{_TOPIC}.*",
            engine=engine,
            flow=f"idle-{engine}",
            refresh_s=5.0,
            replicators=REPLICATORS if engine == "ray" else "auto",
        )
        daemon = Daemon(Path(folder), settings)
        try:
            daemon.start()
            flow = daemon.wait_for("lane", lambda flow: flow.totals.lanes == {"copying": partitions}, START_S)
            processes = [psutil.Process(replicator.pid) for replicator in flow.replicators]
            time.sleep(SETTLE_S)
            tell(f"idle, engine {engine}: {partitions:,} partitions for {MEASURED_S * share:.0f} s")
            began, before = time.monotonic(), _cpu_s(processes)
            time.sleep(MEASURED_S * share)
            used, seconds = _cpu_s(processes) - before, time.monotonic() - began
            rss_bytes = sum(process.memory_info().rss for process in processes)
        except psutil.Error as error:
            raise EnvironmentFault(f"a replicator has ended: {error}") from error
        finally:
            daemon.stop()
    return Idle(engine=engine, partitions=partitions, seconds=seconds, core_share=used / seconds, rss_bytes=rss_bytes)


def _cpu_s(processes: list[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return sum(each.user + each.system for each in times)
