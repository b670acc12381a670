"""Selects the offset pairs of a lane that are published for MirrorMaker 2's checkpoint tasks.

A pair contains the source offset and the target offset of one record. Only records below the lane's resume position are
eligible: they have been acknowledged and replicated, and the ledger explains them. The first record of each run is
published, because source offsets and target offsets advance together until the next run begins. The last eligible
record is also published in two cases: if more than `mm2_records.offset_lag_max` records follow the last published one,
and when the lane becomes idle. MirrorMaker 2 keeps 64 pairs for each partition (OffsetSyncStore). If there are many new
runs, only the pairs of the latest runs are published.

MirrorMaker 2 translates a group's position using the newest pair at or below the position. In each pair, both offsets
must therefore be higher than in the previous pair. No pair is published for records that were copied out of order
(`HoleFound`, `MapRebuilt`).
"""

import msgspec

from mirrord.kafka.protocol.mm2_records import OffsetSync
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Runs

MOST = 10
"""Maximum number of new runs whose first records are published at one time."""


class PublishedPairs(msgspec.Struct, frozen=True):
    """The pairs that have been published for one lane."""

    considered_below: int
    """All ordinals below this one have been considered for publishing."""
    last: int = -1
    """The ordinal of the last record whose pair was published. -1 if there is none."""
    upstream: int = -1
    downstream: int = -1
    """The source offset (`upstream`) and the target offset (`downstream`) of the record with the ordinal `last`."""


def due_syncs(
    lane: LaneState, next_ordinal: int, published: PublishedPairs | None, lag_max: int
) -> tuple[list[OffsetSync], PublishedPairs]:
    """Return the offset pairs to publish now, in the order of their records. Also return the value that the next call
    gets as `published`.

    All records with ordinals below `next_ordinal` have been acknowledged. On the first call, `published` is None. In
    this case, only the pair of the last acknowledged record is returned, because the pairs of earlier runs may already
    be in the offset-syncs topic.
    """
    if published is not None and _moved(lane, published):
        # If a pair is below the last one, MirrorMaker 2 drops the pairs that it has (OffsetSyncStore.backfillOffsets).
        begins = sorted({max(min(published.last, next_ordinal) - 1, 0), max(next_ordinal - 1, 0)})
        published = PublishedPairs(next_ordinal)
    elif published is None or next_ordinal < published.considered_below:
        published, begins = PublishedPairs(next_ordinal), [next_ordinal - 1] if next_ordinal else []
    elif published.considered_below == next_ordinal:
        begins = [next_ordinal - 1] if published.last < next_ordinal - 1 else []
    else:
        runs = {
            *_begins(lane.source_runs, published.considered_below, next_ordinal),
            *_begins(lane.target_runs, published.considered_below, next_ordinal),
        }
        begins = sorted(runs)[-MOST:]
        if next_ordinal - 1 - max([published.last, *begins]) > lag_max:
            begins.append(next_ordinal - 1)
    published = msgspec.structs.replace(published, considered_below=next_ordinal)
    pairs: list[OffsetSync] = []
    for ordinal in begins:
        pair = _pair(lane, ordinal)
        if pair is not None and pair.upstream > published.upstream and pair.downstream > published.downstream:
            pairs.append(pair)
            published = PublishedPairs(next_ordinal, ordinal, pair.upstream, pair.downstream)
    return pairs, published


def _moved(lane: LaneState, published: PublishedPairs) -> bool:
    """Return whether the record of the last published pair now has different offsets. This happens if the target log
    lost its newest records and they were copied again."""
    upstream, downstream = lane.source_runs.offset_of(published.last), lane.target_runs.offset_of(published.last)
    known = published.last >= 0 and upstream is not None and downstream is not None
    return known and (upstream, downstream) != (published.upstream, published.downstream)


def _begins(runs: Runs, first: int, end: int) -> list[int]:
    return [runs.at(position).ordinal for position in range(runs.position(first), runs.position(end))[-MOST:]]


def _pair(lane: LaneState, ordinal: int) -> OffsetSync | None:
    """Return the pair of the record with this ordinal, or None if no pair may be published for it.

    No pair is published if an offset of the record is unknown, if the lane has halted, or if the source now uses the
    offset for a different record. From the beginning of a hole until all its records are mended, no pair is published
    either, because a group that resumed there would miss the records of the hole.
    """
    if lane.halted is not None or any(hole.first <= ordinal < hole.until for hole in lane.holes):
        return None
    upstream, downstream = lane.source_runs.offset_of(ordinal), lane.target_runs.offset_of(ordinal)
    if upstream is None or downstream is None:
        return None
    if any(ordinal < first and upstream >= offset for first, offset in lane.truncations):
        return None  # the source now uses the offset for a different record
    return OffsetSync(lane.source_topic, lane.partition, upstream, downstream)
