"""Finds out whether a compacted target has newer records with the keys of source records that it lacks."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.kafka.protocol.sequence import nearest
from mirrord.model.intervals import Interval, joined, ranges, uncovered
from mirrord.model.runs import Runs
from mirrord.replication.lane.signals import AskRebuild, LaneRecord
from mirrord.replication.lane.target.batch_relocation import covered_below
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.replication.lane.target.relocation_result import Located


class NewerCopies(NamedTuple):
    """Source offsets [start, end) of records that the target lacks."""

    superseded: Sequence[Interval] = ()
    """The target has a copy of a later source record with the same key."""
    unclear: Sequence[Interval] = ()
    """Another client has written the key to the target. Its record is newer if the missing one was in the log before,
    and older if the missing one was never appended."""


async def newer_copies(
    source: tuple[Stretches, PartitionId],
    target: tuple[Stretches, PartitionId],
    record: LaneRecord,
    wanted: AskRebuild,
    located: Located,
) -> NewerCopies:
    """Return which missing records (`Located.missing`) must not be copied again, and for which this is not known.

    `source` and `target` each consist of what reads the log, and the partition.

    The target's log cleaner has removed a record only if the log has a newer one with the same key. Suppose that the
    target has no other record with this key where the missing one would be. Then the missing one was never appended, or
    what superseded it has been lost, and it has to be copied. A copy whose source record is gone is older than every
    record that the source still has with its key, because a log cleaner removes the oldest records of a key first.

    Raises ReadFailed if one of the logs cannot be read at the moment, and ValueError if its records cannot be.
    """
    missing: defaultdict[Hashable, list[int]] = defaultdict(list)
    for start, end in located.missing:
        async for batch in source[0].read(source[1], start, end):
            for each in batch.records() if not batch.header.attributes & CONTROL else ():
                if start <= each.offset < end and each.key is not None:
                    missing[each.key].append(each.offset)
    if not missing:
        return NewerCopies()
    newest: dict[Hashable, int] = {}
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

    def __call__(self, ordinal: int) -> int:
        if ordinal < self._first:
            offset = self._former.offset_of(ordinal)
        else:
            is_there = any(True for _ in uncovered((ordinal, ordinal + 1), self._gone))
            offset = self._found.offset_of(ordinal) if is_there else None
        return -1 if offset is None else offset
