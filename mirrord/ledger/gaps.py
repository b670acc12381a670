"""Collects, from the verdicts in a ledger, the source offsets that were not copied and the reasons.

A later verdict overrides an earlier one on the same offsets. After a takeover, a lane records the verdicts near its
position again, and it may copy records that an earlier verdict had excluded. A "truncated" verdict is different. It
removes everything that was recorded earlier about its offsets. It does not affect facts that are recorded later: the
source uses these offsets again for different records, and the later facts are about those records.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from mirrord.ledger.decided_verdicts import (
    DECIDED,
    NOT_COPIED,
    VoidPiece,
    invalidated_decisions,
    rebuilt_offsets,
    void_no_longer,
    void_pieces,
)
from mirrord.ledger.facts.core import AnyFact, HoleFound, MapRebuilt, Reason, SourceRun, Verdict, VerdictGiven
from mirrord.ledger.state import FlowState
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.names import LaneId
from mirrord.model.runs import Runs

_NEVER = 1 << 63


class Gap(msgspec.Struct, frozen=True):
    """A range [start, end) of source offsets, with the verdict on them. Either the offsets were not copied, or the
    source lost their records after they had been copied and now uses the offsets again ("truncated")."""

    lane: LaneId
    start: int
    end: int
    reason: Reason
    at_ms: int | None
    """The time at which the verdict was recorded, by the clock of its writer. None if that part of the ledger has been
    trimmed."""


class Gaps:
    """The gaps in all lanes of one flow. Initially, the object contains the verdicts in the given state. If the ledger
    was trimmed, its older verdicts exist only in this state. `take` then adds the verdicts of each fact, in ledger
    order.

    The caller must fold each fact into the state before it passes the fact to `take`.
    """

    def __init__(self, state: FlowState) -> None:
        self._state = state
        self._decided: dict[LaneId, int] = {}
        """For each lane, an offset above which the lane has no verdict with a reason in `DECIDED`."""
        self._lanes: dict[LaneId, list[Gap]] = {}
        """The gaps of each lane, in the order of their offsets."""
        self._void: dict[LaneId, list[VoidPiece]] = {}
        """The parts of each lane's holes for which nothing is copied again. Their source offsets are "unexplained"."""
        self._entry: dict[LaneId, tuple[SourceRun, list[HoleFound]]] = {}
        """For each lane, the newest `SourceRun`, and the holes that were recorded after it. If a `MapRebuilt` follows
        in the same entry, these runs and holes are the rebuilt map."""
        self._truncated: list[Gap] = []
        self._forgotten: dict[LaneId, int] = {}
        for lane, known in state.lanes.items():
            tally = known.verdicts
            if sum(tally.counts.values()) > sum(verdict.end - verdict.start for verdict in tally.recent):
                self._forgotten[lane] = tally.recent[0].start if tally.recent else _NEVER
            for verdict in known.verdicts.recent:
                self._add(lane, verdict, None)
            for hole in known.holes:
                self._note_void(lane, hole)

    def take(self, fact: AnyFact, at_ms: int) -> None:
        """Add the verdicts that a fact contains, and drop older verdicts that it overrides or withdraws. `at_ms` is the
        time at which the fact was recorded. Only pass facts that have taken effect or that are already part of the
        state."""
        match fact:
            case SourceRun() | VerdictGiven():
                if isinstance(fact, SourceRun):
                    self._invalidate_decisions(fact)
                    self._void_no_longer(fact)
                    self._entry[fact.lane] = (fact, [])
                for verdict in fact.verdicts:
                    self._add(fact.lane, verdict, at_ms)
            case HoleFound():
                self._note_void(fact.lane, fact)
                if fact.lane in self._entry:
                    self._entry[fact.lane][1].append(fact)
            case MapRebuilt() if fact.withdraws_verdicts:
                self._withdraw_copied(fact)
            case _:
                pass

    def forgotten_below(self, lane: LaneId) -> int:
        """Return the source offset below which the ledger may have lost verdicts when it was trimmed; 0 if all verdicts
        are known."""
        return self._forgotten.get(lane, 0)

    def __iter__(self) -> Iterator[Gap]:
        """Yield all gaps except "truncated" ones, lane by lane and in the order of their offsets. Then yield the
        "truncated" gaps of all lanes."""
        for lane in self._lanes.values():
            yield from lane
        yield from self._truncated

    def _add(self, lane: LaneId, verdict: Verdict, at_ms: int | None) -> None:
        if verdict.end <= verdict.start:
            return
        gap = Gap(lane, verdict.start, verdict.end, verdict.reason, at_ms)
        if gap.reason in DECIDED:
            self._decided[lane] = max(gap.end, self._decided.get(lane, 0))
        if gap.reason == "truncated":
            self._truncated = [each for each in self._truncated if not _is_same(each, gap)] + [gap]
        self._put(lane, (gap.start, gap.end), [] if gap.reason == "truncated" else [gap])

    def _invalidate_decisions(self, fact: SourceRun) -> None:
        known, decided = self._state.lanes.get(fact.lane), self._decided.get(fact.lane)
        if known is None or decided is None:
            return
        for start, end in invalidated_decisions(known.source_runs, fact.runs, decided):
            stays = [each for each in self._within(fact.lane, (start, end)) if each.reason not in DECIDED]
            self._put(fact.lane, (start, end), stays)

    def _note_void(self, lane: LaneId, hole: HoleFound) -> None:
        known = self._state.lanes.get(lane)
        if known is not None:
            self._void.setdefault(lane, []).extend(void_pieces(known.source_runs, hole))

    def _void_no_longer(self, fact: SourceRun) -> None:
        if fact.lane not in self._void or not fact.runs:
            return
        lowest = min(run.ordinal for run in fact.runs)
        ranges, self._void[fact.lane] = void_no_longer(self._void[fact.lane], lowest)
        for start, end in ranges:
            stays = [each for each in self._within(fact.lane, (start, end)) if each.reason != "unexplained"]
            self._put(fact.lane, (start, end), stays)

    def _withdraw_copied(self, fact: MapRebuilt) -> None:
        # The state may already contain later runs and holes for these ordinals.
        known = self._entry.get(fact.lane)
        if known is None:
            return
        for start, end in rebuilt_offsets(Runs(known[0].runs), known[1], fact):
            for gap in self._within(fact.lane, (start, end)):
                if gap.reason in NOT_COPIED:
                    self._put(fact.lane, (gap.start, gap.end), [])

    def _within(self, lane: LaneId, where: Interval) -> list[Gap]:
        """Return the gaps of a lane within a range, clipped to this range."""
        gaps, (start, end) = self._lanes.get(lane, []), where
        return [_cut(each, max(each.start, start), min(each.end, end)) for each in gaps[slice(*_touched(gaps, where))]]

    def _put(self, lane: LaneId, where: Interval, instead: list[Gap]) -> None:
        """Replace the gaps of a lane within a range with the gaps in `instead`."""
        gaps = self._lanes.setdefault(lane, [])
        first, behind = _touched(gaps, where)
        left = [_cut(old, *piece) for old in gaps[first:behind] for piece in uncovered((old.start, old.end), [where])]
        gaps[first:behind] = sorted([*left, *instead], key=lambda each: each.start)


def _touched(gaps: list[Gap], where: Interval) -> Interval:
    """Return which of the gaps overlap a range: the index of the first one, and the index after the last one."""
    first = bisect_right(gaps, where[0], key=lambda each: each.end)
    return first, bisect_left(gaps, where[1], key=lambda each: each.start)


def _cut(gap: Gap, start: int, end: int) -> Gap:
    return msgspec.structs.replace(gap, start=start, end=end)


def _is_same(one: Gap, other: Gap) -> bool:
    return (one.lane, one.start, one.end) == (other.lane, other.start, other.end)
