"""The result of a walk over a stretch of the target log."""

from bisect import bisect_right
from typing import Literal, NamedTuple

import msgspec

from mirrord.ledger.facts.core import LaneFact
from mirrord.model.intervals import Interval

NOWHERE = 1 << 62


class Log(NamedTuple):
    """The stretch of the target log that was read."""

    start: int
    end: int
    others: tuple[Interval, ...]
    """Target offsets [start, end) of batches from other writers, ascending and apart from each other."""
    compacts: bool | None
    """Whether the topic is compacted; None if that is not known."""

    def bare(self, start: int, end: int) -> tuple[int, int]:
        """Return how many of the target offsets [start, end) are in no batch of others, and the first of them."""
        count, first = 0, NOWHERE
        near = bisect_right(self.others, start, key=lambda each: each[1])
        while start < end:
            begun, behind = self.others[near] if near < len(self.others) else (end, end)
            if begun > start:
                count, first = count + min(begun, end) - start, min(first, start)
            start, near = behind, near + 1
        return count, first


class Missing(msgspec.Struct, frozen=True, array_like=True):
    """Ordinals first..last that the target log may have held and does not hold."""

    kind: Literal["between", "last", "lost"]
    """`between`: some of the lane's own batches are on both sides. `last`: after all of them, so these ordinals may
    never have been appended. `lost`: acknowledged."""
    first: int
    last: int
    above: int
    """A record of the same key from this target offset on is newer."""
    has_room: bool
    """The log has at least as many empty offsets there, so a cleaner may have removed all of these records."""
    leader_epoch: int = -1
    """For `lost`: the target's leader epoch in which they were last in the log; a record of a later one is newer."""


class Reading(msgspec.Struct, frozen=True):
    """The outcome of one walk over the lane's own batches."""

    next_ordinal: int
    """One more than the last ordinal in the log."""
    holes: tuple[tuple[int, int], ...]
    """Ordinals (first, last) that the log leaps over, that the ledger does not know of, and that no cleaner removed."""
    facts: tuple[LaneFact, ...]
    """Facts about batches that are at other offsets than in the ledger."""
    doubled: tuple[int, int, int] | None
    """(first ordinal, ordinal after the last, target offset) of records that are in the log a second time."""
    begins: int = NOWHERE
    """The lowest target offset of ordinals that are not trusted."""
    void: int = NOWHERE
    """The first ordinal of a hole that contains batches, though their records are to follow under later ordinals."""
    missing: tuple[Missing, ...] = ()
    """Leaps in a compacted log: whether they are holes is not known yet."""
    behind: int = 0
    """The target offset after the last of the lane's own batches."""
