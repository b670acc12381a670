"""Facts about seeks, which move a lane forward in the source: the operator commands, and the offsets that lanes have
skipped because of these commands. `mirrord.ledger.seeks` applies these facts to the state of a lane."""

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId


class LaneSought(Fact, frozen=True, tag="lane_sought"):
    """An operator requested that the lane continue at the source offset `end` and skip all records below it that have
    not been copied yet.

    The fact takes effect unless an earlier seek of the lane reaches at least as far. It carries no grant, because it is
    addressed to whichever replicator hosts the lane.
    """

    lane: LaneId
    start: int
    """Position of the lane when the seek was requested. Records below it have been copied."""
    end: int
    """Source offset at which the lane is to continue."""
    log_start: int
    """Log start offset of the source partition when the seek was requested. The source has deleted all records below
    this offset."""
    origin: Origin
    lost_from: int = -1
    """If the lane was halted because the source had lost copied records (`truncated`): the lowest offset that the
    source had lost. The source has other records there now, and `start` is this offset. With this command, the operator
    accepts the loss and skips these records as well. -1 if the lane was not halted for this reason."""


class SeekDone(Fact, frozen=True, tag="seek_done"):
    """The lane has carried out one or more seeks and continues at the source offset `end`. It has skipped the source
    offsets [start, end). If `start` and `end` are equal, it has skipped nothing."""

    lane: LaneId
    grant: int
    start: int
    """First source offset that was skipped."""
    end: int
    """Source offset at which the lane continues."""
    epoch: int = -1
    """The source's leader epoch at that time, or -1 if it was not known. The skipped records have this epoch or an
    earlier one."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Pairs (source offset, leader epoch of the source) in ascending order. The skipped records from this offset onward
    have this epoch, up to the offset of the next pair. If the source had too many epochs in the range, the records of
    the first pair may also have earlier epochs. Empty if the epochs were not known.
    """
