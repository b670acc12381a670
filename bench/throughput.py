"""How many stored bytes, and how many batches, does a replicator move per CPU-second, beside a bare byte relay?

Three cells, each a topic of four partitions with lz4: batches of 64 KiB, of 16 KiB, and of one record. A cell is
copied again and again into fresh topics, by a fresh process each time, until enough bytes or CPU-seconds are counted.
The relay runs before and after each cell.
"""

import subprocess
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import Producer

from bench.clusters import Admin
from bench.copying import Cost
from bench.load import Topic, noise
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

PARTITIONS = 4
COUNTED_BYTES = 6_000_000_000
COUNTED_CPU_S = 20.0
RELAY_BYTES = 4_000_000_000
_MOST_TURNS = 40
_NOISE_SEED = 1


class Cell(NamedTuple):
    """One kind of batches. The values do not compress, so that stored bytes are what they look like."""

    name: str
    value_bytes: int
    records_per_batch: int
    batches: int
    """How many are written into the source."""

    @property
    def topic(self) -> str:
        """The source topic."""
        return f"bench.{self.name.replace(' ', '-')}"

    def scaled(self, share: float) -> "Cell":
        """The same with fewer batches."""
        return self._replace(batches=max(PARTITIONS, int(self.batches * share)))

    @property
    def records(self) -> int:
        """How many are written into the source."""
        return self.batches * self.records_per_batch


CELLS = (
    Cell("64 KiB batches", 1_010, 64, 24_000),
    Cell("16 KiB batches", 1_010, 16, 64_000),
    Cell("one-record batches", 100, 1, 300_000),
)


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """What a cell came to."""

    name: str
    batch_bytes: int
    """On average, as stored."""
    copied_bytes: int
    cpu_s: float
    bytes_per_cpu_s: float
    batches_per_cpu_s: float
    bytes_per_s: float
    """By the clock, with both brokers on the same machine."""
    relay_bytes_per_cpu_s: float
    of_relay: float
    step_share: float
    """CPU time within the state machine, of all."""
    turns: int


def fill(bootstrap: str, cell: Cell) -> None:
    """Create the cell's topic and write its batches."""
    Admin(bootstrap).create([Topic(cell.topic, PARTITIONS, "lz4")])
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": "lz4",
            "linger.ms": 1_000 if cell.records_per_batch > 1 else 0,
            "batch.num.messages": cell.records_per_batch,
            "batch.size": 4 << 20,
            "queue.buffering.max.kbytes": 256 << 10,
            "queue.buffering.max.messages": 400_000,
        }
    )
    values = [noise(cell.value_bytes, _NOISE_SEED + at) for at in range(64)]
    for batch in range(cell.batches):
        for at in range(cell.records_per_batch):
            _send(producer, cell.topic, values[(batch + at) % len(values)], batch % PARTITIONS)
        producer.poll(0)
    if producer.flush(120):
        raise EnvironmentFault(f"{cell.topic} cannot be filled")


def measure(source: Cluster, target: Cluster, cell: Cell, share: float, tell: Callable[[str], None]) -> Throughput:
    """Fill and copy one cell; with a `share` below 1 less of it, for a look. Raises EnvironmentFault."""
    cell = cell.scaled(share)
    tell(f"{cell.name}: writing {cell.batches:,}")
    fill(source.bootstrap, cell)
    relays = [relay(share)]
    costs: list[Cost] = []
    while not _enough(costs, share):
        costs.append(copy_once(source, target, cell, f"{cell.topic}.copy-{len(costs)}"))
        tell(
            f"{cell.name}: {sum(cost.copied_bytes for cost in costs) / 1e6:,.0f} MB in {_cpu_s(costs):.1f} CPU-seconds"
        )
    relays.append(relay(share))
    # Looking at the clock costs something too: in a turn of its own, which does not count otherwise.
    timed = copy_once(source, target, cell, f"{cell.topic}.timed", "--time-step")
    copied_bytes, cpu_s = sum(cost.copied_bytes for cost in costs), _cpu_s(costs)
    batches = sum(cost.batches for cost in costs)
    relayed = sum(relays) / len(relays)
    return Throughput(
        name=cell.name,
        batch_bytes=copied_bytes // batches,
        copied_bytes=copied_bytes,
        cpu_s=cpu_s,
        bytes_per_cpu_s=copied_bytes / cpu_s,
        batches_per_cpu_s=batches / cpu_s,
        bytes_per_s=copied_bytes / sum(cost.wall_s for cost in costs),
        relay_bytes_per_cpu_s=relayed,
        of_relay=copied_bytes / cpu_s / relayed,
        step_share=timed.step_s / timed.cpu_s,
        turns=len(costs),
    )


def copy_once(source: Cluster, target: Cluster, cell: Cell, copy: str, *options: str) -> Cost:
    """Copy a cell's topic into a fresh one, which goes afterwards. Raises EnvironmentFault."""
    admin = Admin(target.bootstrap)
    admin.create([Topic(copy, PARTITIONS, "none")])
    addresses = (source.bootstrap, target.bootstrap, cell.topic, copy)
    told = _ask("bench.copying", *addresses, "--records", str(cell.records), *options)
    admin.delete([copy])
    return msgspec.json.decode(told, type=Cost)


def relay(share: float) -> float:
    """Bytes per CPU-second of the bare relay."""
    return float(_ask("bench.relay", str(int(RELAY_BYTES * share))))


def _enough(costs: list[Cost], share: float) -> bool:
    copied_bytes = sum(cost.copied_bytes for cost in costs)
    counted = copied_bytes >= COUNTED_BYTES * share or _cpu_s(costs) >= COUNTED_CPU_S * share
    return counted or len(costs) >= _MOST_TURNS


def _cpu_s(costs: list[Cost]) -> float:
    return sum(cost.cpu_s for cost in costs)


def _ask(*command: str) -> str:
    answer = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True, check=False)
    if answer.returncode:
        raise EnvironmentFault(f"{command[0]} failed:\n{answer.stderr[-2_000:]}")
    return answer.stdout


def _send(producer: Any, topic: str, value: bytes, partition: int) -> None:
    while True:
        try:
            producer.produce(topic, value, partition=partition)
        except BufferError:
            producer.poll(0.05)
        else:
            return
