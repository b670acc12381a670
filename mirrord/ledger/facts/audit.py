"""Facts that audits append to the ledger."""

from typing import Literal

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.jobs import ProvingLevel
from mirrord.model.names import LaneId


class RangeAudited(Fact, frozen=True, tag="range_audited"):
    """An audit has compared a lane's ordinals [first, end) and has found no unexplained difference.

    An audit holds no lease. The fact takes effect if its entry has the epoch of the current lease, even if this lease
    has been released. It must also extend the proven range of the lane without a gap, or prove the same range at the
    level `records` instead of `digest`. If a later fact records new runs for ordinals below the end of the proven
    range, the proven range is dropped. A `RangeAudited` does not affect copying.
    """

    lane: LaneId
    level: ProvingLevel
    """How closely the records were compared."""
    first: int
    """First ordinal that was proven."""
    end: int
    """Ordinal after the last one that was proven."""
    source_offset: int
    """Source offset up to which the copy is proven. Every source offset from that of the first copied record up to this
    one (exclusive) was found in the target topic or is explained."""
    newest_ms: int
    """Highest timestamp of the records below `source_offset`, or -1 if it is unknown."""
    at_ms: int
    """Wall-clock time, for information only."""


RepairedKind = Literal["missing", "altered"]
"""The kinds of differences in which the target lacks a record of the source: the record is missing, or its copy is
altered."""


class RangeRepaired(Fact, frozen=True, tag="range_repaired"):
    """`mirrord repair` has stored the records at the source offsets [start, end) in a separate topic. In the target
    topic, these records are missing or altered.

    The process that wrote the records to the separate topic, or found them there, appends the fact after the records
    have been stored. This process holds no lease. As with `RangeAudited`, the fact takes effect if its entry has the
    epoch of the current lease, unless the state already contains the same repair. The target topic itself is unchanged.
    """

    lane: LaneId
    start: int
    """First source offset of the range."""
    end: int
    """End of the range of source offsets (exclusive)."""
    difference: RepairedKind
    """The difference that an audit had found."""
    topic: str
    """Name of the topic in which the records are stored."""
    at: int
    """Offset in the topic `topic`; all repaired records are at or above this offset."""
    origin: Origin

    @property
    def records(self) -> int:
        """Number of repaired records. Every source offset in the range [start, end) is that of a repaired record."""
        return self.end - self.start


AuditFact = RangeAudited | RangeRepaired
