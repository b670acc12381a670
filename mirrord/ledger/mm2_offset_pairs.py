"""Which pairs of offsets MirrorMaker 2's checkpoint tasks are told of, from a lane's runs.

A pair is one record's offset on both sides. Only records below the lane's mark count: they are acknowledged, replicated
and explained by the ledger. Told are the records at which a run begins, because between two of them the offsets advance
together, and the last one: when it lies far enough behind the last that was told, and when the lane comes to rest.
MirrorMaker 2 keeps 64 pairs of a partition (OffsetSyncStore), so of many new runs only the latest are told.

Its translation takes the newest pair at or below a group's position, so pairs must ascend on both sides: of records
that were copied out of order (`HoleFound`, `MapRebuilt`) none is told.
"""

import msgspec

from mirrord.kafka.protocol.mm2_records import OffsetSync
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Runs

MOST = 10
"""Beginnings of runs that are told at once."""


class Told(msgspec.Struct, frozen=True):
    """What one lane's readers were told."""

    mark: int
    """All ordinals below were looked at."""
    last: int = -1
    """The highest ordinal that was told, or -1."""
    upstream: int = -1
    downstream: int = -1
    """The pair of that ordinal."""


def due_syncs(lane: LaneState, mark: int, told: Told | None, lag_max: int) -> tuple[list[OffsetSync], Told]:
    """What is to be told now, in the order of the records, and what has been told after that.

    `mark` is the lane's next ordinal, all below it are acknowledged. `told` is None at first: then only the last record
    is told, as the beginnings of runs before it may be in the topic already.
    """
    if told is not None and _moved(lane, told):
        # A pair below the last one makes MirrorMaker 2 forget those that it has (OffsetSyncStore.backfillOffsets).
        told, begins = Told(mark), sorted({max(min(told.last, mark) - 1, 0), max(mark - 1, 0)})
    elif told is None or mark < told.mark:
        told, begins = Told(mark), [mark - 1] if mark else []
    elif told.mark == mark:
        begins = [mark - 1] if told.last < mark - 1 else []
    else:
        runs = {*_begins(lane.source_runs, told.mark, mark), *_begins(lane.target_runs, told.mark, mark)}
        begins = sorted(runs)[-MOST:]
        if mark - 1 - max([told.last, *begins]) > lag_max:
            begins.append(mark - 1)
    told = msgspec.structs.replace(told, mark=mark)
    pairs: list[OffsetSync] = []
    for ordinal in begins:
        pair = _pair(lane, ordinal)
        if pair is not None and pair.upstream > told.upstream and pair.downstream > told.downstream:
            pairs.append(pair)
            told = Told(mark, ordinal, pair.upstream, pair.downstream)
    return pairs, told


def _moved(lane: LaneState, told: Told) -> bool:
    """What was told last stands elsewhere: the target lost its end, and was written anew."""
    upstream, downstream = lane.source_runs.offset_of(told.last), lane.target_runs.offset_of(told.last)
    known = told.last >= 0 and upstream is not None and downstream is not None
    return known and (upstream, downstream) != (told.upstream, told.downstream)


def _begins(runs: Runs, first: int, end: int) -> list[int]:
    return [runs.at(position).ordinal for position in range(runs.position(first), runs.position(end))[-MOST:]]


def _pair(lane: LaneState, ordinal: int) -> OffsetSync | None:
    """None where readers would skip records that were copied later than their place, and where nothing is sure."""
    if lane.halted is not None or any(hole.first <= ordinal < hole.until for hole in lane.holes):
        return None
    upstream, downstream = lane.source_runs.offset_of(ordinal), lane.target_runs.offset_of(ordinal)
    if upstream is None or downstream is None:
        return None
    if any(ordinal < first and upstream >= offset for first, offset in lane.cuts):
        return None  # the source uses the offset for another record by now
    return OffsetSync(lane.source_topic, lane.partition, upstream, downstream)
