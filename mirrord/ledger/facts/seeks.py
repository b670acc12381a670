"""Facts about seeks forward in the source: commands, and what lanes skipped for them (`mirrord.ledger.seeks`)."""

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId


class LaneSought(Fact, frozen=True, tag="lane_sought"):
    """An operator requested that the lane continue at source offset `end` and skip what it has not copied by then.

    The fact takes effect unless a seek that reaches at least as far is known. It is a command to the current holder of
    the lane, so it carries no grant.
    """

    lane: LaneId
    start: int
    """Position of the lane when the seek was decided. Records before it are copied."""
    end: int
    """The source offset at which the lane is to continue."""
    log_start: int
    """Log start of the source when the seek was decided. Records before it can no longer be copied."""
    origin: Origin


class SeekDone(Fact, frozen=True, tag="seek_done"):
    """The lane continues at `end` after such commands. It skipped [start, end), which is nothing if both are equal."""

    lane: LaneId
    grant: int
    start: int
    """First source offset that was skipped."""
    end: int
    """The source offset at which the lane continues."""
