"""Finds the offset ranges whose records exist only on the source or only on the target: source records that did not
arrive at the target, and records that other clients wrote to the target. The ranges are derived from the offset map,
without reading the logs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.ledger.foreign_writes import foreign_ranges
from mirrord.ledger.state import FlowState
from mirrord.model.intervals import Interval
from mirrord.model.names import LaneId, Side, TopicId, TopicPartition

Why = Reason | Literal["pending", "not begun", "foreign"]
"""Why the records of a range exist only on the source or only on the target. The reason is either a verdict in the
ledger or one of three other values. "pending": the records have not been copied yet. "not begun": no record of their
partition has been copied. "foreign": another client wrote the records to the target."""

_WITHHELD: frozenset[Reason] = frozenset(("filtered", "rejected", "skipped", "unexplained"))
"""Verdicts on records that were never copied and that the source may still hold."""


class OneSidedRange(msgspec.Struct, frozen=True, order=True):
    """A range of offsets, [start, end). The records in this range exist only on the source or only on the target. Some
    of the offsets may hold no record."""

    side: Side
    start: int
    end: int
    why: Why


def not_begun(state: FlowState, wanted: Iterable[TopicPartition], ids: Mapping[str, TopicId]) -> list[TopicPartition]:
    """Return the wanted partitions for which the ledger has no lane. `ids` maps topic names to topic ids."""
    begun = {(lane.key.source_topic_id, lane.partition) for lane in state.lanes.values()}
    return sorted(each for each in wanted if (ids[each.topic], each.partition) not in begun)


def stretches(
    state: FlowState, lane_id: LaneId, verdicts: Sequence[Verdict], source: Interval, target: Interval | None
) -> Iterator[OneSidedRange]:
    """Yield the ranges of a lane whose records exist only on the source, followed by those whose records exist only on
    the target.

    `source` and `target` limit the source offsets and the target offsets that are considered. `target` is None if
    another flow copies in the opposite direction. Other clients are then expected to write to the target, and the
    opposite flow reports their records as its source records.
    """
    lane, progress = state.lanes[lane_id], state.progress.get(lane_id)
    first = lane.source_runs.first
    position = progress.source_offset if progress is not None else first.offset if first is not None else source[0]
    withheld: list[tuple[int, int, Why]] = [
        (each.start, min(each.end, position), each.reason) for each in verdicts if each.reason in _WITHHELD
    ]
    withheld.sort()
    withheld.append((position, source[1], "pending"))
    for start, end, why in withheld:
        low, high = max(start, source[0]), min(end, source[1])
        if low < high:
            yield OneSidedRange("source", low, high, why)
    if target is None or progress is None:
        return
    behind = max(progress.target_offset, target[0])
    for start, end in (*foreign_ranges(state, lane_id), (behind, target[1])):
        low, high = max(start, target[0]), min(end, target[1])
        if low < high:
            yield OneSidedRange("target", low, high, "foreign")
