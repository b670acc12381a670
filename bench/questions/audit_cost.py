"""How much does an audit of the level `digest` read per CPU-second, compared with a bare byte relay in the same run?

Ten partitions, two for each codec, are written in batches of 64 KiB whose values do not compress. A daemon copies them
and is stopped. Then turns follow: the relay for a while, and `mirrord audit --again` as a separate process. The CPU
time of the Python processes that read and compare is counted from their start, including imports. The CPU time of
Spark's Java and of the driver, which plans, is reported separately.
"""

import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
from confluent_kafka import Producer

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Codec, Topic, noise
from bench.questions.throughput import relay
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
"""Partitions of each codec."""
STORED_BYTES = 2_100_000_000
"""Bytes in one cluster."""
VALUE_BYTES, BATCH_RECORDS = 1_010, 64
RELAY_BYTES = 1_500_000_000
TURNS = 5
CORES = 2
_COPY_S = 600.0
_AUDIT_S = 600.0
_FLUSH_S = 120
_LOOK_S = 0.1

PrintLine = Callable[[str], None]


class AuditCost(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the turns; bytes are those of both sides."""

    partitions: int
    batch_bytes: int
    read_bytes: int
    """Bytes read in one turn."""
    reader_cpu_s: list[float]
    java_cpu_s: list[float]
    driver_cpu_s: list[float]
    of_relay: list[float]
    """Bytes per CPU-second of the readers, relative to the relay's in the same turn, in ascending order."""


class _Turn(msgspec.Struct, frozen=True):
    read_bytes: int
    reader_cpu_s: float
    java_cpu_s: float
    driver_cpu_s: float


def measure(source: Cluster, target: Cluster, share: float, print_line: PrintLine) -> AuditCost:
    """Fill, copy and audit. Raises EnvironmentFault, also if an audit finds a difference."""
    batches = max(1, round(STORED_BYTES * share / (VALUE_BYTES + 16) / BATCH_RECORDS / len(CODECS)))
    for codec in CODECS:
        _fill(source.bootstrap, codec, batches)
        print_line(f"audit: {batches:,} batches with {codec}")
    topics = {f"audit.{codec}": PARTITIONS for codec in CODECS}
    with tempfile.TemporaryDirectory(prefix="mirrord-audit-") as name:
        settings = Settings(
            source=source.bootstrap, target=target.bootstrap, topics="audit\\..*", engine="process", flow="audit"
        )
        daemon = Daemon(Path(name), settings)
        ends = sum(Admin(source.bootstrap).ends(topics).values())
        try:
            daemon.start()
            daemon.wait_for("copy", lambda flow: sum(lane.ordinal or 0 for lane in flow.lanes) >= ends, _COPY_S)
        finally:
            daemon.stop()
        print_line("audit: copied")
        turns: list[tuple[_Turn, float]] = []
        for number in range(max(2, round(TURNS * share))):
            relayed = relay(RELAY_BYTES)
            turn = _audit(daemon.conf)
            if not turn.read_bytes:
                raise EnvironmentFault("the audit has read nothing: no copied records are reported")
            ratio = turn.read_bytes / turn.reader_cpu_s / (relayed.relayed_bytes / relayed.cpu_s)
            turns.append((turn, ratio))
            print_line(
                f"audit: turn {number + 1}, {turn.read_bytes / turn.reader_cpu_s / 1e6:,.0f} MB per CPU-second, the "
                f"relay {relayed.relayed_bytes / relayed.cpu_s / 1e6:,.0f} MB: {ratio:.0%}"
            )
    read_bytes = turns[0][0].read_bytes
    return AuditCost(
        partitions=sum(topics.values()),
        batch_bytes=read_bytes // (2 * batches * len(CODECS)),
        read_bytes=read_bytes,
        reader_cpu_s=[turn.reader_cpu_s for turn, _ in turns],
        java_cpu_s=[turn.java_cpu_s for turn, _ in turns],
        driver_cpu_s=[turn.driver_cpu_s for turn, _ in turns],
        of_relay=sorted(ratio for _, ratio in turns),
    )


def spread(cost: AuditCost) -> str:
    """Return the least, middle and largest share of the relay's rate."""
    return f"{cost.of_relay[0]:.0%}, {statistics.median(cost.of_relay):.0%}, {cost.of_relay[-1]:.0%}"


def _fill(bootstrap: str, codec: Codec, batches: int) -> None:
    topic = Topic(f"audit.{codec}", PARTITIONS, codec)
    Admin(bootstrap).create([topic])
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 1_000,
            "batch.num.messages": BATCH_RECORDS,
            "batch.size": 4 << 20,
            "queue.buffering.max.kbytes": 128 << 10,
        }
    )
    values = [noise(VALUE_BYTES, at) for at in range(BATCH_RECORDS)]
    for batch in range(batches):
        for value in values:
            while True:
                try:
                    producer.produce(topic.name, value, partition=batch % PARTITIONS)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise EnvironmentFault(f"{topic.name} cannot be filled")


def _audit(conf: Path) -> _Turn:
    words = ["audit", str(conf), "--json", "--again", "--spark", f"spark.master=local[{CORES}]"]
    with subprocess.Popen(
        [sys.executable, "-m", "mirrord.cli.main", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        looks = _Looks(process.pid)
        try:
            output, fault = process.communicate(timeout=_AUDIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise EnvironmentFault(f"an audit does not end within {_AUDIT_S:g} s") from None
        finally:
            looks.end()
    if process.returncode:
        raise EnvironmentFault(f"an audit of a good copy ended with {process.returncode}: {fault.decode()[-500:]}")
    document = msgspec.json.decode(output)
    read_bytes = sum(each["read_bytes"] for each in document["partitions"])
    return _Turn(read_bytes, document["reader_cpu_s"], looks.java_s, looks.driver_s)


class _Looks:
    """The CPU-seconds of an audit's driver and of its Java, as of the last sample."""

    def __init__(self, pid: int) -> None:
        self.java_s = self.driver_s = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._look, args=(psutil.Process(pid),), daemon=True)
        self._thread.start()

    def _look(self, driver: psutil.Process) -> None:
        while not self._ending.wait(_LOOK_S):
            try:
                self.driver_s = _cpu_s(driver)
                self.java_s = max(self.java_s, sum(_cpu_s(each) for each in driver.children() if "java" in each.name()))
            except psutil.Error:
                continue  # it has just ended

    def end(self) -> None:
        """Stop sampling."""
        self._ending.set()
        self._thread.join()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
