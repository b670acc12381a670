"""Facts that audits append to the ledger."""

from typing import Literal

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.jobs import ProvingLevel
from mirrord.model.names import LaneId


class RangeAudited(Fact, frozen=True, tag="range_audited"):
    """An audit has compared a lane's ordinals [first, end) and has found no unexplained difference.

    An audit holds no lease: the fact takes effect under the current lease, even after this lease was released, and
    decides nothing about copying. It takes effect if it extends the proven range of the lane without a gap, or proves
    the same range more closely. If runs below the end of the proven range are recorded again, the proof is dropped.
    """

    lane: LaneId
    level: ProvingLevel
    """How closely the records were compared."""
    first: int
    """First ordinal that was proven."""
    end: int
    """Ordinal after the last one that was proven."""
    source_offset: int
    """Source offset up to which the copy is proven: every source offset below it, from the first copied record on, is
    at the target or is explained.
    """
    newest_ms: int
    """Highest timestamp of the records below `source_offset`, or -1 if it is not known."""
    at_ms: int
    """Wall-clock time, for information only."""


RepairedKind = Literal["missing", "altered"]
"""The differences in which the target does not have the source's record."""


class RangeRepaired(Fact, frozen=True, tag="range_repaired"):
    """`mirrord repair` has stored the records of the source offsets [start, end) in a separate topic, because they are
    missing or altered in the lane's copy.

    The fact is appended after the records, by the process that wrote them or found them there. Like `RangeAudited`, it
    takes effect although its writer holds no lease. It must add repaired offsets to the state
    (`mirrord.ledger.proven_ranges`). The copy itself is unchanged.
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
    """Offset in that topic from which on the records are found."""
    origin: Origin

    @property
    def records(self) -> int:
        """Number of repaired records: one for each source offset."""
        return self.end - self.start


AuditFact = RangeAudited | RangeRepaired
