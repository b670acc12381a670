"""What stands on one side only: what the source holds and the target was not given, and what others wrote into the
target. By the exact map; the logs themselves are not read."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.ledger.foreign_writes import foreign_ranges
from mirrord.ledger.state import FlowState
from mirrord.model.intervals import Interval
from mirrord.model.names import LaneId, TopicId, TopicPartition

Side = Literal["source", "target"]
Why = Reason | Literal["pending", "not begun", "foreign"]
"""Why a stretch stands on one side only: a verdict of the ledger; "pending": it is not copied yet; "not begun": nothing
of its partition is; "foreign": somebody else wrote it into the target."""

_WITHHELD: frozenset[Reason] = frozenset(("filtered", "rejected", "skipped", "unexplained"))
"""Verdicts by which the source may still hold a record that was never copied."""


class Stretch(msgspec.Struct, frozen=True, order=True):
    """The offsets [start, end) of one side; they need not all hold records."""

    side: Side
    start: int
    end: int
    why: Why


def not_begun(state: FlowState, wanted: Iterable[TopicPartition], ids: Mapping[str, TopicId]) -> list[TopicPartition]:
    """Which of the partitions that are to be copied the ledger knows no copy of; `ids` are those of their topics."""
    begun = {(lane.key.source_topic_id, lane.partition) for lane in state.lanes.values()}
    return sorted(each for each in wanted if (ids[each.topic], each.partition) not in begun)


def stretches(
    state: FlowState, lane_id: LaneId, verdicts: Sequence[Verdict], source: Interval, target: Interval | None
) -> Iterator[Stretch]:
    """Of a lane, in the order of offsets, first those of the source.

    `source` and `target` are the offsets of both logs that count; None: the target has writers of its own, and the flow
    back tells of them.
    """
    lane, mark = state.lanes[lane_id], state.progress.get(lane_id)
    first = lane.source_runs.first
    position = mark.source_offset if mark is not None else first.offset if first is not None else source[0]
    told: list[tuple[int, int, Why]] = [
        (each.start, min(each.end, position), each.reason) for each in verdicts if each.reason in _WITHHELD
    ]
    told.sort()
    told.append((position, source[1], "pending"))
    for start, end, why in told:
        low, high = max(start, source[0]), min(end, source[1])
        if low < high:
            yield Stretch("source", low, high, why)
    if target is None or mark is None:
        return
    behind = max(mark.target_offset, target[0])
    for start, end in (*foreign_ranges(state, lane_id), (behind, target[1])):
        low, high = max(start, target[0]), min(end, target[1])
        if low < high:
            yield Stretch("target", low, high, "foreign")
