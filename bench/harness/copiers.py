"""mirrord and MirrorMaker 2 as processes whose CPU time and memory can be measured. Each copies one topic from its
start.

The process that copies (mirrord's replicator, the one Java process of MirrorMaker 2) and the processes that mirrord or
Ray start in addition are counted separately.
"""

import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import psutil

from bench.harness.daemon import Daemon, Settings, target_name
from bench.harness.mirror_maker import MirrorMaker, Reached, properties
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

Engine = Literal["ray", "process"]

START_S = 180.0
SHORT_SHARE = 0.2
"""A run with a smaller share than this measures only some of its cells, because starting copiers takes most of its
time."""
MM2_HEAP_MB = 2_048
"""The same as in Kafka's start script."""


class Used(NamedTuple):
    """CPU-seconds since the processes were started."""

    cpu_s: float
    """CPU-seconds of the processes that copy."""
    beside_cpu_s: float
    """CPU-seconds of the additional processes."""
    peak_bytes: int
    """Largest resident memory of the processes that copy."""


class Copier(Protocol):
    """A running copier."""

    @property
    def copy(self) -> str:
        """The target topic."""
        ...

    def used(self) -> Used:
        """Return the usage so far. Raises EnvironmentFault if it has ended."""
        ...

    def await_partitions(self, partitions: int, patience_s: float) -> None:
        """Wait until it copies this many partitions, if it reports that. Raises EnvironmentFault if it does not."""
        ...


class Mirrord:
    """`mirrord start` with one replicator and the default settings."""

    def __init__(self, daemon: Daemon, topic: str) -> None:
        self.copy = target_name(topic)
        self._daemon = daemon
        self._replicators: list[int] = []

    def used(self) -> Used:
        if not self._replicators:
            flow = self._daemon.wait_for("replicator", lambda flow: bool(flow.replicators), START_S)
            self._replicators = [each.pid for each in flow.replicators]
        try:
            root = psutil.Process(self._daemon.pid)
            family = {process.pid: process for process in (root, *root.children(recursive=True))}
            copying = [family.pop(pid) for pid in self._replicators]
        except (psutil.Error, KeyError) as error:
            raise EnvironmentFault(f"a replicator has ended: {error!r}") from error
        return Used(_cpu_s(copying), _cpu_s(family.values()), _peak_bytes(copying))

    def await_partitions(self, partitions: int, patience_s: float) -> None:
        def copies(flow: FlowStatus) -> bool:
            return sum(lane.state == "copying" for lane in flow.lanes) >= partitions

        self._daemon.wait_for(f"copying of {partitions:,} partitions", copies, patience_s)


class Mm2:
    """MirrorMaker 2, dedicated."""

    def __init__(self, maker: MirrorMaker, copy: str) -> None:
        self.copy = copy
        self._maker = maker

    def used(self) -> Used:
        if not self._maker.running:
            raise EnvironmentFault(f"MirrorMaker 2 has ended:\n{self._maker.log_tail()}")
        process = [psutil.Process(self._maker.pid)]
        return Used(_cpu_s(process), 0.0, _peak_bytes(process))

    def await_partitions(self, partitions: int, patience_s: float) -> None:
        """Do nothing: MirrorMaker 2 does not report it."""


@contextmanager
def mirrord(source: Reached, target: Reached, topic: str, flow: str, engine: Engine = "ray") -> Generator[Copier]:
    """Run until the block ends. Raises EnvironmentFault."""
    with tempfile.TemporaryDirectory(prefix="mirrord-copier-") as folder:
        settings = Settings(
            source=source.bootstrap, target=target.bootstrap, topics=topic, engine=engine, flow=flow, replicators=1
        )
        daemon = Daemon(Path(folder), settings)
        try:
            daemon.start()
            yield Mirrord(daemon, topic)
        finally:
            daemon.stop()


@contextmanager
def mm2(source: Reached, target: Reached, topic: str, alias: str, more: str = "") -> Generator[Copier]:
    """Run until the block ends. Every run has a separate alias, so none continues where another one ended."""
    options = LabOptions(quick_start=False, heap_mb=MM2_HEAP_MB)
    with tempfile.TemporaryDirectory(prefix="mirrord-copier-") as folder:
        path = properties(Path(folder) / "mm2.properties", source, target, topic, alias=alias, more=more)
        with MirrorMaker(path, options=options) as maker:
            yield Mm2(maker, f"{alias}.{topic}")


def tuned(alias: str, codec: str, partitions: int) -> str:
    """Return the usual settings for throughput: large fetches, large batches in the codec of the source, several
    tasks."""
    return (
        f"tasks.max = {min(4, partitions)}\n"
        "us.producer.batch.size = 1048576\n"
        "us.producer.linger.ms = 50\n"
        f"us.producer.compression.type = {codec}\n"
        "us.producer.buffer.memory = 134217728\n"
        "us.producer.max.request.size = 10485760\n"
        f"{alias}.consumer.max.partition.fetch.bytes = 10485760\n"
        f"{alias}.consumer.fetch.max.bytes = 104857600\n"
        f"{alias}.consumer.max.poll.records = 20000\n"
    )


def _each(processes: Iterable[psutil.Process], value: Callable[[psutil.Process], float]) -> Generator[float]:
    for process in processes:
        try:
            yield value(process)
        except psutil.NoSuchProcess:
            continue


def _cpu_s(processes: Iterable[psutil.Process]) -> float:
    def used(process: psutil.Process) -> float:
        times = process.cpu_times()
        return times.user + times.system

    return sum(_each(processes, used))


def _peak_bytes(processes: Iterable[psutil.Process]) -> int:
    return int(max(_each(processes, high_water), default=0.0))


def high_water(process: psutil.Process) -> float:
    """Return the kernel's high-water mark of the resident memory in bytes (VmHWM), or 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) * 1024.0 for line in lines if line.startswith("VmHWM")), 0.0)
