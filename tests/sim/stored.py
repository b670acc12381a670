"""Batches in the log of a fake target, and which of those that retention has deleted still count."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

SEQUENCES = 1 << 31
BatchId = tuple[int, int]
"""Base offset and leader epoch of a batch."""
Copy = tuple[BatchId, int]
"""Batch and number of a record."""


def ordinal_of(sequence: int, lowest: int) -> int:
    """The ordinal that has this sequence number, if `lowest` is the lowest ordinal of the story."""
    return lowest + (sequence - lowest) % SEQUENCES


@dataclass(frozen=True)
class Stored:
    """A batch in a log."""

    base: int
    count: int
    producer: int
    epoch: int
    sequence: int
    newest_ms: int
    numbers: tuple[int, ...]
    """0 if the cleaner has removed a record."""
    leader_epoch: int
    turns: int = 0
    """How often the producer's sequence numbers had started again at 0. No broker knows it."""

    @cached_property
    def ordinal(self) -> int:
        """The ordinal of the first record of a lane's batch."""
        return self.sequence + self.turns * SEQUENCES

    @cached_property
    def end(self) -> int:
        return self.base + self.count

    @cached_property
    def id(self) -> BatchId:
        return self.base, self.leader_epoch

    @property
    def written(self) -> tuple[int, ...]:
        """The numbers of its records, whether or not readers of committed records see them."""
        return self.numbers

    def copies(self, numbers: Collection[int] | None = None) -> set[Copy]:
        """Its records, or those of them with these numbers."""
        return {(self.id, each) for each in self.numbers if each and (numbers is None or each in numbers)}

    def without(self, copies: Collection[Copy]) -> "Stored":
        """The batch without some of its records."""
        return replace(self, numbers=tuple(0 if (self.id, each) in copies else each for each in self.numbers))


def adopt(mine: list[Stored], theirs: Collection[Stored], start: int) -> None:
    """Give a follower what the leader has, or had, below the follower's log start offset. The follower may have deleted
    records there that the leader never had: once the leader has deleted its own records there, it no longer knows that
    the two logs parted below."""
    there = {stored.id for stored in theirs}
    if not all(stored.id in there for stored in mine if stored.end <= start):
        mine[:] = [each for each in theirs if each.end <= start] + [each for each in mine if each.end > start]


@dataclass
class UnknownCopies:
    """Deleted copies of records that may as well never have been in the target, because nothing shows a holder of the
    lane that they were."""

    grant: int = 0
    """The newest grant of a holder that has read the log."""
    now: set[Copy] = field(default_factory=set)
    """Those that this holder cannot know about."""
    always: set[Copy] = field(default_factory=set)
    """Those that a rebuilt map leaves out: nothing shows which records they were."""
    since: dict[BatchId, set[Copy]] = field(default_factory=dict)
    """The first batch that such a holder appended → the copies that it could not know about."""

    def resumed(self, grant: int, unknown: set[Copy]) -> None:
        """A holder with this grant has read the log."""
        if grant >= self.grant:
            self.grant, self.now = grant, unknown

    def appended(self, batch: Stored, unknown: Iterable[Copy]) -> None:
        """A holder has appended a batch without knowing about these copies."""
        self.since.setdefault(batch.id, set()).update(unknown)

    def without(self, deleted: list[Stored], log: Iterable[Stored]) -> list[Stored]:
        """The deleted batches, without the copies that do not count in this log."""
        if not self.now and not self.since and not self.always:
            return deleted
        there = {stored.id for stored in log}
        unknown = self.now.union(self.always, *(copies for begun, copies in self.since.items() if begun in there))
        return [stored.without(unknown) for stored in deleted]
