"""How many stored bytes, and how many batches, does a replicator move per CPU-second, compared with a bare byte relay?

Each cell is a topic of four partitions: batches of 64 KiB with three codecs, of 16 KiB and of one record with lz4. It
is copied again and again into fresh topics, by a fresh process each time, until enough bytes or CPU-seconds are
measured. Before each such turn the relay runs for a while, so that whatever slows the machine down slows both down.
"""

import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from confluent_kafka import Producer

from bench.harness.clusters import Admin
from bench.harness.copying import Cost
from bench.harness.load import Codec, Topic, noise, send
from bench.harness.relay import Relayed
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

PARTITIONS = 4
COUNTED_BYTES = 12_000_000_000
COUNTED_CPU_S = 20.0
RELAY_BYTES = 1_500_000_000
"""Bytes of each turn of the relay."""
PROFILED_CPU_S = 4.0
_MOST_TURNS = 60
_LEAST_TURNS = 2
_NOISE_SEED = 1
_FLUSH_S = 120
_TURN_S = 300

PrintLine = Callable[[str], None]


class Cell(NamedTuple):
    """One kind of batches. The values do not compress, so stored bytes equal their size."""

    name: str
    value_bytes: int
    records_per_batch: int
    batches: int
    """Number of batches written into the source."""
    codec: Codec = "lz4"

    @property
    def topic(self) -> str:
        """The source topic."""
        return f"bench.{self.name.replace(',', '').replace(' ', '-')}"

    def scaled(self, share: float) -> "Cell":
        """Return the same cell with fewer batches, but enough for a copy to reach its full speed before it ends."""
        return self._replace(batches=max(self.batches // 4, int(self.batches * share)))

    @property
    def records(self) -> int:
        """Number of records written into the source."""
        return self.batches * self.records_per_batch


CELLS = (
    Cell("64 KiB batches", 1_010, 64, 32_000),
    Cell("64 KiB batches, none", 1_010, 64, 32_000, "none"),
    Cell("64 KiB batches, zstd", 1_010, 64, 32_000, "zstd"),
    Cell("16 KiB batches", 1_010, 16, 96_000),
    Cell("one-record batches", 100, 1, 300_000),
)


class Checkout(NamedTuple):
    """The code that copies: a checkout of this project, and the interpreter that runs it."""

    folder: Path
    python: str


HERE = Checkout(Path(__file__).resolve().parents[2], sys.executable)


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a cell."""

    name: str
    batch_bytes: int
    """Average stored size."""
    copied_bytes: int
    cpu_s: float
    """CPU-seconds of the replicator, over all turns."""
    bytes_per_cpu_s: float
    batches_per_cpu_s: float
    bytes_per_s: float
    """Wall-clock rate, with both brokers on the same machine."""
    relayed_bytes: int
    relay_bytes_per_cpu_s: float
    of_relay: float
    """Bytes per CPU-second, relative to the relay's."""
    of_relay_turns: list[float]
    """The same for each turn and the relay's turn before it, in ascending order."""
    parts_us: dict[str, float]
    """CPU-microseconds per batch by part, from separate turns."""
    profiled_us: float
    """All CPU-microseconds per batch in those turns."""
    step_share: float
    """Share of the CPU time in those turns within the state machine, including the header codec that it calls."""
    ticks: int
    """Number of samples on which these shares are based."""


class Turns:
    """The turns of one cell."""

    def __init__(self, source: Cluster, target: Cluster, cell: Cell, print_line: PrintLine) -> None:
        self._source = source
        self._target = target
        self._cell = cell
        self._print_line = print_line
        self._copies = 0
        self.costs: list[Cost] = []
        self.relays: list[Relayed] = []

    def run(self, share: float) -> None:
        """Run counted turns until there are enough of them."""
        while not self._enough(share):
            relayed = relay(RELAY_BYTES)
            cost = self.copy()
            self.relays.append(relayed)
            self.costs.append(cost)
            self._print_line(
                f"{self._cell.name}: turn {len(self.costs)}, {cost.copied_bytes / cost.cpu_s / 1e6:,.0f} MB and "
                f"{cost.batches / cost.cpu_s:,.0f} batches per CPU-second, "
                f"the relay {relayed.relayed_bytes / relayed.cpu_s / 1e6:,.0f} MB"
            )

    def profile(self, share: float) -> list[Cost]:
        """Run turns in which the process samples where its CPU time is spent."""
        costs: list[Cost] = []
        while sum(cost.cpu_s for cost in costs) < PROFILED_CPU_S * share:
            costs.append(self.copy("--profile"))
            self._print_line(f"{self._cell.name}: profiled {sum(cost.cpu_s for cost in costs):.1f} CPU-seconds")
        return costs

    def copy(self, *options: str) -> Cost:
        """Copy the cell's topic into a fresh one, which is deleted afterwards. Raises EnvironmentFault."""
        self._copies += 1
        copy = f"{self._cell.topic}.copy-{self._copies}"
        return copy_once(self._source, self._target, self._cell, copy, *options)

    def _enough(self, share: float) -> bool:
        copied_bytes = sum(cost.copied_bytes for cost in self.costs)
        cpu_s = sum(cost.cpu_s for cost in self.costs)
        counted = copied_bytes >= COUNTED_BYTES * share or cpu_s >= COUNTED_CPU_S * share
        return len(self.costs) >= _MOST_TURNS or (counted and len(self.costs) >= _LEAST_TURNS)


def fill(bootstrap: str, cell: Cell) -> None:
    """Create the cell's topic and write its batches. Raises EnvironmentFault."""
    Admin(bootstrap).create([Topic(cell.topic, PARTITIONS, cell.codec)])
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": cell.codec,
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
            send(producer, cell.topic, value=values[(batch + at) % len(values)], partition=batch % PARTITIONS)
        producer.poll(0)
    if producer.flush(_FLUSH_S):
        raise EnvironmentFault(f"{cell.topic} cannot be filled")


def measure(source: Cluster, target: Cluster, cell: Cell, share: float, print_line: PrintLine) -> Throughput:
    """Fill and copy one cell, or with a `share` below 1 less of it. Raises EnvironmentFault."""
    cell = cell.scaled(share)
    print_line(f"{cell.name}: writing {cell.batches:,}")
    fill(source.bootstrap, cell)
    turns = Turns(source, target, cell, print_line)
    turns.run(share)
    return summary(cell, turns.costs, turns.relays, turns.profile(share))


def summary(cell: Cell, costs: Sequence[Cost], relays: Sequence[Relayed], profiled: Sequence[Cost]) -> Throughput:
    """Return one result from all turns."""
    copied_bytes, cpu_s = sum(cost.copied_bytes for cost in costs), sum(cost.cpu_s for cost in costs)
    batches = sum(cost.batches for cost in costs)
    relayed_bytes = sum(each.relayed_bytes for each in relays)
    relay_rate = relayed_bytes / sum(each.cpu_s for each in relays)
    ticks: Counter[str] = Counter()
    for cost in profiled:
        ticks.update(cost.ticks)
    all_ticks = ticks.total()
    profiled_us = sum(cost.cpu_s for cost in profiled) / sum(cost.batches for cost in profiled) * 1e6
    return Throughput(
        name=cell.name,
        batch_bytes=copied_bytes // batches,
        copied_bytes=copied_bytes,
        cpu_s=cpu_s,
        bytes_per_cpu_s=copied_bytes / cpu_s,
        batches_per_cpu_s=batches / cpu_s,
        bytes_per_s=copied_bytes / sum(cost.wall_s for cost in costs),
        relayed_bytes=relayed_bytes,
        relay_bytes_per_cpu_s=relay_rate,
        of_relay=copied_bytes / cpu_s / relay_rate,
        of_relay_turns=sorted(
            cost.copied_bytes / cost.cpu_s / (each.relayed_bytes / each.cpu_s)
            for cost, each in zip(costs, relays, strict=True)
        ),
        parts_us={part: count / all_ticks * profiled_us for part, count in ticks.items()},
        profiled_us=profiled_us,
        step_share=sum(cost.step_ticks for cost in profiled) / all_ticks,
        ticks=all_ticks,
    )


def spread(cell: Throughput) -> str:
    """Return the least, middle and largest share of the relay's rate, over all turns."""
    turns = cell.of_relay_turns
    return f"{turns[0]:.0%}, {statistics.median(turns):.0%}, {turns[-1]:.0%}"


def copy_once(
    source: Cluster,
    target: Cluster,
    cell: Cell,
    copy: str,
    *options: str,
    by: Checkout = HERE,
    under: Sequence[str] = (),
) -> Cost:
    """Copy a cell's topic into a fresh one, which is deleted afterwards; `under` as in `run_in`. Raises
    EnvironmentFault."""
    admin = Admin(target.bootstrap)
    admin.create([Topic(copy, PARTITIONS, "none")])
    try:
        addresses = (source.bootstrap, target.bootstrap, cell.topic, copy)
        output = run_in(by, "-m", "bench.copying", *addresses, "--records", str(cell.records), *options, under=under)
    finally:
        admin.delete([copy])
    try:
        return msgspec.json.decode(output, type=Cost)
    except msgspec.DecodeError as error:
        raise EnvironmentFault(f"{by.folder} reports its figures in a different format: {error}") from error


def relay(total_bytes: int) -> Relayed:
    """Return the cost of the bare relay for this number of bytes. Raises EnvironmentFault."""
    return msgspec.json.decode(run_in(HERE, "-m", "bench.harness.relay", str(total_bytes)), type=Relayed)


def run_in(checkout: Checkout, *command: str, under: Sequence[str] = ()) -> str:
    """Return the output of a Python process that imports the code of this checkout. `under` is a command that runs the
    interpreter, such as a profiler. Raises EnvironmentFault."""
    # Before the packages of the interpreter: another checkout may have none, and be run by ours.
    environment = {**os.environ, "PYTHONPATH": str(checkout.folder)}
    what = f"{' '.join(command[:2])} of {checkout.folder}"
    try:
        answer = subprocess.run(
            [*under, checkout.python, *command],
            cwd=checkout.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TURN_S,
        )
    except subprocess.TimeoutExpired:
        raise EnvironmentFault(f"{what} does not end within {_TURN_S} s") from None
    except OSError as error:
        raise EnvironmentFault(f"{what} cannot be started: {error}") from error
    if answer.returncode:
        raise EnvironmentFault(f"{what} failed:\n{answer.stderr[-2_000:]}")
    return answer.stdout
