"""Puts the result of an audit into words, for one partition and for all partitions. The wording never implies that data
that was not compared is free of differences."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from mirrord.audit.rules.results import LaneSummary
from mirrord.ledger.facts.core import LOSSES


class Result(msgspec.Struct, frozen=True):
    """The result of an audit in words, for one partition or for all partitions."""

    words: str
    is_bad: bool = False
    is_partial: bool = False
    """Whether some of the data was not compared."""


def losses(lane: LaneSummary) -> dict[str, int]:
    """Return the number of lost source offsets according to the ledger, by verdict."""
    return {cause: number for cause, number in lane.explained.items() if cause in LOSSES}


def is_bad(lane: LaneSummary) -> bool:
    """Return whether the partition has differences or losses."""
    return bool(lane.differences or losses(lane))


def lane_result(lane: LaneSummary) -> Result:
    """Return the result of the audit for one partition."""
    lost = losses(lane)
    words = [_counts(lane.differences)] if lane.differences else []
    words += [f"lost: {_counts(lost)}"] if lost else []
    if words:
        return Result("; ".join(words), is_bad=True)
    if lane.skipped:
        return Result("-", is_partial=True)
    if not lane.ranges:
        return Result("nothing new")
    if not lane.looked_at:
        return Result("not examined", is_partial=True)
    undecided = f", {lane.undecided:,} records undecided" if lane.undecided else ""
    if lane.looked_at < lane.ranges:
        return Result(f"no difference in {lane.looked_at:,} of {lane.ranges:,} ranges{undecided}", is_partial=True)
    if undecided:
        return Result(f"no difference{undecided}", is_partial=True)
    return Result("no difference")


def whole_result(lanes: Iterable[LaneSummary]) -> Result:
    """Return the result of the audit for all partitions together."""
    kinds: Counter[str] = Counter()
    lost: Counter[str] = Counter()
    left = skipped = undecided = 0
    for lane in lanes:
        kinds.update(lane.differences)
        lost.update(losses(lane))
        left += lane.ranges - lane.looked_at
        undecided += lane.undecided
        skipped += bool(lane.skipped) and not lane.has_nothing
    words = [_counts(kinds)] if kinds else []
    words += [f"lost: {_counts(lost)}"] if lost else []
    if words:
        return Result("; ".join(words), is_bad=True, is_partial=left + skipped + undecided > 0)
    if left or skipped or undecided:
        others = [f"{left:,} ranges"] if left else []
        others += [f"{skipped:,} partitions"] if skipped else []
        parts = [f"{' and '.join(others)} were not"] if others else []
        parts += [f"{undecided:,} records are undecided"] if undecided else []
        return Result(f"no difference in what was examined, {', '.join(parts)}", is_partial=True)
    return Result("no difference")


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in sorted(counts.items()))
