"""Selection of the offset pairs, taken from a lane's runs, that are published for MirrorMaker 2's checkpoint tasks.

A pair holds the offsets of one record on both sides. Only records below the lane's mark are eligible: they are
acknowledged, replicated and explained by the ledger. The first record of each run is published, because offsets advance
together between two of them. The last record is published when it is far enough after the last published one, and when
the lane becomes idle. MirrorMaker 2 keeps 64 pairs of a partition (OffsetSyncStore), so if there are many new runs only
the latest are published.

MirrorMaker 2 translates with the newest pair at or below a group's position, so pairs must ascend on both sides. No
pair is published for records that were copied out of order (`HoleFound`, `MapRebuilt`).
"""

import msgspec

from mirrord.kafka.protocol.mm2_records import OffsetSync
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Runs

MOST = 10
"""Maximum number of run beginnings that are published at once."""


class PublishedPairs(msgspec.Struct, frozen=True):
    """What has been published for one lane."""

    mark: int
    """The ordinal below which all ordinals have been considered."""
    last: int = -1
    """The highest ordinal that was published, or -1."""
    upstream: int = -1
    downstream: int = -1
    """The pair of that ordinal."""


def due_syncs(
    lane: LaneState, mark: int, told: PublishedPairs | None, lag_max: int
) -> tuple[list[OffsetSync], PublishedPairs]:
    """Return the pairs to publish now, in the order of their records, and the state after publishing them.

    `mark` is the lane's next ordinal; all below it are acknowledged. `told` is None at first. Then only the last record
    is published, because the beginnings of earlier runs may already be in the topic.
    """
    if told is not None and _moved(lane, told):
        # A pair below the last one makes MirrorMaker 2 drop the pairs that it has (OffsetSyncStore.backfillOffsets).
        told, begins = PublishedPairs(mark), sorted({max(min(told.last, mark) - 1, 0), max(mark - 1, 0)})
    elif told is None or mark < told.mark:
        told, begins = PublishedPairs(mark), [mark - 1] if mark else []
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
            told = PublishedPairs(mark, ordinal, pair.upstream, pair.downstream)
    return pairs, told


def _moved(lane: LaneState, told: PublishedPairs) -> bool:
    """Return whether the last published record is now at other offsets: the target lost its end and was
    written again."""
    upstream, downstream = lane.source_runs.offset_of(told.last), lane.target_runs.offset_of(told.last)
    known = told.last >= 0 and upstream is not None and downstream is not None
    return known and (upstream, downstream) != (told.upstream, told.downstream)


def _begins(runs: Runs, first: int, end: int) -> list[int]:
    return [runs.at(position).ordinal for position in range(runs.position(first), runs.position(end))[-MOST:]]


def _pair(lane: LaneState, ordinal: int) -> OffsetSync | None:
    """Return None where readers would skip records that were copied out of order, and where the offsets are not
    certain."""
    if lane.halted is not None or any(hole.first <= ordinal < hole.until for hole in lane.holes):
        return None
    upstream, downstream = lane.source_runs.offset_of(ordinal), lane.target_runs.offset_of(ordinal)
    if upstream is None or downstream is None:
        return None
    if any(ordinal < first and upstream >= offset for first, offset in lane.truncations):
        return None  # the source now uses the offset for another record
    return OffsetSync(lane.source_topic, lane.partition, upstream, downstream)
