"""How much memory does a replicator take while it catches up, over what it takes when idle?"""

from collections.abc import Callable, Sequence

import msgspec

from bench.throughput import Cell, copy_once
from mirrord.lab.cluster import Cluster

LIMITS_BYTES = (16 << 20, 64 << 20)
"""The values of `in_flight_bytes` that are tried; the last is the default."""


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """With one limit."""

    in_flight_bytes: int
    idle_bytes: int
    over_idle_bytes: int


def measure(source: Cluster, target: Cluster, cell: Cell, share: float, tell: Callable[[str], None]) -> Sequence[Peak]:
    """Copies a cell that is filled already, once with each limit. Raises EnvironmentFault."""
    peaks: list[Peak] = []
    for limit in LIMITS_BYTES:
        tell(f"memory: catching up with at most {limit >> 20} MiB in flight")
        copy = f"{cell.topic}.memory-{limit}"
        cost = copy_once(source, target, cell.scaled(share), copy, "--in-flight-bytes", str(limit))
        peaks.append(
            Peak(in_flight_bytes=limit, idle_bytes=cost.idle_bytes, over_idle_bytes=cost.peak_bytes - cost.idle_bytes)
        )
    return peaks
