"""What a lane knows about comparisons of the target with the source."""

from dataclasses import dataclass

from mirrord.ledger.facts.core import TakeoverChecked
from mirrord.model.intervals import Interval, joined
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import AskCheck
from mirrord.replication.lane.target.resume_position import ResumePosition


@dataclass(slots=True)
class ComparisonState:
    """The state of a lane's comparisons of the target with the source: the open ones, the planned ones, and the results
    of completed ones."""

    compared: int = -1
    """Ordinals below this one need no further comparison in this round, even if the ledger does not show this yet."""
    equal: tuple[Interval, ...] = ()
    """Ordinals [start, end) of which a comparison has confirmed that the offset map is right. They are valid only in
    the target log of the leader epoch `equal_in`: an election may bring back a different log."""
    equal_in: int = -1
    differs: TakeoverChecked | None = None
    """The comparison that found a difference between target and source. None after the offset map has been rebuilt."""
    rebuilt_until: int = 0
    """The target offset of the resume position that becomes valid when the rebuilt offset map takes effect."""
    rebuild_in_doubt: bool = False
    """Whether the outcome of the append of the rebuilt offset map to the ledger is unknown."""
    first_ack_pending: bool = False
    first_ack_check: AskCheck | None = None
    """The open comparison of acknowledged records: the first acknowledged batch, or records whose ordinals were
    reassigned. A new round repeats it."""
    first_ack_pause: int = -1
    """Number of the pause before this comparison is retried, or -1."""
    assigned_from: int = NEVER
    """The lowest ordinal that this attempt to host the lane has assigned to a record although a different record was
    sent under it, or may have been sent. All later runs in the ledger are from this attempt as well."""
    due_at: int = NEVER
    """The lowest reassigned ordinal whose record has not been compared since the reassignment (see
    `target.reassigned_ordinals`). The comparison begins when this ordinal has been acknowledged. `NEVER` if there is
    none."""
    due_below: int = 0
    """The end of the reassigned ordinals: the ordinal after the one at which the last run with reassigned ordinals
    begins, or a higher one if the lane had already sent records under later ordinals."""
    is_doubt_limited: bool = False
    """Whether the end of the ordinals in doubt has been appended to the ledger since the last reassignment. The append
    is not repeated if it does not take effect."""
    later_pending: bool = False
    """Whether records written since the takeover must be compared again once the former holder can no longer write."""
    later_from: ResumePosition | None = None
    """Where the later comparison (`later_pending`) starts. Until the comparison is complete, no higher resume position
    is saved, because acknowledgements above this one may be for another holder's batches."""
    begins_at: int = NEVER
    """The lowest target offset at which a scan has found a batch that had to be compared: a scan in this round, or an
    earlier one whose facts have not taken effect yet."""
    later_begins_at: int = NEVER
    """The lowest target offset of a record whose ordinal is not below that of `later_from`. It may be below the offset
    in `later_from` if the log lost its last records and they were appended again."""
    later_end_question: int = -1
    """Number of the open request for the end of the target log that precedes the later comparison. The answer is kept
    in `later_end`."""
    later_end: int = -1
    later_question: int = -1
    """Number of the open request for the later comparison."""

    def follows(self, last: int) -> bool:
        """Return whether records with ordinals above `last` still have to be compared."""
        check = self.first_ack_check
        return self.later_pending or last < self.due_at < NEVER or (check is not None and check.last > last)

    def note_equal(self, first: int, end: int, leader_epoch: int) -> None:
        """Note that a comparison has confirmed the offset map of the ordinals [first, end) in the log of the leader
        with this epoch."""
        self.equal = tuple(joined((*self.confirmed(leader_epoch), (first, end))))
        self.equal_in = leader_epoch

    def confirmed(self, leader_epoch: int) -> tuple[Interval, ...]:
        """Return the ordinals of which comparisons have confirmed the offset map, in the log of the leader with this
        epoch."""
        return self.equal if leader_epoch == self.equal_in else ()
