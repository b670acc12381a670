"""A backlog over a round trip of 100 ms: how fast is it copied if one of the clusters is far away?

The broker of the far cluster gives clients the address of a relay that forwards everything 50 ms later in each
direction (`bench.faults.delay`). First the source is far and the copier is near the target, as is usual; then the other
way round.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Literal

import msgspec

from bench.faults.delay import delayed
from bench.harness import copiers
from bench.harness.backlog import BASE, Backlog, fill
from bench.harness.clusters import Admin
from bench.harness.copiers import Copier
from bench.harness.pair import Side, pair
from bench.questions.catch_up import Copied, copy
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.lab.server_properties import LabOptions

ROUND_TRIP_MS = 100.0
STORED_BYTES = 2_000_000_000
BACKLOGS = tuple(
    BASE._replace(
        name=f"{partitions} partition{'s'[: partitions - 1]}", partitions=partitions, stored_bytes=STORED_BYTES
    )
    for partitions in (1, 8)
)

FarSide = Literal["source", "target"]
PrintLine = Callable[[str], None]


class Far(msgspec.Struct, frozen=True, kw_only=True):
    """One backlog over the long distance."""

    far: FarSide
    name: str
    round_trip_ms: float
    copied: list[Copied]


def measure(options: LabOptions, share: float, print_line: PrintLine) -> list[Far]:
    """Measure on two separate clusters for each far side. Raises EnvironmentFault."""
    return [found for far in ("source", "target") for found in _measure(options, far, share, print_line)]


def _measure(options: LabOptions, far: FarSide, share: float, print_line: PrintLine) -> list[Far]:
    port, relay = free_ports(2)
    relayed = replace(options, relayed=(port, relay))
    source_options, target_options = (relayed, options) if far == "source" else (options, relayed)
    with pair(source_options, target_options) as (source, target), delayed(relay, port, ROUND_TRIP_MS):
        near = [Side(each.bootstrap, each.folder) for each in (source, target)]
        seen = [
            Side(f"{LOOPBACK}:{relay}", each.folder) if side == far else each
            for side, each in zip(("source", "target"), near, strict=True)
        ]
        return [_backlog(near, seen, far, each.scaled(share), print_line) for each in BACKLOGS]


def _backlog(near: list[Side], seen: list[Side], far: FarSide, backlog: Backlog, print_line: PrintLine) -> Far:
    """Measure one backlog. `seen` is how a copier reaches the clusters."""
    filled = fill(near[0].bootstrap, backlog)
    stored_bytes = near[0].stored_bytes({backlog.topic: backlog.partitions})
    alias = f"mm2-{backlog.partitions}"
    ways: dict[str, AbstractContextManager[Copier]] = {
        "mirrord": copiers.mirrord(seen[0], seen[1], backlog.topic, f"far-{backlog.partitions}"),
        "MM2 tuned": copiers.mm2(
            seen[0], seen[1], backlog.topic, alias, copiers.tuned(alias, backlog.codec, backlog.partitions)
        ),
    }
    copied: list[Copied] = []
    for name, way in ways.items():
        found = copy(near[1], name, way, backlog, filled, stored_bytes)
        copied.append(found)
        print_line(f"far {far}, {backlog.name}: {name}, {found.stored_bytes / found.seconds / 1e6:,.0f} MB/s")
    Admin(near[0].bootstrap).delete([backlog.topic])
    return Far(far=far, name=backlog.name, round_trip_ms=ROUND_TRIP_MS, copied=copied)
