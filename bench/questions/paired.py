"""Does this checkout copy for as little CPU time as another one? `python -m bench.paired BASE_CHECKOUT` answers.

Both copy the same backlog on the same two clusters, in turns: a pair is a copy by each, and every second pair begins
with the other one. A machine that becomes slower meanwhile thus slows down both, and the ratio within a pair says more
than either figure. With `--instructions`, Valgrind counts the instructions that each executes per batch, which other
work on the machine does not change (`bench.harness.instructions`). The exit code is 1 if the median of the ratios is
above the limit, or nothing could be measured.
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple, get_args

from rich.console import Console

from bench.harness.backlog import Codec
from bench.harness.copying import Cost
from bench.harness.instructions import counted, per_batch
from bench.harness.pair import LASTING, pair
from bench.questions.run import BROKER_HEAP_MB
from bench.questions.throughput import HERE, Cell, Checkout, copy_once, fill, run_in
from bench.report.table import Table
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

PAIRS = 12
COUNTED_PAIRS = 3
CODECS: tuple[Codec, ...] = ("lz4", "none")
LIMIT = 1.02
"""Limit of the median ratio of CPU-seconds per GB."""
_VALUE_BYTES = 1_010


class Size(NamedTuple):
    """A size of batches."""

    records: int
    """Records per batch, of 1 KiB each."""
    batches: int
    """Batches in each copy, unless the command says otherwise."""


SIZES = {"64KiB": Size(64, 16_000), "16KiB": Size(16, 32_000), "record": Size(1, 100_000)}
"""The sizes by name. `record` means batches of one record."""
_GB = 1e9
_WHERE = "import bench.copying, mirrord; print(bench.copying.__file__); print(mirrord.__file__)"

PrintLine = Callable[[str], None]

console = Console(highlight=False, width=None if sys.stdout.isatty() else 180)


class Figures(NamedTuple):
    """The figures of one copy."""

    cpu_s_per_gb: float
    mb_per_s: float


class Pair(NamedTuple):
    """A copy by each, one right after the other."""

    base: Figures
    here: Figures

    @property
    def ratio(self) -> float:
        """CPU-seconds per GB of this checkout, divided by those of the other one."""
        return self.here.cpu_s_per_gb / self.base.cpu_s_per_gb


class Instructions(NamedTuple):
    """Instructions of both checkouts per batch, counted in copies of the same size."""

    base: float
    here: float

    @property
    def ratio(self) -> float:
        """Instructions of this checkout, divided by those of the other one."""
        return self.here / self.base


class Comparison(NamedTuple):
    """All pairs of one codec and size."""

    codec: Codec
    size: str
    pairs: Sequence[Pair]
    counts: Sequence[Instructions] = ()
    """Counted instead of timed."""

    @property
    def ratio(self) -> float:
        """The median of all pairs."""
        return statistics.median(pair.ratio for pair in self.counts or self.pairs)


def figures(cost: Cost) -> Figures:
    """Return the figures from the cost of a copy."""
    return Figures(cost.cpu_s / cost.copied_bytes * _GB, cost.copied_bytes / cost.wall_s / 1e6)


def other_checkout(folder: Path) -> Checkout:
    """Return the checkout to compare with, run by its .venv, or else by this interpreter. Raises EnvironmentFault."""
    folder = folder.resolve()
    for part in ("mirrord/__init__.py", "bench/copying.py"):
        if not (folder / part).is_file():
            raise EnvironmentFault(f"{folder} is not a checkout of mirrord: it has no {part}")
    python = folder / ".venv/bin/python"
    checkout = Checkout(folder, str(python) if python.exists() else sys.executable)
    found = run_in(checkout, "-c", _WHERE).split()
    foreign = [path for path in found if not Path(path).resolve().is_relative_to(folder)]
    if foreign:
        raise EnvironmentFault(f"{checkout.python} imports {', '.join(foreign)}, which is not from {folder}")
    return checkout


def backlog(codec: Codec, size: str, batches: int | None) -> Cell:
    """Return the backlog that is copied."""
    records, usual = SIZES[size]
    return Cell(f"paired {codec} {size}", _VALUE_BYTES, records, usual if batches is None else batches, codec)


def measure(
    source: Cluster, target: Cluster, base: Checkout, cell: Cell, pairs: int, print_line: PrintLine
) -> list[Pair]:
    """Fill the topic and copy it, twice for each pair. Raises EnvironmentFault."""
    print_line(f"{cell.name}: writing {cell.batches:,} batches")
    fill(source.bootstrap, cell)
    copies = 0

    def copied(by: Checkout) -> Figures:
        nonlocal copies
        copies += 1
        return figures(copy_once(source, target, cell, f"{cell.topic}.copy-{copies}", by=by))

    # Java compiles and Python writes its bytecode meanwhile, so these do not count.
    for by in (base, HERE):
        copied(by)
    done: list[Pair] = []
    for at in range(pairs):
        if at % 2:
            here = copied(HERE)
            done.append(Pair(copied(base), here))
        else:
            done.append(Pair(copied(base), copied(HERE)))
        last = done[-1]
        print_line(
            f"{cell.name}: pair {at + 1} of {pairs}, {last.base.cpu_s_per_gb:.3f} and {last.here.cpu_s_per_gb:.3f} "
            f"CPU-seconds per GB, ratio {last.ratio:.3f}"
        )
    return done


def count(
    source: Cluster, target: Cluster, base: Checkout, cell: Cell, pairs: int, print_line: PrintLine
) -> list[Instructions]:
    """Fill two topics, the larger one with five times the batches, and count copies of both. Raises
    EnvironmentFault."""
    few = max(cell.batches // 5, 1)
    cells = [cell._replace(name=f"{cell.name} {batches}", batches=batches) for batches in (few, cell.batches)]
    for each in cells:
        print_line(f"{each.name}: writing {each.batches:,} batches")
        fill(source.bootstrap, each)
    copies = 0

    def executed(by: Checkout) -> float:
        nonlocal copies
        copies += 1
        small, large = (
            counted(partial(copy_once, source, target, each, f"{each.topic}.copy-{copies}", by=by)) for each in cells
        )
        return per_batch(small, large)

    done: list[Instructions] = []
    for at in range(pairs):
        done.append(Instructions(executed(base), executed(HERE)))
        last = done[-1]
        print_line(
            f"{cell.name}: pair {at + 1} of {pairs}, {last.base:,.0f} and {last.here:,.0f} instructions per batch, "
            f"ratio {last.ratio:.3f}"
        )
    return done


def table(comparisons: Sequence[Comparison]) -> Table:
    """Return a table with both sides of each codec and size; every cell shows the least, the median and the most."""
    head = [
        "codec",
        "batches",
        "checkout",
        "CPU-seconds per GB",
        "MB/s by the clock",
        "ratio of a pair",
        "median ratio",
    ]
    rows: list[list[str]] = []
    for each in comparisons:
        ratios = [_spread([done.ratio for done in each.pairs]), f"{each.ratio:.3f}"]
        rows.append([each.codec, each.size, "base", *_side([done.base for done in each.pairs]), "", ""])
        rows.append([each.codec, each.size, "this", *_side([done.here for done in each.pairs]), *ratios])
    return Table("Copies in turns (least, median, most)", head, rows)


def table_of_counts(comparisons: Sequence[Comparison]) -> Table:
    """Return a table with both sides of each codec and size; every cell shows the least, the median and the most."""
    head = ["codec", "batches", "instructions per batch, base", "this", "ratio of a pair", "median ratio"]
    rows: list[list[str]] = []
    for each in comparisons:
        sides = [[done.base for done in each.counts], [done.here for done in each.counts]]
        ratios = [_spread([done.ratio for done in each.counts]), f"{each.ratio:.3f}"]
        rows.append([each.codec, each.size, *(_spread(side, 0) for side in sides), *ratios])
    return Table("Instructions in user space (least, median, most)", head, rows)


def too_dear(comparisons: Sequence[Comparison], limit: float) -> list[Comparison]:
    """Return those whose median ratio is above the limit."""
    return [each for each in comparisons if each.ratio > limit]


def _side(copies: Sequence[Figures]) -> list[str]:
    return [_spread([copy.cpu_s_per_gb for copy in copies]), _spread([copy.mb_per_s for copy in copies], 0)]


def _spread(values: Sequence[float], digits: int = 3) -> str:
    return ", ".join(f"{value:,.{digits}f}" for value in (min(values), statistics.median(values), max(values)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.paired", description=__doc__)
    parser.add_argument(
        "base", type=Path, metavar="BASE_CHECKOUT", help="the directory of the checkout to compare with"
    )
    parser.add_argument(
        "--pairs", type=int, help=f"of each codec and size (default: {PAIRS}, or {COUNTED_PAIRS} if counted)"
    )
    parser.add_argument("--instructions", action="store_true", help="count instead of timing; needs valgrind")
    parser.add_argument("--codec", choices=get_args(Codec), action="append", help="default: lz4 and none")
    parser.add_argument("--limit", type=float, default=LIMIT, help="of the median ratio (default: %(default)g)")
    parser.add_argument("--size", choices=SIZES, action="append", help="of the batches (default: 64KiB)")
    parser.add_argument("--batches", type=int, help="in each copy (default: 16,000 of 64 KiB, which is about 1 GB)")
    arguments = parser.parse_args()
    arguments.pairs = (
        (COUNTED_PAIRS if arguments.instructions else PAIRS) if arguments.pairs is None else arguments.pairs
    )
    for name in ("pairs", "batches"):
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name} is {value}; it must be at least 1")
    if not 0 < arguments.limit < math.inf:
        parser.error(f"--limit is {arguments.limit:g}; it must be a number above 0")
    try:
        arguments.base = other_checkout(arguments.base)
    except EnvironmentFault as fault:
        parser.error(str(fault))
    arguments.codec = list(dict.fromkeys(arguments.codec or CODECS))
    arguments.size = list(dict.fromkeys(arguments.size or ["64KiB"]))
    return arguments


def main() -> int:
    """Return the exit code."""
    arguments = _arguments()
    began = time.monotonic()

    def print_line(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s  {line}[/]", soft_wrap=True)

    print_line(f"{arguments.base.folder} by {arguments.base.python}; load average {os.getloadavg()[0]:.1f}")
    comparisons: list[Comparison] = []
    options = LabOptions(quick_start=False, heap_mb=BROKER_HEAP_MB, properties=LASTING)
    try:
        with pair(options, options) as (source, target):
            run = (source, target, arguments.base)
            for codec, size in product(arguments.codec, arguments.size):
                cell = backlog(codec, size, arguments.batches)
                if arguments.instructions:
                    counts = count(*run, cell, arguments.pairs, print_line)
                    comparisons.append(Comparison(codec, size, (), counts))
                else:
                    comparisons.append(Comparison(codec, size, measure(*run, cell, arguments.pairs, print_line)))
    except EnvironmentFault as fault:
        console.print(f"[red]{fault}[/]", soft_wrap=True, markup=False)
        return 1
    result = table_of_counts(comparisons) if arguments.instructions else table(comparisons)
    console.print(result.for_terminal())
    dear = too_dear(comparisons, arguments.limit)
    for each in dear:
        console.print(f"{each.codec} {each.size}: the median ratio {each.ratio:.3f} is above {arguments.limit:g}")
    return 1 if dear else 0
