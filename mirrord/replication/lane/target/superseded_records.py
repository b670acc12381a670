"""Decides which of the records that a compacted target log lacks are superseded by a newer record of the same key.

The log cleaner removes a record only if the log holds a later one of the same key (KIP-58, kafka.log.LogCleaner).
Ordinals that are missing in a compacted copy therefore do not prove that the log lost records. If it did lose a record,
the record must not be appended after a newer record of its key, no matter who wrote the newer one. In both cases, the
same rule applies: a missing record whose key occurs later in the log is not appended again. A missing record whose key
does not occur later was not removed by the cleaner, and is appended again.

There are two exceptions. First, the cleaner removes a tombstone `delete.retention.ms` after it was appended, even if no
record of its key follows. The tombstone may be appended again, because the key has no value before and after that.
Second, records that follow all of the lane's own batches may never have been appended. For these, the record with the
later timestamp is the newer one.
"""

from collections.abc import Hashable, Iterator

import msgspec
from msgspec.structs import replace

from mirrord.kafka.protocol.sequence import nearest
from mirrord.model.intervals import ranges
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.target.scan_result import Missing

MOST_AT_ONCE = 500_000
"""Maximum number of records that are looked up by their keys while the target log is read once. Each record takes about
200 bytes of memory. If more records are missing, the target log is read several times."""
MOST_LAST = 100_000
"""Maximum number of records of the kind `last` that are looked up by their keys (`Missing.kind`)."""
MOST_RANGES = 250_000
"""Maximum number of separate ranges that are copied again. It is limited because a single ledger entry contains all
ranges."""


class AskSuperseded(msgspec.Struct, frozen=True):
    """Look up the missing records in the source, and their keys in the target log up to its current end.

    The current end may be higher than `end`, which is the end that the lane knows. The log is read up to the current
    end because a record that superseded a missing one may have been removed in the meantime. In this case, an even
    later record of the same key follows.
    """

    question: int
    missing: tuple[Missing, ...]
    end: int
    keeps_all: bool = False
    """Whether lost records are copied again even if newer records of their keys exist. This is the case if the topic is
    no longer compacted, and the records are missing because the target log has lost its end, not because of the
    cleaner."""


class SupersededAnswer(msgspec.Struct, frozen=True):
    """The answer to `AskSuperseded`: the records that are to be copied again."""

    question: int
    error: int
    again: tuple[tuple[int, int], ...] = ()
    """Missing ordinals whose records are not superseded, as ranges (first, last) in ascending order. Ordinals of the
    kind `last` are not included."""
    until: int = -1
    """Ordinals of the kind `last` below this one were appended, and then removed by the cleaner."""
    trouble: str = ""
    """Why it cannot be determined which records to copy again, in one line for the operator."""


class AskShared(msgspec.Struct, frozen=True):
    """Ask the target's leader where the given leader epoch ends in its log (OffsetForLeaderEpoch, KIP-320)."""

    question: int
    epoch: int


class SharedAnswer(msgspec.Struct, frozen=True):
    """The newest leader epoch of the target log that is not above the requested one, and the offset at which that epoch
    ends."""

    question: int
    error: int
    epoch: int = -1
    end: int = -1


class SupersededJudge:
    """Decides for each missing record of one lookup whether it is superseded. It first receives the missing records, as
    read from the source, and then the records of the target log."""

    def __init__(self, asked: AskSuperseded) -> None:
        self._asked = asked
        self._wanted: dict[Hashable, list[tuple[Missing, int, int]]] = {}
        self._behind: dict[Hashable, tuple[int, list[tuple[Missing, int, int]]]] = {}
        """Missing records for which a newer one was found, and the highest of their ordinals. An older record may
        follow the newer one."""
        self._superseded: set[int] = set()
        self._gone: set[int] = set()

    def expect(self, missing: Missing, ordinal: int, key: Hashable, time_ms: int) -> None:
        """Add a missing record that the source still has."""
        if key is None:
            return  # a record without a key is never superseded
        self._wanted.setdefault(key, []).append((missing, ordinal, time_ms))

    def gone(self, missing: Missing, ordinal: int, *, by_retention: bool) -> None:
        """Note that the source no longer has a missing record.

        `by_retention` says whether the record is below the log start offset of the source. If it is not, the log
        cleaner of the source may have removed the record. In that case, a newer record of the same key follows.
        """
        if not by_retention or missing.has_room:
            self._gone.add(ordinal)

    def see(self, offset: int, key: Hashable, time_ms: int, leader_epoch: int, sequence: int = -1) -> None:
        """Process a committed record of the target log. `sequence` is the record's sequence if the lane wrote the
        record, otherwise -1.

        A record of the lane with a lower ordinal is older than a missing record, even at a higher target offset. Such
        an offset is possible if a holder began to copy lost records again and ended before it saved a position.

        A record of the lane with the same ordinal and the same timestamp is the missing record itself. The log may have
        displaced ordinals again, if a replica whose log an election had discarded is the leader now.

        A record of the lane with a lower ordinal may follow a newer one, if it arrived late. It is then the last value
        of the key, so a missing record is not superseded.
        """
        if sequence >= 0 and key in self._behind:
            self._restore(key, sequence)
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
            its_ordinal = nearest(sequence, ordinal) if sequence >= 0 else NEVER
            is_itself = its_ordinal == ordinal and time_ms == its_time_ms
            if is_itself or (newer and its_ordinal >= ordinal):
                self._superseded.add(ordinal)
                if not is_itself:
                    self._leave_behind(key, each)
            else:
                left.append(each)
        if left:
            self._wanted[key] = left
        else:
            del self._wanted[key]

    def _restore(self, key: Hashable, sequence: int) -> None:
        """Look up those missing records again that are newer than the lane's record with this sequence."""
        highest, behind = self._behind[key]
        if nearest(sequence, highest) >= highest:
            return
        del self._behind[key]
        for each in behind:
            ordinal = each[1]
            if nearest(sequence, ordinal) < ordinal:
                self._superseded.discard(ordinal)
                self._wanted.setdefault(key, []).append(each)
            else:
                self._leave_behind(key, each)

    def _leave_behind(self, key: Hashable, each: tuple[Missing, int, int]) -> None:
        highest, behind = self._behind.get(key, (-1, []))
        behind.append(each)
        self._behind[key] = max(highest, each[1]), behind

    def answer(self) -> SupersededAnswer:
        """Return which of the missing records are to be copied again."""
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


def in_parts(asked: AskSuperseded) -> Iterator[AskSuperseded]:
    """Split a lookup into several lookups that each contain a limited number of records (`MOST_AT_ONCE`). A range of
    the kind `last` is not split."""
    part: list[Missing] = []
    room = MOST_AT_ONCE
    for missing in asked.missing:
        first = missing.first
        while first <= missing.last:
            last = missing.last if missing.kind == "last" else min(missing.last, first + room - 1)
            part.append(replace(missing, first=first, last=last))
            first, room = last + 1, room - (last - first + 1)
            if room <= 0:
                yield replace(asked, missing=tuple(part))
                part, room = [], MOST_AT_ONCE
    if part:
        yield replace(asked, missing=tuple(part))
