"""Facts that audits append to the ledger."""

from typing import Literal

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.jobs import ProvingLevel
from mirrord.model.names import LaneId


class RangeAudited(Fact, frozen=True, tag="range_audited"):
    """An audit compared a lane's ordinals [first, end) and found no unexplained difference.

    An audit holds no lease: the fact takes effect under the current lease, even after that was released, and decides
    nothing about copying. It takes effect if it continues from the end of the range proven so far, or proves that range
    more closely. Runs that are recorded again below its end revoke it.
    """

    lane: LaneId
    level: ProvingLevel
    """How closely the records were compared."""
    first: int
    """First proven ordinal."""
    end: int
    """Ordinal after the last proven one."""
    source_offset: int
    """Every source offset from the first record on and below this one is at the target, or is explained."""
    newest_ms: int
    """Highest record timestamp among them, or -1 if it is not known."""
    at_ms: int
    """Wall-clock time, for information only."""


RepairedKind = Literal["missing", "altered"]
"""Differences in which the target lacks a record as the source has it."""


class RangeRepaired(Fact, frozen=True, tag="range_repaired"):
    """The records of all source offsets [start, end), which a lane's copy lacks, are stored in a separate topic.

    The fact is appended after the records, by the process that wrote them or found them there. Like `RangeAudited`, it
    takes effect without a lease, provided that it says something new (`mirrord.ledger.proven_ranges`). The copy itself
    is unchanged.
    """

    lane: LaneId
    start: int
    """First source offset."""
    end: int
    """Source offset after the last one."""
    difference: RepairedKind
    """What the audit had found."""
    topic: str
    """The topic that holds the records."""
    at: int
    """Lowest possible offset of these records in that topic."""
    origin: Origin

    @property
    def records(self) -> int:
        """Number of records: one for each offset."""
        return self.end - self.start


AuditFact = RangeAudited | RangeRepaired
