"""The exact offset map of a lane. It translates source offsets into target offsets and vice versa and is computed from
the lane's runs.

Translating a source offset `o` answers this question: where does a reader of the target resume if it has already read
all records before `o`? It resumes at the first record in the target log whose source offset is `o` or higher. In this
way, no record is skipped. If the target holds the records in source order, no record is read twice. Translating a
target offset answers the same question for a reader of the source. Nothing is interpolated, and no answer exceeds the
resume position.

Each run usually begins at higher offsets than the previous run. There are three exceptions:

- Records were copied again because of a hole (`HoleFound`), or because the target differed from the source
  (`MapRebuilt`). They are out of order and have higher ordinals than the records that follow them in the source. A
  reader may then have to resume at a record other than the requested one ("reordered").
- If the target has differed from the source, it may hold a record twice. Translations use the first copy.
- The source log was truncated, and its offsets are used again for different records (`LaneState.truncations`).
  Translations use the newer records.

At each exception, the source offsets jump back. The ordinals at which this happens (`Runs.turns`) divide the ordinals
of a lane into a few stretches. Within a stretch, source offsets only increase, so the stretch can be searched by
bisection. The ordinals of a hole have no records and are left out of every search.
"""

from bisect import bisect_right
from itertools import pairwise
from typing import Literal, NamedTuple

import msgspec

from mirrord.ledger.facts.core import HoleFound, Progress
from mirrord.ledger.prune import floor
from mirrord.ledger.state import FlowState, LaneState

TranslationKind = Literal["exact", "reordered", "not_copied", "before_map", "at_end", "unknown"]
"""The kind of the answer to a translation.

- "exact": the requested record is at `offset`.
- "reordered": the requested record is at `record`, but a reader has to resume at the earlier `offset`. Some records
  that follow the requested one in one log precede it in the other log.
- "not_copied": this lane has no record at the requested offset; `offset` is that of the next record.
- "before_map": the requested offset is below all offsets that the map contains.
- "at_end": no record at or after the requested offset has been copied yet. The next one will be at `offset` or higher,
  so the requested offset has to be translated again later.
- "unknown": no reliable answer is possible.
"""


class CopiedPosition(NamedTuple):
    """The position up to which the records of a lane are known to have been copied: the resume position."""

    ordinal: int
    """All ordinals below this one are in the target log."""
    target_offset: int
    """The target offset after the last record whose ordinal is lower than `ordinal`."""
    source_offset: int
    """The source offset that the lane reads next."""
    settled: bool = True
    """Whether the lane has finished with all source offsets below `source_offset`. Otherwise, some of these records may
    not have been acknowledged yet, and their ordinals are `ordinal` or higher."""

    @staticmethod
    def by(progress: Progress) -> "CopiedPosition":
        """Create the position from the lane's progress record."""
        return CopiedPosition(progress.ordinal, progress.target_offset, progress.source_offset, progress.settled)


def finished_below(lane: LaneState, copied: CopiedPosition) -> int:
    """Return the source offset below which the lane has finished with everything."""
    if copied.settled:
        return copied.source_offset
    # The first record that may not have been acknowledged has the first ordinal that does not count as copied.
    pending = lane.source_runs.offset_of(copied.ordinal)
    return copied.source_offset if pending is None else min(pending, copied.source_offset)


def recorded_position(state: FlowState, lane: LaneState) -> int | None:
    """Return the source offset below which the lane has finished with everything, according to its progress record. If
    it has none, return the source offset at which it begins, or None if this is not known."""
    progress = state.progress.get(lane.key.id)
    if progress is not None:
        return finished_below(lane, CopiedPosition.by(progress))
    first = lane.source_runs.first
    return None if first is None else first.offset


class Translation(msgspec.Struct, frozen=True):
    """The result of translating an offset in one log of a lane into an offset in the other log."""

    asked: int
    kind: TranslationKind
    offset: int | None
    """Where a reader resumes in the other log; None if this is unknown."""
    record: int | None = None
    """The offset of the requested record in the other log, if it exists there."""
    reason: str = ""
    """Why the answer is not "exact".

    - For "not_copied", it is a `Reason` of the ledger, or one of the following. "pending": the record will be copied
      after the records that are already there. "foreign": another client wrote the record. Empty: the state keeps
      only the newest verdicts of a lane, and this one is no longer among them.
    - For "before_map", it is one of the following. "inherited": MirrorMaker 2 copied the record, to an offset that is
      not recorded. "forgotten": both logs began after the record when the map was pruned. "start": the lane began after
      the record.
    - For "unknown", it is a readable sentence.
    """
    ahead: int = 0
    """The number of source offsets below the requested one that the lane has not finished with. It is set only for
    "at_end", and only when a source offset is translated into a target offset."""


class _Stretch(NamedTuple):
    """A range of ordinals [first, end) in which source offsets only increase. Its records at source offset `limit` or
    higher were lost when the source log was truncated, and these offsets now belong to different records."""

    first: int
    end: int
    limit: int


_NEVER = 1 << 63
NOTHING = "none of it has been copied yet"


class LaneMap:
    """The offset map of one lane in its current state. It is cheap to create. When the lane or its resume position
    changes, a new object is created."""

    def __init__(self, lane: LaneState, copied: CopiedPosition | None) -> None:
        self._lane = lane
        self._source = lane.source_runs
        self._target = lane.target_runs
        self._copied = copied
        self._voids = voids(lane.holes)
        self._void_starts = [first for first, _ in self._voids]
        self._floor = floor(lane)
        self._stretches = _stretches(lane, self._floor) if len(self._source) else []
        check = lane.last_check
        self._differs = check.first if check and lane.halted and check.outcome == "different" else _NEVER

    def to_target(self, offset: int) -> Translation:
        """Return where a reader of the target resumes if it has read the source up to `offset`."""
        copied = self._copied
        if copied is None or not self._stretches:
            return Translation(offset, "unknown", None, reason=NOTHING)
        first, record, is_pending = self._find(offset, copied.ordinal)
        if first >= self._differs or (first < 0 and self._differs < _NEVER):
            return Translation(offset, "unknown", None, reason=self._differs_line())
        if record >= 0:
            there = self._target.offset_of(record)
            if record == first:
                return Translation(offset, "exact", there, there)
            return Translation(offset, "reordered", self._target.offset_of(first), there)
        there = copied.target_offset if first < 0 else self._target.offset_of(first)
        if is_pending:
            return Translation(offset, "not_copied", there, reason="pending")
        if offset < self._lowest():
            inherited = self._lane.inherited
            if inherited is not None and offset < inherited.position:
                return Translation(offset, "before_map", None, reason="inherited")
            return Translation(offset, "before_map", there, reason="forgotten" if self._floor else "start")
        if first < 0:
            return Translation(offset, "at_end", there, ahead=max(0, offset - finished_below(self._lane, copied)))
        return Translation(offset, "not_copied", there, reason=self._verdict(offset))

    def _find(self, offset: int, end: int) -> tuple[int, int, bool]:
        """Look up a source offset among the ordinals below `end`. Return three values:

        - the lowest ordinal whose record has this source offset or a higher one; -1 if there is none
        - the lowest ordinal whose record has exactly this source offset; -1 if there is none
        - whether the record with this source offset is still to be copied, although records with higher source offsets
          have already been copied
        """
        first = -1
        for stretch in self._stretches:
            ordinal = self._first_from(stretch, offset)
            if ordinal < 0:
                continue
            is_record = self._source.offset_of(ordinal) == offset
            if ordinal >= end:
                return first, -1, is_record and first >= 0
            first = ordinal if first < 0 else first
            if is_record:
                return first, ordinal, False
        return first, -1, False

    def to_source(self, offset: int) -> Translation:
        """Return where a reader of the source resumes if it has read the target up to `offset`."""
        copied, runs = self._copied, self._target
        if copied is None or not self._stretches:
            return Translation(offset, "unknown", None, reason=NOTHING)
        if self._differs < _NEVER:
            return Translation(offset, "unknown", None, reason=self._differs_line())
        at = runs.floor(offset, runs.near(self._floor), len(runs))
        ordinal, is_own, is_before = self._floor, False, True
        if at >= 0:
            run = runs.at(at)
            ordinal = run.ordinal + offset - run.offset
            end = runs.at(at + 1).ordinal if at + 1 < len(runs) else _NEVER
            is_before = ordinal < self._floor
            is_own = self._floor <= ordinal < min(end, copied.ordinal) and not self._is_void(ordinal)
            ordinal = max(min(ordinal, end), self._floor)
        ordinal = min(self._live_from(ordinal), max(copied.ordinal, self._floor))
        there = self._lowest_from(ordinal)
        if is_own:
            stretch = next(each for each in self._stretches if each.first <= ordinal < each.end)
            record = self._source.offset_of(ordinal)
            if record is not None and record < stretch.limit:
                return Translation(offset, "exact" if there == record else "reordered", there, record)
            return Translation(offset, "not_copied", there, reason="truncated")
        if offset >= copied.target_offset:
            return Translation(offset, "at_end", there)
        if not is_before:
            return Translation(offset, "not_copied", there, reason="foreign")
        if self._lane.inherited is not None and offset < self._lane.inherited.target_end:
            return Translation(offset, "before_map", None, reason="inherited")
        return Translation(offset, "before_map", there, reason="forgotten" if self._floor else "start")

    def _first_from(self, stretch: _Stretch, offset: int) -> int:
        """Return the first ordinal of a stretch whose record was not truncated and has this source offset or a higher
        one. Return -1 if there is none."""
        if offset >= stretch.limit:
            return -1
        runs = self._source
        first, end = runs.near(stretch.first), runs.position(stretch.end)
        at = runs.floor(offset, first, end)
        if at < first:
            ordinal = stretch.first
        else:
            run = runs.at(at)
            ordinal = run.ordinal + offset - run.offset
            if at + 1 < end:
                ordinal = min(ordinal, runs.at(at + 1).ordinal)
        return self._counted_from(stretch, ordinal)

    def _counted_from(self, stretch: _Stretch, ordinal: int) -> int:
        ordinal = self._live_from(max(ordinal, stretch.first))
        if ordinal >= stretch.end:
            return -1
        offset = self._source.offset_of(ordinal)
        return -1 if offset is None or offset >= stretch.limit else ordinal

    def _lowest_from(self, ordinal: int) -> int | None:
        """Return the lowest source offset of the records with this ordinal or a higher one."""
        offsets = [
            self._source.offset_of(first)
            for stretch in self._stretches
            if stretch.end > ordinal and (first := self._counted_from(stretch, ordinal)) >= 0
        ]
        return min((offset for offset in offsets if offset is not None), default=None)

    def _lowest(self) -> int:
        lowest = self._lowest_from(self._floor)
        return -1 if lowest is None else lowest

    def _is_void(self, ordinal: int) -> bool:
        at = bisect_right(self._void_starts, ordinal) - 1
        return at >= 0 and ordinal <= self._voids[at][1]

    def _live_from(self, ordinal: int) -> int:
        """Return the first ordinal at or after `ordinal` that is not in a hole."""
        at = bisect_right(self._void_starts, ordinal) - 1
        return max(ordinal, self._voids[at][1] + 1) if at >= 0 else ordinal

    def _verdict(self, offset: int) -> str:
        for verdict in reversed(self._lane.verdicts.recent):
            if verdict.start <= offset < verdict.end and verdict.reason != "doubled":
                return verdict.reason
        return ""

    def _differs_line(self) -> str:
        return f"target and source differ from ordinal {self._differs} on, and the map must be rebuilt"


def voids(holes: tuple[HoleFound, ...]) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of the ordinals in holes, which have no records. The ranges are sorted, and
    adjacent ranges are merged."""
    found: list[tuple[int, int]] = []
    for first, last in sorted((hole.first, hole.last) for hole in holes if hole.first <= hole.last):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _stretches(lane: LaneState, floor: int) -> list[_Stretch]:
    """Divide the lane's ordinals, starting at `floor`, into stretches in which source offsets only increase."""
    cuts = [ordinal for ordinal, _ in lane.truncations]
    edges = sorted({floor, _NEVER, *(each for each in (*cuts, *lane.source_runs.turns) if each > floor)})
    return [
        _Stretch(first, end, min((start for ordinal, start in lane.truncations if ordinal > first), default=_NEVER))
        for first, end in pairwise(edges)
    ]
