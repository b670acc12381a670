"""How much memory does a replicator use while it catches up, compared with its idle memory?"""

from collections.abc import Callable, Sequence

import msgspec

from bench.questions.throughput import CELLS, copy_once, fill
from mirrord.lab.cluster import Cluster

LIMITS_BYTES = (16 << 20, 64 << 20)
"""The values of `in_flight_bytes` that are tried; the last is the default."""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of batches with one limit."""

    name: str
    in_flight_bytes: int
    copied_bytes: int
    idle_bytes: int
    """Largest resident memory before the first lane."""
    peak_bytes: int
    """Largest resident memory overall."""


def measure(source: Cluster, target: Cluster, share: float, print_line: Callable[[str], None]) -> Sequence[Peak]:
    """Copy topics from their start with each limit, in a separate process each time. Raises EnvironmentFault."""
    peaks: list[Peak] = []
    # Half of the large batches. Of the small ones all, otherwise they would not fill the larger limit.
    for cell in (
        each.scaled(share if each.records_per_batch == 1 else share / 2) for each in CELLS if each.codec == "lz4"
    ):
        print_line(f"memory: writing {cell.batches:,} {cell.name}")
        fill(source.bootstrap, cell)
        for limit in LIMITS_BYTES:
            print_line(f"memory: catching up on {cell.name} with at most {limit >> 20} MiB in flight")
            cost = copy_once(source, target, cell, f"{cell.topic}.memory-{limit}", "--in-flight-bytes", str(limit))
            peaks.append(
                Peak(
                    name=cell.name,
                    in_flight_bytes=limit,
                    copied_bytes=cost.copied_bytes,
                    idle_bytes=cost.idle_bytes,
                    peak_bytes=cost.peak_bytes,
                )
            )
    return peaks
