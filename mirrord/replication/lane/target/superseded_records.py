"""Which of the records that a compacted log lacks have a newer record of their key in it.

The log cleaner removes a record only if the log holds a later one of the same key (KIP-58, kafka.log.LogCleaner). So
ordinals that are missing from a compacted copy do not prove that anything was lost. And a lost record must not be
appended after a newer record of its key, no matter who wrote that. Both questions have one answer: a missing record
whose key occurs later in the log is not appended again; one whose key does not was not removed by the cleaner.

Two cases remain open. A tombstone is removed `delete.retention.ms` after it was appended, although nothing follows it:
it may be appended again, which changes no key. And records after all of the lane's own batches may never have been
appended: for these the newer record is the one with the later time.
"""

from collections.abc import Hashable, Sequence

import msgspec

from mirrord.kafka.protocol.sequence import nearest
from mirrord.model.intervals import ranges
from mirrord.replication.lane.target.scan_result import Missing

MOST_MISSING = 500_000
"""At most this many records are looked up by their keys, about 200 bytes each."""
MOST_LAST = 100_000
"""The same limit for records that may never have been appended."""


class AskSuperseded(msgspec.Struct, frozen=True):
    """Look up the missing records in the source, and their keys in the target log up to its current end.

    That end may differ from `end`, the one that the lane knows: a record that superseded a missing one may have been
    removed since, because of a later one.
    """

    question: int
    missing: tuple[Missing, ...]
    end: int
    keeps_all: bool = False
    """The lost records were not cleaned, and the topic is no longer compacted: all of them are copied again."""


class SupersededAnswer(msgspec.Struct, frozen=True):
    """The records that are to be copied again."""

    question: int
    error: int
    again: tuple[tuple[int, int], ...] = ()
    """Ordinals (first, last) that are missing and not superseded, ascending; none of the kind `last`."""
    until: int = -1
    """Ordinals of the kind `last` below this one were appended and removed by the cleaner."""
    trouble: str = ""
    """Why it cannot be decided, one line for people."""


class AskShared(msgspec.Struct, frozen=True):
    """Ask the target's leader where the given leader epoch ends in its log (OffsetForLeaderEpoch, KIP-320)."""

    question: int
    epoch: int


class SharedAnswer(msgspec.Struct, frozen=True):
    """The newest epoch of the log up to the one asked for, and its end."""

    question: int
    error: int
    epoch: int = -1
    end: int = -1


class SupersededJudge:
    """One look-up: first the missing records from the source, then the records of the target log."""

    def __init__(self, asked: AskSuperseded) -> None:
        self._asked = asked
        self._wanted: dict[Hashable, list[tuple[Missing, int, int]]] = {}
        self._superseded: set[int] = set()
        self._gone: set[int] = set()

    def expect(self, missing: Missing, ordinal: int, key: Hashable, time_ms: int) -> None:
        """Add a missing record that the source still has."""
        if key is None:
            return  # records without a key supersede nothing, whatever left gaps in the log
        self._wanted.setdefault(key, []).append((missing, ordinal, time_ms))

    def gone(self, missing: Missing, ordinal: int, *, by_retention: bool) -> None:
        """Note that the source no longer has a missing record. If its cleaner removed that record, a newer one
        follows."""
        if not by_retention or missing.has_room:
            self._gone.add(ordinal)

    def see(self, offset: int, key: Hashable, time_ms: int, leader_epoch: int, sequence: int = -1) -> None:
        """Process a committed record of the target log. `sequence`: that of the lane's own record; -1 for another
        writer's.

        The lane's own records of lower ordinals are older than a missing one, wherever they are in the log: the lane
        may have begun to copy lost records again, and may have ended before it saved that.
        """
        wanted = self._wanted.get(key)
        if wanted is None:
            return
        left: list[tuple[Missing, int, int]] = []
        for each in wanted:
            missing, ordinal, its_time_ms = each
            newer = offset >= missing.above
            if missing.kind == "lost":
                newer = newer or leader_epoch > missing.leader_epoch >= 0
                newer = newer and not self._asked.keeps_all
            elif missing.kind == "last":
                newer = newer and time_ms >= its_time_ms
            newer = newer and not (sequence >= 0 and nearest(sequence, ordinal) < ordinal)
            if newer:
                self._superseded.add(ordinal)
            else:
                left.append(each)
        if left:
            self._wanted[key] = left
        else:
            del self._wanted[key]

    def answer(self) -> SupersededAnswer:
        """Return the outcome."""
        again: list[tuple[int, int]] = []
        until = -1
        settled = self._superseded | self._gone
        for missing in self._asked.missing:
            ordinals = range(missing.first, missing.last + 1)
            if missing.kind == "last":
                for ordinal in ordinals:
                    if ordinal in self._superseded:
                        until = ordinal + 1
                    elif ordinal not in self._gone:
                        break
            else:
                left = ranges(ordinal for ordinal in ordinals if ordinal not in settled)
                again += [(start, end - 1) for start, end in left]
        return SupersededAnswer(self._asked.question, 0, tuple(again), until)


def too_many(missing: Sequence[Missing]) -> str:
    """Return why this number of records cannot be looked up, or an empty text."""
    count = sum(each.last - each.first + 1 for each in missing)
    if count <= MOST_MISSING:
        return ""
    return (
        f"{count:,} records are missing from the compacted copy, and at most {MOST_MISSING:,} can be looked up by key"
    )
