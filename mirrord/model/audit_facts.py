"""What audits tell the ledger."""

from typing import Literal

from mirrord.model.fact import Fact
from mirrord.model.names import LaneId

ProvingLevel = Literal["digest", "records"]
"""How closely was looked; an audit of the ledger alone proves nothing of the records."""


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
