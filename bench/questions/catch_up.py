"""A backlog of some GB: how fast, and for how much CPU, is it copied by mirrord, by MirrorMaker 2, and by a bare relay?

Each copier is started on an existing topic. It is measured from the moment that a tenth of the records are in the
target until all are, or a minute has passed: starting is another question, and Java has compiled what it needs by then.
The relay moves bytes between two sockets right before mirrord copies, so whatever slows the machine down affects both.
"""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

import msgspec

from bench.harness import copiers
from bench.harness.backlog import BACKLOGS, Backlog, Filled, fill
from bench.harness.clusters import Admin
from bench.harness.copiers import Copier, Used
from bench.harness.mirror_maker import Reached
from bench.harness.pair import Side
from bench.questions.throughput import relay
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault

RELAY_BYTES = 1_500_000_000
SHORT_BACKLOGS = 2
"""Number of backlogs in a short run."""
WARM_SHARE = 0.1
"""Share of the records before the measurement begins."""
COUNTED_S = 60.0
"""A copier that has not copied everything by then is measured up to that time."""
STILL_S = 120.0
"""Time without a record after which a copier is given up."""
_LOOK_S = 0.05

PrintLine = Callable[[str], None]


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a copier during the measurement; bytes are the stored bytes on the source."""

    copier: str
    stored_bytes: float
    records: int
    cpu_s: float
    beside_cpu_s: float
    """CPU-seconds of other processes that it started."""
    seconds: float
    peak_bytes: int
    first_s: float
    """Time from its start to the first sample that shows a record."""


class CatchUp(msgspec.Struct, frozen=True, kw_only=True):
    """One backlog."""

    name: str
    codec: str
    partitions: int
    stored_bytes: int
    records: int
    records_per_batch: int
    transactional: bool
    relay_bytes_per_cpu_s: float
    copied: list[Copied]


class _Arrived(NamedTuple):
    """The records that have arrived at a time."""

    at_s: float
    records: int
    used: Used


def measure(source: Cluster, target: Cluster, share: float, print_line: PrintLine) -> list[CatchUp]:
    """Measure all backlogs, one after the other, or those of a short run. Raises EnvironmentFault."""
    backlogs = BACKLOGS[:SHORT_BACKLOGS] if share < copiers.SHORT_SHARE else BACKLOGS
    return [_measure(source, target, each.scaled(share), number, print_line) for number, each in enumerate(backlogs)]


def _measure(source: Cluster, target: Cluster, backlog: Backlog, number: int, print_line: PrintLine) -> CatchUp:
    print_line(f"{backlog.name}: writing {backlog.stored_bytes / 1e6:,.0f} MB")
    filled = fill(source.bootstrap, backlog)
    stored_bytes = Side(source.bootstrap, source.folder).stored_bytes({backlog.topic: backlog.partitions})
    relayed = relay(RELAY_BYTES)
    copied: list[Copied] = []
    alias = f"mm2-{number}"
    topic = backlog.topic
    ways: dict[str, AbstractContextManager[Copier]] = {
        "mirrord": copiers.mirrord(source, target, topic, f"catch-up-{number}"),
        "MM2": copiers.mm2(source, target, topic, alias),
        "MM2 tuned": copiers.mm2(
            source, target, topic, f"{alias}-tuned", copiers.tuned(f"{alias}-tuned", backlog.codec, backlog.partitions)
        ),
    }
    for name, way in ways.items():
        found = copy(target, name, way, backlog, filled, stored_bytes)
        copied.append(found)
        print_line(
            f"{backlog.name}: {name}, {found.stored_bytes / found.seconds / 1e6:,.0f} MB/s, "
            f"{found.stored_bytes / found.cpu_s / 1e6:,.0f} MB per CPU-second"
        )
    Admin(source.bootstrap).delete([topic])
    return CatchUp(
        name=backlog.name,
        codec=backlog.codec,
        partitions=backlog.partitions,
        stored_bytes=stored_bytes,
        records=filled.records,
        records_per_batch=filled.records_per_batch,
        transactional=bool(backlog.transaction_records),
        relay_bytes_per_cpu_s=relayed.relayed_bytes / relayed.cpu_s,
        copied=copied,
    )


def copy(
    target: Reached,
    name: str,
    way: AbstractContextManager[Copier],
    backlog: Backlog,
    filled: Filled,
    stored_bytes: int,
) -> Copied:
    """Start it, measure, end it, and delete the target topic. Raises EnvironmentFault."""
    admin = Admin(target.bootstrap)
    began = time.monotonic()
    with way as copier:
        look = _Looks(admin, copier, backlog.partitions)
        first = look.until(1)
        warm = look.until(max(1, int(filled.records * WARM_SHARE)))
        whole = look.until(filled.records, COUNTED_S)
    admin.delete([copier.copy])
    records = whole.records - warm.records
    if records <= 0 or whole.used.cpu_s <= warm.used.cpu_s:
        raise EnvironmentFault(
            f"{name} copied {backlog.name} between two samples: a larger --share measures more of it"
        )
    return Copied(
        copier=name,
        stored_bytes=stored_bytes * records / filled.records,
        records=records,
        cpu_s=whole.used.cpu_s - warm.used.cpu_s,
        beside_cpu_s=whole.used.beside_cpu_s - warm.used.beside_cpu_s,
        seconds=whole.at_s - warm.at_s,
        peak_bytes=whole.used.peak_bytes,
        first_s=first.at_s - began,
    )


class _Looks:
    """Samples of the ends of the target topic."""

    def __init__(self, admin: Admin, copier: Copier, partitions: int) -> None:
        self._admin = admin
        self._copier = copier
        self._partitions = partitions

    def until(self, records: int, patience_s: float = math.inf) -> _Arrived:
        """Return the first sample that shows this many, or the one when time is up. Raises EnvironmentFault if nothing
        arrives."""
        seen, moved = -1, time.monotonic()
        end = moved + patience_s
        while True:
            ends = self._admin.ends({self._copier.copy: self._partitions})
            now, arrived = time.monotonic(), sum(ends.values())
            if arrived >= records or now > end:
                return _Arrived(now, arrived, self._copier.used())
            if arrived > seen:
                seen, moved = arrived, now
            elif now - moved > STILL_S:
                _ = self._copier.used()
                raise EnvironmentFault(f"{self._copier.copy} has {arrived:,} of {records:,} records, and no more come")
            time.sleep(_LOOK_S)
