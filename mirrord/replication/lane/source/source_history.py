"""The part of a lane's state that concerns the history of the source log."""

from dataclasses import dataclass, field

from mirrord.replication.lane.signals import Chunk
from mirrord.replication.lane.source.epoch_search import EpochSearch


@dataclass(slots=True)
class SourceHistory:
    """What a lane knows about the history of the source log: its leader epochs, and whether it still has the copied
    records."""

    recorded_epoch: int = -2
    """The source epoch of the next ordinal, according to the ledger and the saved position (see
    `source.source_epochs`). A negative number means that no epoch is recorded."""
    recorded_epoch_since: int = 0
    """The ordinal from which `recorded_epoch` applies."""
    expected_epochs: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, epoch) that the ledger has for the next ordinals, while it is not known whether the next records
    have these epochs. The first pair applies to the next record. While there are such pairs, `recorded_epoch` is
    negative."""
    epochs_recorded: bool = False
    """Whether the epoch of the saved position is recorded and the ledger contains every later change of epoch."""
    new_epochs: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Pairs (ordinal, epoch) that must be recorded in the ledger with the next runs."""
    epochs_again: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, epoch) of records that are copied again, as recorded in the ledger in this round."""
    saved_epoch: tuple[int, int] = (0, -1)
    """The ordinal up to which the acknowledgements in the saved position with which the lane started still apply, and
    the source epoch of the last record before that position. The epoch is -1 if it is not known."""
    acknowledged_epochs: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, source epoch), ascending, for acknowledged records that the target log has lost."""
    found_epoch: tuple[int, int] = (-1, -1)
    """A source offset, and the leader epoch of the batch before it, from the last comparison with the source."""
    found_equal: bool = False
    """Whether the last comparison with the source found all records equal."""
    source_confirmed: bool = False
    """Whether the source has confirmed that it still has the copied records. If a fetch from the lane's position does
    not show this, the source is asked."""
    asked_before_seek: tuple[int, int] | None = None
    """Set while the source is asked, before a seek is carried out, whether it still has the copied records: the source
    offset after the last of them, and the epoch of that record."""
    epoch_asked_in: int = -1
    """The round in which the lane has asked for the source's leader epoch before a seek, because no other answer
    contained it."""
    epoch_search: EpochSearch | None = None
    """Set while the lane asks for the leader epochs of the records that a seek is to skip, and until the seek is
    carried out."""
    skipped_epochs: tuple[tuple[int, int, int], ...] = ()
    """Triples (start, end, epoch) of the source offsets that a seek has skipped in this round."""
    asked_before_reading: tuple[int, int] | None = None
    """The same while the source is asked before the first fetch of a round, because the fetch will carry no epoch."""
    divergence_question: int = -1
    """Number of the open request that asks whether the source still has the copied records, or of the pause before this
    request is repeated."""
    unconfirmed_chunk: Chunk | None = None
    """A chunk that was fetched while the epoch before the lane's position was unknown. The chunk is kept while the
    source is asked whether it still has the copied records."""
    left_position: tuple[int, int] | None = None
    """The position that the lane had before it skipped ahead in this round, and the epoch of the last batch before that
    position. After a seek on an operator command, the position after the skipped records, and the epoch of the last one
    of them. If this epoch is not known, the highest one that it can be (`SeekDone.epoch`)."""
    short_end: int = -1
    """Where the source log ended when this was below the lane's position, although the lane did not know the epoch of
    the record before its position. -1 if the lane does not have to go back because of this."""
    suspected_position: int = -1
    """The position at which the source had a record other than the one that was to be copied again."""
    vanished_position: int = -1
    """The position at which the source lacked a record that was to be copied again, and at which the lane has therefore
    already requested a new lookup of all such records."""
    loss_tag: int = 0
    """The tag of the last append that contains a `truncated` verdict."""
