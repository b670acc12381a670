"""Which source offsets were not copied, and why: the verdicts of a ledger, each offset once.

A later word counts: a lane that was taken over states the verdicts around its take-over once more. What was truncated
stands beside it, as its offsets are in use again for other records.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from mirrord.ledger.state import FlowState
from mirrord.model.facts import AnyFact, Reason, SourceRun, Verdict, VerdictGiven
from mirrord.model.names import LaneId


class Gap(msgspec.Struct, frozen=True):
    """The source offsets [start, end) of a lane were not copied one to one."""

    lane: LaneId
    start: int
    end: int
    reason: Reason
    at_ms: int | None
    """When the ledger was told, by the clock of whoever told it; None: that part of the ledger has been trimmed."""


class Gaps:
    """Takes in a ledger's verdicts in its order, from the newest state that a trimmed ledger left on."""

    def __init__(self, state: FlowState) -> None:
        self._lanes: dict[LaneId, list[Gap]] = {}
        """By lane, in the order of their offsets."""
        self._truncated: list[Gap] = []
        for lane, known in state.lanes.items():
            for verdict in known.verdicts.recent:
                self._add(lane, verdict, None)

    def take(self, fact: AnyFact, at_ms: int) -> None:
        """A fact that binds, or one that the state tells already."""
        match fact:
            case SourceRun() | VerdictGiven():
                for verdict in fact.verdicts:
                    self._add(fact.lane, verdict, at_ms)
            case _:
                pass

    def __iter__(self) -> Iterator[Gap]:
        """Lane by lane, in the order of the offsets."""
        for lane in self._lanes.values():
            yield from lane
        yield from self._truncated

    def _add(self, lane: LaneId, verdict: Verdict, at_ms: int | None) -> None:
        if verdict.end <= verdict.start:
            return
        gap = Gap(lane, verdict.start, verdict.end, verdict.reason, at_ms)
        if gap.reason == "truncated":
            self._truncated = [each for each in self._truncated if not _is_same(each, gap)] + [gap]
            return
        gaps = self._lanes.setdefault(lane, [])
        first = bisect_right(gaps, gap.start, key=lambda each: each.end)
        behind = bisect_left(gaps, gap.end, key=lambda each: each.start)
        left: list[Gap] = []
        for old in gaps[first:behind]:
            pieces = ((old.start, gap.start), (gap.end, old.end))
            left += [msgspec.structs.replace(old, start=start, end=end) for start, end in pieces if end > start]
        gaps[first:behind] = sorted([*left, gap], key=lambda each: each.start)


def _is_same(one: Gap, other: Gap) -> bool:
    return (one.lane, one.start, one.end) == (other.lane, other.start, other.end)
