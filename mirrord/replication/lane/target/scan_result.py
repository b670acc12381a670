"""The result of reading a part of the target log."""

from bisect import bisect_right
from typing import Literal, NamedTuple

import msgspec

from mirrord.ledger.facts.core import LaneFact
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run

NOWHERE = 1 << 62


class Log(NamedTuple):
    """The part of the target log that was read."""

    start: int
    end: int
    others: tuple[Interval, ...]
    """Target offsets [start, end) of batches from other writers, in ascending order; adjacent ranges are merged."""
    compacts: bool | None
    """Whether the topic is compacted; None if that is not known."""
    is_bare: bool = False
    """Whether the log has offsets without a batch. A log cleaner removed records there."""

    @property
    def is_policy_unknown(self) -> bool:
        """Whether the log may or may not be compacted. This is the case if the topic's cleanup policy is not known, and
        the log has no offsets without a batch."""
        return self.compacts is None and not self.is_bare

    def bare(self, start: int, end: int) -> tuple[int, int]:
        """Look for target offsets in [start, end) that are not in another writer's batch. Return how many there are,
        and the first of them."""
        count, first = 0, NOWHERE
        near = bisect_right(self.others, start, key=lambda each: each[1])
        while start < end:
            begun, behind = self.others[near] if near < len(self.others) else (end, end)
            if begun > start:
                count, first = count + min(begun, end) - start, min(first, start)
            start, near = behind, near + 1
        return count, first


class Missing(msgspec.Struct, frozen=True, array_like=True):
    """Ordinals [first, last] that are missing from the target log. Their records may have been in the log earlier."""

    kind: Literal["between", "last", "lost", "below"]
    """`between`: these ordinals are between two of the lane's own batches. `last`: they are after all of the lane's own
    batches, so they may never have been appended. `lost`: they were acknowledged. `below`: they are in the part of the
    log that is unchanged, and most of them are not missing (see `missing_records.cleaned_below`)."""
    first: int
    last: int
    above: int
    """A record with the same key at or above this target offset is newer than the missing record. For some of the
    ordinals, `recorded_at` may contain a higher offset, which then applies instead."""
    has_room: bool
    """Whether the log has at least one empty offset for each missing ordinal, at the position where their records
    belong. If so, a cleaner may have removed all of these records."""
    leader_epoch: int = -1
    """For `lost`: the target's leader epoch in which these records were last in the log. A record from a later epoch is
    newer."""
    recorded_at: tuple[Run, ...] = ()
    """For `lost` and `below`: the runs of these ordinals in the ledger that extend beyond the target offset `above`.
    Other records before the target offset of a lost record are older than it, unless they are from a later epoch."""

    def newer_from(self, ordinal: int) -> int:
        """Return a target offset for the missing record with this ordinal. A record with the same key at or above this
        offset is newer than the missing record.

        A run may extend over records of other clients. They are at the offsets of ordinals before this one that only a
        lookup took for appended.
        """
        runs = bisect_right(self.recorded_at, ordinal, key=lambda run: run.ordinal)
        run = self.recorded_at[runs - 1] if runs else Run(ordinal, self.above)
        return max(self.above, run.offset + ordinal - run.ordinal)


class Reading(msgspec.Struct, frozen=True):
    """The result of reading a part of the target log: the lane's own batches there, compared with the expected ones."""

    next_ordinal: int
    """One more than the last ordinal in the log."""
    holes: tuple[tuple[int, int], ...]
    """Ordinals (first, last) that are missing from the log, but neither because of a hole in the ledger nor because a
    log cleaner removed their records."""
    facts: tuple[LaneFact, ...]
    """Facts about batches that are at offsets other than those in the ledger."""
    doubled: tuple[int, int, int] | None
    """Records that are in the log a second time, as (first ordinal, ordinal after the last one, target offset)."""
    begins: int = NOWHERE
    """The lowest target offset of a batch that has not been compared with the source and whose acknowledgement was not
    received by this attempt to host the lane."""
    void: int = NOWHERE
    """The first ordinal of a hole that, unexpectedly, is not empty: the log contains batches with ordinals in the hole,
    although the records of the hole were to be copied under later ordinals."""
    missing: tuple[Missing, ...] = ()
    """Ordinals that are missing from a compacted log. It is not yet known whether they are holes."""
    behind: int = 0
    """The target offset after the last of the lane's own batches."""
