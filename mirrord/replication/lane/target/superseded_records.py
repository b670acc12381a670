"""Decides which of the records that a compacted target log lacks are superseded by a newer record with the same key.

The log cleaner removes a record only if the log holds a later one with the same key (KIP-58, kafka.log.LogCleaner).
Ordinals that are missing from a compacted copy therefore do not prove that the log lost records. If it did lose a
record, that record must not be appended after a newer record with the same key, no matter who wrote the newer one. The
same rule therefore applies whether a record was removed or lost: a missing record whose key occurs later in the log is
not appended again. A missing record whose key does not occur later was not removed by the cleaner, and is appended
again.

There are two exceptions. First, once `delete.retention.ms` has passed since a tombstone was appended, the cleaner
removes the tombstone even if no record with the same key follows. The tombstone may be appended again, because it makes
no difference: the key has no value either way. Second, records that follow all of the lane's own batches may never have
been appended. For these records, the one with the later timestamp counts as the newer one.

A newer record with the same key is not always in the log. It may have been a tombstone that the cleaner removed. Or the
cleaner may have removed copied records that the newer record superseded, and then an election may have removed the
newer record itself. A missing record is therefore also superseded if a copied record with the same key has a higher
source offset, whether or not the log still has that record. Otherwise, the key would return to an older value from the
source, or a deleted key would have a value again.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from typing import NamedTuple

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
"""Maximum number of records of the kind `last` (`Missing.kind`) in the first part of a lookup. Usually, few of these
records or none of them were appended, and no other part is needed."""
MOST_RANGES = 250_000
"""Maximum number of separate ranges that are copied again, of verdicts in one ledger entry, and of runs that are
recorded again in one entry. The ledger topic refuses entries that are too large."""


class AskSuperseded(msgspec.Struct, frozen=True):
    """Look up the missing records in the source, and their keys in the target log up to its current end.

    The current end may be higher than `end`, which is the end known to the lane. The log is read up to the current end,
    because a record that superseded a missing one may have been removed in the meantime. In this case, an even later
    record with the same key follows.
    """

    question: int
    missing: tuple[Missing, ...]
    """A range of the kind `last` follows all other ranges."""
    end: int
    appended: tuple[tuple[int, int], ...] = ()
    """Ordinals (first, last) of records that were appended, even if the cleaner has removed them since. They supersede
    missing records with the same keys and lower source offsets, so they too are read from the source."""
    keeps_all: bool = False
    """Whether lost records are copied again even if newer records with the same keys exist. This is the case if the
    topic is no longer compacted, and the records are missing because the target log has lost its end, not because of
    the cleaner."""
    epochs: tuple[tuple[int, int], ...] | None = None
    """Pairs (ordinal, leader epoch of the source) in ascending order: the epochs of the missing records when they were
    copied. None if these are the epochs in the ledger."""
    below: tuple[Missing, ...] = ()
    """The ordinals below the missing ones. They are looked up as well if the source has lost the record of a missing
    ordinal of the kind `lost` (see `missing_records.cleaned_below`)."""
    reads_below: bool = False
    """Whether the ledger shows that the source has lost such a record."""
    in_doubt: bool = False
    """Set if the topic's cleanup.policy is not known but decides whether superseded records are copied again: if the
    topic is not compacted, they have to be."""


class SupersededAnswer(msgspec.Struct, frozen=True):
    """The answer to `AskSuperseded`: the records that are to be copied again."""

    question: int
    error: int
    again: tuple[tuple[int, int], ...] = ()
    """Missing ordinals whose records are not superseded, as ranges (first, last) in ascending order. Ordinals of the
    kind `last` are not included."""
    until: int = -1
    """Ordinals of the kind `last` below this one were appended, and then removed by the cleaner."""
    until_epoch: int = -1
    """Leader epoch that the source record of the last of these ordinals had when it was looked up, or -1."""
    trouble: str = ""
    """One line for the operator that explains why it cannot be determined which records to copy again, or an empty
    string."""
    depends_on_policy: bool = False
    """Whether superseded records were found that have to be copied again if the topic is not compacted
    (`AskSuperseded.in_doubt`)."""


class AskShared(msgspec.Struct, frozen=True):
    """Ask the target's leader where the given leader epoch ends in its log (OffsetForLeaderEpoch, KIP-320)."""

    question: int
    epoch: int


class SharedAnswer(msgspec.Struct, frozen=True):
    """The newest leader epoch of the target log that is not above the requested one, and the offset at which that epoch
    ends. If all epochs of the log are above the requested one, `epoch` is the requested one, and `end` is the offset at
    which the first of them begins."""

    question: int
    error: int
    epoch: int = -1
    end: int = -1


class Expected(NamedTuple):
    """A missing record that the source still has."""

    missing: Missing
    ordinal: int
    offset: int
    """The source offset of the record."""
    time_ms: int
    """The timestamp with which the record is written to the target."""
    newer_from: int
    """A record with the same key at or above this target offset is newer than this record."""


class SupersededJudge:
    """Decides for each missing record of one lookup whether a newer record with the same key supersedes it. The judge
    first receives the missing records, as read from the source, then the records of the target log, and finally copied
    records of the source."""

    def __init__(self, asked: AskSuperseded) -> None:
        self._asked = asked
        self._wanted: dict[Hashable, list[Expected]] = {}
        self._replaced: dict[Hashable, list[Expected]] = {}
        """Missing records for which the target log has a newer record, by key, in ascending order of their ordinals. In
        the log, an older record may still follow the newer one."""
        self._superseded: set[int] = set()
        self._gone: set[int] = set()
        self._there: set[int] = set()
        """Missing records that were found in the target log itself."""
        self._last_epochs: dict[int, int] = {}
        """The leader epochs of the source records of the kind `last`, by ordinal."""

    def lowest_left(self) -> int:
        """Return the lowest source offset of the missing records that have not been found to be superseded so far.
        Ignore records of kinds that cannot be superseded by copied records of the source."""
        left = (each for expected in self._wanted.values() for each in expected if self._follows(each.missing))
        return min((each.offset for each in left), default=NEVER)

    def expect(
        self, missing: Missing, ordinal: int, offset: int, key: Hashable, time_ms: int, *, source_epoch: int = -1
    ) -> None:
        """Add a missing record that the source still has. `offset` is the record's source offset, and `source_epoch` is
        its leader epoch in the source. `key` and `time_ms` are those of the record that is written to the target. A
        transform may have changed both."""
        if missing.kind == "last":
            self._last_epochs[ordinal] = source_epoch
        if key is None:
            return  # a record without a key is never superseded
        self._wanted.setdefault(key, []).append(
            Expected(missing, ordinal, offset, time_ms, missing.newer_from(ordinal))
        )

    def gone(self, missing: Missing, ordinal: int, *, by_retention: bool) -> None:
        """Remember that the source no longer has a missing record.

        `by_retention` says whether the record is below the log start offset of the source. If it is not, the log
        cleaner of the source may have removed the record. In that case, a newer record with the same key follows.
        """
        if not by_retention or missing.has_room:
            self._gone.add(ordinal)

    def see(self, offset: int, key: Hashable, time_ms: int, leader_epoch: int, sequence: int = -1) -> None:
        """Process a committed record of the target log. `sequence` is the record's sequence if the lane wrote the
        record; otherwise, it is -1.

        A record of the lane with a lower ordinal is older than the missing record, even at a higher target offset. Such
        an offset is possible if a holder began to copy lost records again and exited before it saved a position.

        A record of the lane with the same ordinal and the same timestamp is the missing record itself. The log may
        contain displaced ordinals again if a replica whose log had been discarded in an election is now the leader.

        A record of the lane with a lower ordinal than the missing record may be appended late, after a record that is
        newer than the missing one. The late record is then the last one with this key in the log, so the missing record
        does not count as superseded.
        """
        if sequence >= 0 and key in self._replaced:
            self._restore(key, sequence)
        newest = -1
        for each in self._wanted.get(key, ()):
            missing, ordinal, source_offset, its_time_ms, newer_from = each
            newer = offset >= newer_from
            if missing.kind == "lost":
                newer = newer or leader_epoch > missing.leader_epoch >= 0
                newer = newer and not self._asked.keeps_all
            elif missing.kind == "last":
                newer = newer and time_ms >= its_time_ms
            its_ordinal = nearest(sequence, ordinal) if sequence >= 0 else NEVER
            is_itself = its_ordinal == ordinal and time_ms == its_time_ms
            if is_itself or (newer and its_ordinal >= ordinal):
                self._superseded.add(ordinal)
                if is_itself:
                    self._there.add(ordinal)
                else:
                    insort(self._replaced.setdefault(key, []), each, key=_ordinal)
                newest = max(newest, source_offset)
        if newest >= 0:
            self.see_appended(key, newest)

    def see_appended(self, key: Hashable, offset: int) -> None:
        """Process a source record that was copied. It supersedes missing records that have the same key and lower
        source offsets. `offset` is the source offset of the copied record."""
        wanted = self._wanted.get(key)
        if wanted is None:
            return
        self._superseded.update(each.ordinal for each in wanted if each.offset < offset and self._follows(each.missing))
        left = [each for each in wanted if each.ordinal not in self._superseded]
        if left:
            self._wanted[key] = left
        else:
            del self._wanted[key]

    def _restore(self, key: Hashable, sequence: int) -> None:
        """Process a record that the lane wrote with this key and sequence. Missing records with the same key that are
        newer than this record no longer count as superseded."""
        replaced = self._replaced[key]
        newer = bisect_right(replaced, nearest(sequence, replaced[-1].ordinal), key=_ordinal)
        self._superseded.difference_update(each.ordinal for each in replaced[newer:])
        self._wanted.setdefault(key, []).extend(replaced[newer:])
        del replaced[newer:]
        if not replaced:
            del self._replaced[key]

    def _follows(self, missing: Missing) -> bool:
        """Return whether missing records of this kind are superseded if copied records of the source have the same keys
        and higher source offsets."""
        return missing.kind in {"between", "below"} or (missing.kind == "lost" and not self._asked.keeps_all)

    def is_last_settled(self) -> bool:
        """Return whether every missing record of the kind `last` is superseded or gone. If so, records that follow them
        may have been appended as well. If a record of this kind is neither superseded nor gone, it was not appended,
        and neither was any record after it. The lookup is then complete, because ranges of this kind follow all other
        ranges."""
        settled = self._superseded | self._gone
        last = (each for each in self._asked.missing if each.kind == "last")
        return all(ordinal in settled for each in last for ordinal in range(each.first, each.last + 1))

    def answer(self) -> SupersededAnswer:
        """Return which of the missing records are to be copied again."""
        again: list[tuple[int, int]] = []
        until = -1
        settled = self._superseded | self._gone
        newest_below = sorted(self._newest_below())
        for missing in self._asked.missing:
            ordinals = range(missing.first, missing.last + 1)
            if missing.kind == "below":
                newest = newest_below[
                    bisect_left(newest_below, missing.first) : bisect_right(newest_below, missing.last)
                ]
                again += [(start, end - 1) for start, end in ranges(newest)]
            elif missing.kind == "last":
                for ordinal in ordinals:
                    if ordinal in self._superseded:
                        until = ordinal + 1
                    elif ordinal not in self._gone:
                        break
            else:
                left = ranges(ordinal for ordinal in ordinals if ordinal not in settled)
                again += [(start, end - 1) for start, end in left]
        until_epoch = self._last_epochs.get(until - 1, -1)
        return SupersededAnswer(
            self._asked.question, 0, tuple(again), until, until_epoch, depends_on_policy=self._depends_on_policy()
        )

    def _newest_below(self) -> Iterator[int]:
        """Yield the ordinals of the kind `below` whose records are to be copied again: the target has no record with
        the same key at or after the target offset of such a record, and no newer record is copied again."""
        for expected in self._wanted.values():
            left = [each for each in expected if each.ordinal not in self._superseded]
            newest = max(left, key=lambda each: each.offset, default=None)
            if newest is not None and newest.missing.kind == "below":
                yield newest.ordinal

    def _depends_on_policy(self) -> bool:
        """Return whether the lookup has found superseded records that have to be copied again if the topic is not
        compacted. Records for which the log has empty offsets are not counted, because a cleaner has removed them."""
        if not self._asked.in_doubt:
            return False
        lost = (each for each in self._asked.missing if not each.has_room)
        superseded = self._superseded - self._there
        return any(ordinal in superseded for each in lost for ordinal in range(each.first, each.last + 1))


def _ordinal(each: Expected) -> int:
    return each.ordinal


def in_parts(asked: AskSuperseded) -> Iterator[AskSuperseded]:
    """Split a lookup into several lookups that each contain at most `MOST_AT_ONCE` records. A range of records after
    all of the lane's own batches (`Missing.kind` is `last`) is also split after its first `MOST_LAST` records."""
    part: list[Missing] = []
    room = MOST_AT_ONCE
    for missing in asked.missing:
        first = missing.first
        while first <= missing.last:
            is_begun = missing.kind == "last" and first == missing.first
            last = min(missing.last, first + (MOST_LAST if is_begun else room) - 1)
            part.append(replace(missing, first=first, last=last))
            first, room = last + 1, room - (last - first + 1)
            if room <= 0 or (is_begun and last < missing.last):
                yield replace(asked, missing=tuple(part))
                part, room = [], MOST_AT_ONCE
    if part:
        yield replace(asked, missing=tuple(part))
