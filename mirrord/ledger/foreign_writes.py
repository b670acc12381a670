"""Finds foreign records in a lane's target partition, at the target offsets between the lane's own records.

A run of the target begins wherever a record does not directly follow the previous one. The offsets between two runs
therefore belong to other clients: they hold the records and transaction markers that these clients wrote. Records below
the lane's first record were in the partition before the lane began. Records above the lane's last record are noticed
when the lane writes its next record.

Copies by other lanes of the flow are not foreign records. When a source topic is re-created, its records are
appended after those that its former lanes copied.
"""

from collections.abc import Iterable, Iterator, Mapping

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.offset_map import voids
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.names import LaneId, TopicId


def foreign_counts(state: FlowState) -> Mapping[LaneId, int]:
    """Return the number of foreign target offsets for each lane that has at least one."""
    numbers = ((lane_id, _number(lane, state.progress.get(lane_id))) for lane_id, lane in state.lanes.items())
    found = {lane_id: number for lane_id, number in numbers if number}
    sharing: dict[tuple[TopicId, int], list[LaneId]] = {}
    for lane_id, lane in state.lanes.items() if found else ():
        sharing.setdefault(_where(lane), []).append(lane_id)
    for lane_id in list(found):
        extent = _extent(state, lane_id)
        others = [each for each in sharing[_where(state.lanes[lane_id])] if each != lane_id]
        if any(_overlap(extent, _extent(state, other)) for other in others):
            found[lane_id] = sum(end - start for start, end in _between(state, lane_id, [lane_id, *others]))
    return {lane_id: number for lane_id, number in found.items() if number}


def foreign_ranges(state: FlowState, lane_id: LaneId) -> Iterator[Interval]:
    """Return the offsets in a lane's target partition that belong to no lane of the flow, in ascending order. Only the
    range of offsets that the lane's offset map covers is considered."""
    where = _where(state.lanes[lane_id])
    return _between(state, lane_id, [other for other, lane in state.lanes.items() if _where(lane) == where])


def own_ranges(state: FlowState, topic_id: TopicId, partition: int) -> list[Interval]:
    """Return the ranges of a target partition that hold records of the flow's lanes below the resume positions of these
    lanes."""
    lanes = [each for each, lane in state.lanes.items() if _where(lane) == (topic_id, partition)]
    return [part for each in lanes for part in _own(state.lanes[each], state.progress.get(each))]


def _between(state: FlowState, lane_id: LaneId, sharing: Iterable[LaneId]) -> Iterator[Interval]:
    """Yield the ranges of target offsets that belong to none of the lanes in `sharing`: the lane `lane_id` and all
    other lanes with the same target partition. Only the range that the offset map of `lane_id` covers is considered."""
    ours = [each for lane in sharing for each in _own(state.lanes[lane], state.progress.get(lane))]
    return uncovered(_extent(state, lane_id), ours)


def _where(lane: LaneState) -> tuple[TopicId, int]:
    return lane.key.target_topic_id, lane.partition


def _extent(state: FlowState, lane_id: LaneId) -> Interval:
    """Return the range from the first target offset in the lane's offset map to the lane's resume position."""
    first, progress = state.lanes[lane_id].target_runs.first, state.progress.get(lane_id)
    return (0, 0) if first is None or progress is None else (first.offset, progress.target_offset)


def _overlap(one: Interval, other: Interval) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _number(lane: LaneState, progress: Progress | None) -> int:
    """Return the number of foreign offsets, computed from the lane's first record and its resume position alone. This
    is possible because each record of the lane occupies one offset."""
    first = lane.target_runs.first
    if first is None or progress is None or progress.ordinal <= first.ordinal:
        return 0
    void = sum(max(0, min(last + 1, progress.ordinal) - max(start, first.ordinal)) for start, last in voids(lane.holes))
    return max(0, progress.target_offset - first.offset - (progress.ordinal - first.ordinal - void))


def _own(lane: LaneState, progress: Progress | None) -> Iterable[Interval]:
    """Yield the ranges of target offsets that hold the lane's records below its resume position."""
    first = lane.target_runs.first
    if first is None or progress is None:
        return
    position = first.ordinal
    for start, last in [*voids(lane.holes), (progress.ordinal, progress.ordinal)]:
        until = min(start, progress.ordinal)
        if position < until:
            for _, offset, length in lane.target_runs.between(position, until - 1):
                yield offset, offset + length
        position = max(position, last + 1)
