"""`make bench`: how fast, how small and how late, each figure beside what it has to be compared with.

Figures are kept in bench/results and shown in docs/measurements.md. bench/README.md says how they are measured.
"""

import argparse
import sys
import time
from collections.abc import Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from bench import latency, memory, report, throughput
from bench.latency import Latency
from bench.memory import Peak
from bench.pair import LASTING, pair
from bench.throughput import Throughput
from mirrord.lab.settings import LabOptions
from mirrord.model.errors import EnvironmentFault

QUESTIONS = ("throughput", "memory", "latency")

console = Console(highlight=False)


class Figures(msgspec.Struct, kw_only=True):
    """All that was measured in one run; empty what was not asked."""

    share: float
    throughput: list[Throughput] = []
    memory: list[Peak] = []
    latency: list[Latency] = []


def measure(questions: Sequence[str], engines: Sequence[str], share: float) -> Figures:
    """Asks the questions, each on clusters of its own. Raises EnvironmentFault."""
    began = time.monotonic()

    def tell(line: str) -> None:
        console.print(f"[dim]{time.monotonic() - began:6.1f} s  {line}[/]", soft_wrap=True)

    figures = Figures(share=share)
    options = LabOptions(quick_start=False, heap_mb=512, properties=LASTING)
    if "throughput" in questions or "memory" in questions:
        with pair(options, options) as (source, target):
            if "throughput" in questions:
                figures.throughput = [
                    throughput.measure(source, target, cell, share, tell) for cell in throughput.CELLS
                ]
            else:
                throughput.fill(source.bootstrap, throughput.CELLS[0].scaled(share))
            if "memory" in questions:
                figures.memory = list(memory.measure(source, target, throughput.CELLS[0], share, tell))
    if "latency" in questions:
        for engine in engines:
            with pair(options, options) as (source, target):
                figures.latency.append(
                    latency.measure(source, target, "ray" if engine == "ray" else "process", share, tell)
                )
    return figures


def show(figures: Figures) -> None:
    """Tables for people."""
    if figures.throughput:
        table = Table(
            "batches", "stored MB per CPU-s", "relay", "of the relay", "batches per CPU-s", "MB/s", "state machine"
        )
        for cell in figures.throughput:
            table.add_row(
                f"{cell.name} ({cell.batch_bytes:,} bytes)",
                f"{cell.bytes_per_cpu_s / 1e6:,.0f}",
                f"{cell.relay_bytes_per_cpu_s / 1e6:,.0f}",
                f"{cell.of_relay:.0%}",
                f"{cell.batches_per_cpu_s:,.0f}",
                f"{cell.bytes_per_s / 1e6:,.0f}",
                f"{cell.step_share:.0%}",
            )
        console.print(table)
    if figures.memory:
        table = Table("in flight at most", "idle", "peak over idle", "of the limit")
        for peak in figures.memory:
            table.add_row(
                f"{peak.in_flight_bytes >> 20} MiB",
                f"{peak.idle_bytes / 2**20:.0f} MiB",
                f"{peak.over_idle_bytes / 2**20:.0f} MiB",
                f"{peak.over_idle_bytes / peak.in_flight_bytes:.2f}",
            )
        console.print(table)
    if figures.latency:
        table = Table("added latency", "records", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "source alone, p50 ms")
        for each in figures.latency:
            table.add_row(
                f"engine {each.engine}, {each.records_per_s:,} a second",
                f"{each.records:,}",
                *(f"{value:.1f}" for value in (each.p50_ms, each.p99_ms, each.p999_ms, each.max_ms)),
                f"{each.source_p50_ms:.1f}",
            )
        console.print(table)


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    parser.add_argument("--question", choices=QUESTIONS, action="append", help="default: all")
    parser.add_argument("--engine", choices=("ray", "process"), action="append", help="for latency; default: both")
    parser.add_argument("--share", type=float, default=1.0, help="of bytes and time, for a quick look (default: 1)")
    parser.add_argument("--try", dest="keep", action="store_false", help="do not keep the results")
    arguments = parser.parse_args()
    questions, engines = arguments.question or list(QUESTIONS), arguments.engine or ["process", "ray"]
    try:
        figures = measure(questions, engines, arguments.share)
    except EnvironmentFault as fault:
        console.print(f"[red]bench: {fault}[/]", soft_wrap=True)
        return 1
    show(figures)
    if arguments.keep:
        report.keep("bench", msgspec.to_builtins(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
