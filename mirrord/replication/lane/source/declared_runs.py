"""Determines what the ledger contains about the ordinal at which a lane resumes and about all later ordinals.

The runs of these ordinals show which records are still to be copied again. Such records are not in source order. The
lane is back in source order at the first ordinal from which every source offset is higher than all offsets before it.
The ordinals in the fact about a hole (`HoleFound`) do not show what is still to be copied again. They become out of
date when a later plan begins where an older one ends, or when a plan is shortened.

If a plan omits records on purpose because the target has newer records with the same keys, the runs do not show where
the plan ends. Only the field `until` of a `HoleFound` with an empty range of ordinals shows this.
"""

from bisect import insort
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from mirrord.ledger.facts.core import HoleFound
from mirrord.model.intervals import Interval, uncovered, within
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.second_path import NOT_YET, Decided
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import (
    AscendingPart,
    HeldOffsets,
    ascending_parts,
    highest_copied,
    mapped,
)

Pieces = list[tuple[int, int, int]]
"""Triples (ordinal, former ordinal, length) of consecutive records that get different ordinals."""


class RestOfPlan(NamedTuple):
    """The records that are still to be copied again from an ordinal onward. Each record occurs once."""

    runs: list[Run]
    """The first run begins at the ordinal from which records are copied again. The last run begins where the lane
    continues in source order."""
    pieces: Pieces
    until: int
    """The ordinal, according to the ledger, at which the lane continues in source order."""
    differs: bool
    """Whether the ledger has different runs for these records. If so, the ledger's runs contain records that lower
    ordinals already have, or that the source has lost."""


def jumps(record: LaneRecord, ordinal: int, left: RestOfPlan | None) -> list[Run]:
    """Return the runs in the ledger that begin after `ordinal` and at or before the ordinal at which the plan ends.
    `left` is the rest of the plan. If it is None, the result is empty."""
    return [] if left is None else list(record.source_runs.beginning_in(ordinal + 1, left.until))


def rest(record: LaneRecord, ordinal: int, looked_up: Sequence[tuple[int, int]] = ()) -> RestOfPlan | None:
    """Return the records that are still to be copied again from an ordinal onward. If there are none, the lane
    continues in source order, and the result is None. The records of the ordinals (first, last) in `looked_up` are
    omitted."""
    if not any(hole.first < ordinal for hole in record.holes):
        return None
    least = max([ordinal, *(hole.until for hole in _leaving_out(record) if hole.first < ordinal)])
    held = HeldOffsets(record, ordinal, looked_up)
    if least == ordinal and _is_in_order(record, ordinal, held):
        return None
    found = _rest(record, ordinal, least, held)
    # A plan that begins within this plan, or where this plan ends, is part of this plan.
    orders = [hole for hole in record.holes if hole.first > hole.last]
    while found and (further := [each.until for each in orders if each.again <= found.until < each.until]):
        found = _rest(record, ordinal, max(further), held)
    return found


def in_source_order(record: LaneRecord, left: RestOfPlan) -> RestOfPlan:
    """Return the same records in source order.

    If a lane resumes below the ordinals under which the records of a hole were to be copied again, these records follow
    others with higher source offsets, which the lane also has to copy again.
    """
    begin_at, last = left.pieces[0][0], left.runs[-1]
    copied = [each for _, former, length in left.pieces[:-1] for each in mapped(record, former, former + length - 1)]
    runs: list[Run] = []
    pieces: Pieces = []
    for former, offset, length in sorted(copied, key=_source_offset):
        runs.append(Run(begin_at, offset))
        pieces.append((begin_at, former, length))
        begin_at += length
    differs = any(at != former for at, former, _ in pieces) or left.differs
    goes_on = Run(begin_at, last.offset + begin_at - last.ordinal)
    return left._replace(runs=_joined([*runs, goes_on]), pieces=[*pieces, left.pieces[-1]], differs=differs)


def _source_offset(piece: tuple[int, int, int]) -> int:
    return piece[1]


def _is_in_order(record: LaneRecord, ordinal: int, held: HeldOffsets) -> bool:
    """Return whether it is certain that the lane continues in source order at an ordinal: no record before this ordinal
    has a higher source offset, and no record after it has a lower one. After this ordinal, it is sufficient to check
    the ordinals at which the source offset decreases."""
    runs = record.source_runs
    offset = runs.offset_of(ordinal)
    if offset is None or offset >= _lost_from(record, ordinal) or held.highest() >= offset:
        return False
    return all(offset < (runs.offset_of(turn) or 0) for turn in runs.turns if turn > ordinal)


def _leaving_out(record: LaneRecord) -> list[HoleFound]:
    """Return the holes whose plans may omit records on purpose.

    There are two kinds of such holes. The first kind has an empty range of ordinals (`HoleFound`). A hole of the second
    kind was recorded later than one of these holes, for ordinals that were part of its plan. In this case, an earlier
    version of mirrord recorded only the later hole, whereas this version also records another hole with an empty range
    (see `hole_repair`).
    """
    orders = [number for number, hole in enumerate(record.holes) if hole.first > hole.last]
    found = [record.holes[number] for number in orders]
    for hole in record.holes[orders[-1] + 1 :] if orders else ():
        if any(each.again - 1 <= hole.last and hole.first < each.until for each in found):
            found.append(hole)
    return found


def _rest(record: LaneRecord, ordinal: int, least: int, held: HeldOffsets) -> RestOfPlan | None:
    """Return what is left of a plan for copying records again. The result extends at least to the ledger's ordinal
    `least`.

    It ends with the ordinal at which the lane continues in source order. All records in the target, and all records
    that the plan copies earlier, have lower source offsets than the record of this ordinal. All later records have
    higher source offsets.
    """
    parts = _Parts(record, ordinal, least, held)
    later = [each for each in ascending_parts(record, ordinal, parts.until) if each.first > ordinal]
    kept: list[Run] = []
    pieces: Pieces = []
    highest, blocked = held.highest(), max(ordinal, least)
    for run, former, length in parts:
        kept.append(run)
        pieces.append((run.ordinal, former, length))
        if former >= blocked and run.offset > highest:
            blocked = next((each.first for each in later if parts.lacks(each, former, run.offset)), -1)
            if blocked < 0:
                break
        highest = max(highest, run.offset + length - 1)
    if not kept:
        return None
    pieces[-1] = (*pieces[-1][:2], 1)
    differs = any(at != former for at, former, _ in pieces)
    if len(kept) == 1 and not (
        differs and (any(mapped(record, ordinal, ordinal)) or kept[0].offset < _lost_from(record, ordinal))
    ):
        return None
    return RestOfPlan(_joined(kept), pieces, pieces[-1][1], differs)


def _lost_from(record: LaneRecord, ordinal: int) -> int:
    """Return the lowest offset at which the source log has been truncated since the record of this ordinal was copied,
    or `NEVER`. If the ordinal maps to that offset or a higher one, the source has lost the record."""
    return min((start for beyond, start in record.truncations if ordinal < beyond), default=NEVER)


class _Parts:
    """The records that the ledger's runs contain from an ordinal onward, as triples (run, former ordinal, length).

    The triples extend to the ordinal `least` or to the ordinal from which the runs are in source order, whichever is
    higher. Each record occurs in one triple, and records that the target already holds are omitted.
    """

    def __init__(self, record: LaneRecord, ordinal: int, least: int, held: HeldOffsets) -> None:
        self._record, self._ordinal, self._least, self._held = record, ordinal, least, held
        self.until = max(least, _in_order_from(record)) if record.holes else least
        self._had: list[Interval] = []

    def __iter__(self) -> Iterator[tuple[Run, int, int]]:
        continues_at = self._record.source_runs.offset_of(self.until)
        if self.until <= self._ordinal or continues_at is None:
            return
        least, begin_at, self._had = self._least, self._ordinal, []
        for former, offset, length in mapped(self._record, begin_at, self.until - 1):
            # A part ends at `least`, so that the lane can continue there.
            for begin, end in pairwise(sorted({former, min(max(least, former), former + length), former + length})):
                for start, behind in list(self._lacking(offset + begin - former, offset + end - former)):
                    insort(self._had, (start, behind))
                    yield Run(begin_at, start), former + start - offset, behind - start
                    begin_at += behind - start
        yield Run(begin_at, next(self._lacking(continues_at, NEVER))[0]), self.until, 1

    def _lacking(self, start: int, end: int) -> Iterator[Interval]:
        """Yield those parts of the source offsets [start, end) that are neither in the target nor in the earlier parts
        that the iterator has yielded."""
        return uncovered((start, end), [*self._held.within(start, end), *within((start, end), self._had)])

    def lacks(self, other: AscendingPart, ordinal: int, offset: int) -> bool:
        """Return whether the part `other` of the source runs begins after `ordinal`, and contains a record that still
        has to be copied. Such a record has a source offset below `offset`, is not in the target, and is in none of the
        pieces that this iterator has yielded so far."""
        if other.first <= ordinal or other.lowest >= offset:
            return False
        limit = min(offset, other.limit)
        for _, start, length in self._record.source_runs.between(other.first, other.end - 1):
            if start >= limit:
                return False
            if any(self._lacking(start, min(start + length, limit))):
                return True
        return False


def _in_order_from(record: LaneRecord) -> int:
    """Return the first ordinal from which every source offset is higher than all offsets before it, regardless of lost
    records. Return -1 if no run goes back to a lower source offset after the first ordinal of the first hole."""
    runs, first_hole = record.source_runs, min(hole.first for hole in record.holes)
    turns = [turn for turn in runs.turns if turn > first_hole]
    if not turns:
        return -1
    highest = max(runs.offset_of(turn - 1) or 0 for turn in turns)
    first = runs.position(turns[-1])
    at = runs.floor(highest, first, len(runs))
    if at < first:
        return turns[-1]
    ordinal = runs.at(at).ordinal + highest + 1 - runs.at(at).offset
    return min(ordinal, runs.at(at + 1).ordinal) if at + 1 < len(runs) else ordinal


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Return the runs without those that merely continue the run before them."""
    return [runs[0], *(run for one, run in pairwise(runs) if run.offset - run.ordinal != one.offset - one.ordinal)]


def decided_below(record: LaneRecord) -> int:
    """Return the first ordinal of the last run in the ledger. For all lower ordinals, the ledger contains the decision
    to copy their records. It does not contain this decision for the ordinals of the last run: this run has no end, so
    it also assigns ordinals to records that may not be copied."""
    last = record.source_runs.last
    return 0 if last is None else last.ordinal


def decided(record: LaneRecord, ordinal: int) -> Decided:
    """Return the ledger's decisions on the records from an ordinal up to the last run in the ledger."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return NOT_YET
    # The source may have other records at the offsets of those that it has lost.
    pieces = sorted((offset, length) for _, offset, length in mapped(record, ordinal, last.ordinal - 1))
    return Decided(tuple(pieces), last.offset, tuple(torn(record, ordinal)))


def torn(record: LaneRecord, ordinal: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of source offsets after an ordinal for which the ledger has neither a run nor a verdict. The
    fact about such a range was lost, whereas a later fact took effect. No record after such a range has been
    produced."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return
    # A "truncated" verdict is about other records than those that the source has at its offsets now.
    judged = sorted((each.start, each.end) for each in record.newest_verdicts if each.reason != "truncated")
    known = NEVER
    for _, offset, length in (*mapped(record, ordinal, last.ordinal - 1), (last.ordinal, last.offset, 0)):
        for start, end in judged:
            if known < start < offset:
                yield known, start
            known = max(known, end) if start < offset else known
        if known < offset:
            yield known, offset
        known = offset + length


def mended_until(record: LaneRecord, ordinal: int) -> int:
    """Return the end of the records that the lane still has to copy again from `ordinal` onward: the ordinal after the
    last of them. If there are none, return `ordinal` if the record before it was the last record to be copied again,
    and -1 otherwise."""
    found = rest(record, ordinal)
    if found is not None and found.until > ordinal:
        return found.until
    before = rest(record, ordinal - 1)
    return ordinal if before is not None and before.until == ordinal else -1


def continues_at(record: LaneRecord, ordinal: int, looked_up: Sequence[tuple[int, int]] = ()) -> int | None:
    """Return the source offset at which a lane continues if it resumes at this ordinal. `looked_up` contains ranges of
    ordinals (first, last) that have already been looked up. Their records are omitted, as in `rest`.

    If both source and target have lost the record of this ordinal, the result is the offset after the last copied
    record that the source still has. The records between that offset and the truncation were not copied. The source may
    have lost some of them as well, and may have others there, which the lane has not read.
    """
    offset = record.source_runs.offset_of(ordinal)
    if offset is None:
        return None
    if (found := rest(record, ordinal, looked_up)) is not None:
        return found.runs[0].offset
    cuts = [(beyond, start) for beyond, start in record.truncations if ordinal < beyond and start <= offset]
    if not cuts:
        return offset
    lost_from = min(start for _, start in cuts)
    last = highest_copied(record, 0, ordinal, lost_from)
    if last is not None:
        return last[0] + 1
    return min([lost_from, *(record.source_runs.offset_of(beyond) or 0 for beyond, _ in cuts)])
