"""Finds out whether a compacted target has newer records with the keys of source records that it lacks."""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.kafka.protocol.sequence import nearest
from mirrord.model.intervals import Interval, contains, joined, ranges
from mirrord.model.runs import Runs
from mirrord.replication.lane.signals import AskRebuild, LaneRecord
from mirrord.replication.lane.target.batch_relocation import covered_below
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.replication.lane.target.relocation_result import Located


class NewerCopies(NamedTuple):
    """Source offsets [start, end) of records that the target lacks."""

    superseded: Sequence[Interval] = ()
    """The target has, or had, a copy of a later source record with the same key."""
    unclear: Sequence[Interval] = ()
    """Another client has written the key to the target. Its record is newer if the missing one was in the log before,
    and older if the missing one was never appended."""


async def newer_copies(
    source: tuple[Stretches, PartitionId],
    target: tuple[Stretches, PartitionId],
    record: LaneRecord,
    wanted: AskRebuild,
    located: Located,
    copied: Sequence[Interval],
) -> NewerCopies:
    """Return which missing records (`Located.missing`) must not be copied again, and for which this is not known.

    `source` and `target` each consist of what reads the log, and the partition. `copied` contains the source offsets of
    the records that were appended to the target log, as far as the source can be read.

    The target's log cleaner has removed a record only if the log has a newer one with the same key. Suppose that the
    target has no other record with this key where the missing one would be. Then the missing one was never appended, or
    what superseded it has been lost, and it has to be copied. A copy whose source record is gone is older than every
    record that the source still has with its key, because a log cleaner removes the oldest records of a key first.

    The newer record may be gone as well: the cleaner removes a tombstone after `delete.retention.ms`. The source
    therefore shows which of the copied records are newer.

    Raises ReadFailed if one of the logs cannot be read at the moment, and ValueError if its records cannot be.
    """
    missing, newest = await _in_source(source, located.missing, copied)
    if not missing:
        return NewerCopies()
    foreign: set[Hashable] = set()
    offset_of = _Placed(record, wanted.first, located)
    async for batch in target[0].read(target[1], _start(record, wanted, located), wanted.end):
        header = batch.header
        if header.attributes & CONTROL:
            continue
        first = nearest(header.base_sequence, wanted.first) - header.base_offset
        for each in batch.records():
            if each.key not in missing:
                continue
            if not is_own(header, wanted.producer_id):
                foreign.add(each.key)
            else:
                newest[each.key] = max(newest.get(each.key, -1), offset_of(first + each.offset))
    superseded = [offset for key, offsets in missing.items() for offset in offsets if offset < newest.get(key, -1)]
    left = (offsets for key, offsets in missing.items() if key in foreign)
    unclear = {offset for offsets in left for offset in offsets} - set(superseded)
    return NewerCopies(tuple(ranges(sorted(superseded))), tuple(ranges(sorted(unclear))))


async def _in_source(
    source: tuple[Stretches, PartitionId], missing: Sequence[Interval], copied: Sequence[Interval]
) -> tuple[Mapping[Hashable, Sequence[int]], dict[Hashable, int]]:
    """Return the offsets of the missing records with each key, and the offset of the newest copied record with each of
    these keys, if it is newer than the first missing one."""
    lacking: defaultdict[Hashable, list[int]] = defaultdict(list)
    newest: dict[Hashable, int] = {}
    start, end = missing[0][0], max(missing[-1][1], copied[-1][1] if copied else 0)
    async for batch in source[0].read(source[1], start, end):
        for each in batch.records() if not batch.header.attributes & CONTROL else ():
            if each.key is None:
                continue
            if contains(missing, each.offset):
                lacking[each.key].append(each.offset)
            elif each.key in lacking and contains(copied, each.offset):
                newest[each.key] = each.offset
    return lacking, newest


def _start(record: LaneRecord, wanted: AskRebuild, located: Located) -> int:
    """Return the target offset from which to read. The missing records would be at or above `wanted.start`. Copies of
    later source records may be below it if records were copied again under later ordinals."""
    covered = covered_below(record, wanted.first)
    return wanted.log_start if covered and covered[-1].end > located.missing[0][0] else wanted.start


class _Placed:
    """Returns the source offset of an ordinal in the target, or -1 if the source no longer has its record."""

    def __init__(self, record: LaneRecord, first: int, located: Located) -> None:
        self._former, self._first, self._found = record.source_runs, first, Runs([*located.runs])
        self._gone = joined((*located.open, *located.gone))
        self._unknown = joined((hole.first, hole.last + 1) for hole in record.holes if hole.is_open)

    def __call__(self, ordinal: int) -> int:
        runs, gone = (self._former, self._unknown) if ordinal < self._first else (self._found, self._gone)
        offset = None if contains(gone, ordinal) else runs.offset_of(ordinal)
        return -1 if offset is None else offset
