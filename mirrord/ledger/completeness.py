"""Checks that each source offset has either a copy or a verdict.

The check uses only the ledger and the ends of the source log and the target log. It reads no records.
"""

from collections import Counter
from collections.abc import Container

import msgspec

from mirrord.ledger.facts.core import LOSSES, Progress, Reason
from mirrord.ledger.source_ends import FORMER, unopened_losses
from mirrord.ledger.state import FlowState, LaneState


class Account(msgspec.Struct, frozen=True):
    """The result of checking whether one lane has copied everything and accounts for all its source offsets."""

    copied: int
    """Number of records that were copied."""
    position: int
    """The source offset that the lane would copy next."""
    counted: bool
    """Whether the check could count offsets. If so, it compared two numbers: first, the copied records plus the offsets
    with a verdict; second, the offsets that the lane has passed since it began. It cannot count them if the ledger no
    longer contains the lane's beginning, or if the lane has holes or truncations."""
    differences: tuple[str, ...] = ()
    """The differences that were found, one readable line each."""


def account(lane: LaneState, progress: Progress | None, source_end: int, target_end: int | None) -> Account:
    """Check whether a lane has copied everything up to the given end of the source log, and whether all its offsets are
    accounted for.

    `target_end` is the high watermark of the target partition, or None if the partition does not exist. `progress` is
    the lane's latest progress record.
    """
    if progress is None:
        missing = () if source_end == 0 else (f"nothing is known about it, and the source ends at {source_end}",)
        return Account(0, 0, counted=False, differences=missing)
    differences: list[str] = []
    if progress.source_offset < source_end:
        differences.append(f"copied up to source offset {progress.source_offset}, but the source ended at {source_end}")
    if target_end is None:
        differences.append("its target partition does not exist")
    elif target_end < progress.target_offset:
        differences.append(f"the target ends at {target_end}, but {progress.target_offset} was acknowledged")
    explained = sum(lane.verdicts.counts.values())
    begin = _begin(lane)
    if begin is not None and progress.ordinal + explained != (passed := progress.source_offset - begin):
        differences.append(
            f"{progress.ordinal} records copied and {explained} offsets explained, but {passed} offsets passed since "
            f"{begin}"
        )
    return Account(progress.ordinal, progress.source_offset, begin is not None, tuple(differences))


def _begin(lane: LaneState) -> int | None:
    """Return the source offset at which the lane began. Return None if the ledger no longer shows this offset, or if
    the lane has holes or truncations."""
    if lane.holes or lane.verdicts.counts.get("truncated"):
        return None
    recent = lane.verdicts.recent
    if sum(verdict.end - verdict.start for verdict in recent) != sum(lane.verdicts.counts.values()):
        return None
    first, target = lane.source_runs.first, lane.target_runs.first
    if first is None or first.ordinal or (target is not None and target.ordinal):
        return None
    return min([first.offset, *(verdict.start for verdict in recent)])


def uncopied(state: FlowState, topics: Container[str]) -> dict[Reason, int]:
    """Count the source offsets of these topics that have a verdict instead of a copy, by reason. A partition has older
    lanes if its topic was deleted and re-created. For these older lanes, only losses are counted.

    The oldest losses in deleted topics may be known only as a total (`FlowState.forgotten_losses` and
    `source_ends.FORMER`). All of them are counted, because they may have occurred in these topics.
    """
    present: dict[tuple[str, int], LaneState] = {}
    for lane in sorted(state.lanes.values(), key=lambda each: each.age):
        present[lane.source_topic, lane.partition] = lane
    found: Counter[Reason] = Counter()
    for lane in state.lanes.values():
        if lane.source_topic in topics:
            is_present = present[lane.source_topic, lane.partition] is lane
            found.update({
                reason: count for reason, count in lane.verdicts.counts.items() if is_present or reason in LOSSES
            })  # fmt: skip
    found.update(state.forgotten_losses)
    unopened = (each for each in unopened_losses(state) if each.topic in topics or each.topic == FORMER)
    found.update({"recreated": sum(each.end - each.start for each in unopened)})
    return {reason: count for reason, count in sorted(found.items()) if count}
