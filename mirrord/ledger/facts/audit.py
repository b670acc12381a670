"""What audits tell the ledger."""

from typing import Literal

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.jobs import ProvingLevel
from mirrord.model.names import LaneId


class RangeAudited(Fact, frozen=True, tag="range_audited"):
    """An audit compared a lane's ordinals [first, end) and found no difference that is not explained.

    Whoever audits holds no lease: it binds under the present one, also when that was given back, and decides nothing
    about copying. Binds when it goes on where the lane is proven to, or proves that more closely; runs that are told
    anew below its end take it back.
    """

    lane: LaneId
    level: ProvingLevel
    first: int
    end: int
    source_offset: int
    """Every source offset from the first record's on and below this one is at the target, or explained."""
    newest_ms: int
    """The highest record time among them; -1: not known."""
    at_ms: int
    """Wall clock, for people only."""


RepairedKind = Literal["missing", "altered"]
"""Differences by which the target lacks a record as the source has it."""


class RangeRepaired(Fact, frozen=True, tag="range_repaired"):
    """The records of all source offsets [start, end), which a lane's copy lacks, lie in a topic of their own.

    Told behind the records, by whoever has put them there or seen them there; it binds as `RangeAudited` does, when it
    says something new (`mirrord.ledger.proven_ranges`). The copy itself is as it was.
    """

    lane: LaneId
    start: int
    end: int
    difference: RepairedKind
    topic: str
    at: int
    """None of them lies in front of that offset."""
    origin: Origin

    @property
    def records(self) -> int:
        """How many they are: one for each offset."""
        return self.end - self.start


AuditFact = RangeAudited | RangeRepaired
