"""The ledger's content about ordinals after the one at which a lane resumes.

What is still to be copied again follows from the runs, and not from the numbers of a hole: those are out of date once a
later plan begins where an older one ends, or once a plan is shortened. The records from an ordinal on are out of order
up to the point after which each offset is higher than all before it. Only if records are left out on purpose, because
the target has newer ones, does nothing but the end of a hole without ordinals show how far the plan reaches.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import NamedTuple

from mirrord.ledger.facts.core import HoleFound
from mirrord.model.intervals import Interval, uncovered, within
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.second_path import NOT_YET, Decided
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import copied_within, mapped

Pieces = list[tuple[int, int, int]]
"""(ordinal, former ordinal, length): consecutive records that get other ordinals."""


class RestOfPlan(NamedTuple):
    """What is still to be copied again from an ordinal on, each record once."""

    runs: list[Run]
    """The first one begins at that ordinal; at the last one the lane continues in the order of the source."""
    pieces: Pieces
    until: int
    """The ledger's ordinal at which the lane continues."""
    differs: bool
    """The ledger has other runs for that: with records that lower ordinals hold already, or that the source lost."""


def planned(record: LaneRecord, ordinal: int) -> list[Run]:
    """Return the jumps after an ordinal that the ledger has for what is still to be copied again."""
    found = rest(record, ordinal)
    return [] if found is None else list(record.source_runs.beginning_in(ordinal + 1, found.until))


def rest(record: LaneRecord, ordinal: int) -> RestOfPlan | None:
    """Return what is still to be copied again from an ordinal on; None if nothing is, so that the lane continues in the
    order of the source."""
    if not any(hole.first < ordinal for hole in record.holes):
        return None
    least = max([ordinal, *(hole.until for hole in _leaving_out(record) if hole.first < ordinal)])
    found = _rest(record, ordinal, least)
    # What begins where the plan ends, or within it, is a part of it.
    orders = [hole for hole in record.holes if hole.first > hole.last]
    while found and (further := [each.until for each in orders if each.again <= found.until < each.until]):
        found = _rest(record, ordinal, max(further))
    return found


def _leaving_out(record: LaneRecord) -> list[HoleFound]:
    """Return the holes whose plans may leave records out on purpose: those without ordinals, and those whose records
    were in such a plan. Since mirrord records a hole without ordinals for the latter too (`hole_repair`), only what
    follows the newest of these counts: an earlier version recorded it."""
    orders = [hole for hole in record.holes if hole.first > hole.last]
    found = list(orders)
    for hole in record.holes[record.holes.index(orders[-1]) + 1 :] if orders else ():
        if any(each.again - 1 <= hole.last and hole.first < each.until for each in found):
            found.append(hole)
    return found


def _rest(record: LaneRecord, ordinal: int, least: int) -> RestOfPlan | None:
    """Return the same, if the lane does not continue before the ledger's ordinal `least`."""
    kept, pieces = ahead(record, ordinal, least)
    if not kept:
        return None
    end = _continues_at(record, ordinal, least, kept, pieces)
    pieces = [*pieces[:end], (pieces[end][0], pieces[end][1], 1)]
    differs = any(at != former for at, former, _ in pieces)
    if end == 0 and not (
        differs and (any(mapped(record, ordinal, ordinal)) or kept[0].offset < _lost_from(record, ordinal))
    ):
        return None
    return RestOfPlan(_joined(kept[: end + 1]), pieces, pieces[end][1], differs)


def _lost_from(record: LaneRecord, ordinal: int) -> int:
    """Return the source offset from which on the source has lost the records of this ordinal and of those after it."""
    return min((start for beyond, start in record.truncations if ordinal < beyond), default=NEVER)


def ahead(record: LaneRecord, ordinal: int, least: int = -1) -> tuple[list[Run], Pieces]:
    """Return what the ledger has from an ordinal on, each record once and without those that the target holds already:
    up to `least`, and to where it is in order in any case. Return nothing if that is not after this ordinal."""
    runs = record.source_runs
    until = max(least, _in_order_from(record)) if record.holes else least
    continues_at = runs.offset_of(until)
    if until <= ordinal or continues_at is None:
        return [], []
    formers: list[tuple[int, int]] = []
    parts: list[Run] = []
    behind = ordinal
    for former, offset, length in mapped(record, ordinal, until - 1):
        # A part ends at `least`, so that the lane can continue there.
        for begin, end in pairwise(sorted({former, min(max(least, former), former + length), former + length})):
            formers.append((behind, begin))
            parts.append(Run(behind, offset + begin - former))
            behind += end - begin
    formers.append((behind, until))
    kept, pieces = once([*parts, Run(behind, continues_at)], partial(copied_within, record, ordinal))
    return kept, [(at, _moved(formers, number), length) for at, number, length in pieces]


def _in_order_from(record: LaneRecord) -> int:
    """Return the first ordinal from which on each offset is higher than all before it, whatever the lane has lost; -1
    if that holds since the first hole."""
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


def _moved(formers: Sequence[tuple[int, int]], number: int) -> int:
    begun, former = formers[bisect_right(formers, number, key=lambda each: each[0]) - 1]
    return former + number - begun


def _continues_at(record: LaneRecord, ordinal: int, least: int, kept: Sequence[Run], pieces: Pieces) -> int:
    """Return the number of the run from which on everything is in order: nothing that the target holds, or that comes
    before, has a higher offset, and nothing that follows has a lower one."""
    lowest = [*accumulate((run.offset for run in reversed(kept)), min)][::-1]
    highest = -1
    for number, (run, (_, former, length)) in enumerate(zip(kept, pieces, strict=True)):
        is_in_order = max(ordinal, least) <= former and highest < run.offset == lowest[number]
        if is_in_order and not any(copied_within(record, ordinal, run.offset, NEVER)):
            return number
        highest = max(highest, run.offset + length - 1)
    return len(kept) - 1


def _joined(runs: Sequence[Run]) -> list[Run]:
    """Return the runs without those that merely continue the one before."""
    return [runs[0], *(run for one, run in pairwise(runs) if run.offset - run.ordinal != one.offset - one.ordinal)]


def decided(record: LaneRecord, ordinal: int) -> Decided:
    """Return the decisions in the ledger on records from an ordinal on, up to the last run in the ledger."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return NOT_YET
    pieces = sorted((offset, length) for _, offset, length in record.source_runs.between(ordinal, last.ordinal - 1))
    return Decided(tuple(pieces), last.offset, tuple(torn(record, ordinal)))


def torn(record: LaneRecord, ordinal: int) -> Iterator[tuple[int, int]]:
    """Yield source offsets from an ordinal on for which the ledger has neither a run nor a verdict: their fact was
    lost, and a later one took effect. Nothing after such a gap was produced."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return
    judged = sorted((verdict.start, verdict.end) for verdict in record.newest_verdicts)
    known = NEVER
    for _, offset, length in (*record.source_runs.between(ordinal, last.ordinal - 1), (last.ordinal, last.offset, 0)):
        for start, end in judged:
            if known < start < offset:
                yield known, start
            known = max(known, end) if start < offset else known
        if known < offset:
            yield known, offset
        known = offset + length


def once(
    runs: Sequence[Run], copied: Callable[[int, int], Iterable[Interval]] = lambda _, __: ()
) -> tuple[list[Run], Pieces]:
    """Return consecutive runs without the offsets that an earlier one of them contains, and the same as pieces
    (ordinal, former ordinal, length). The ordinals of an open hole have its offsets only for lack of better ones.
    `copied` says which offsets of a range the target holds already."""
    kept: list[Run] = []
    pieces: Pieces = []
    had: list[Interval] = []
    ordinal = runs[0].ordinal
    for run, following in pairwise(runs):
        whole = (run.offset, run.offset + following.ordinal - run.ordinal)
        for start, behind in list(uncovered(whole, [*copied(*whole), *within(whole, had)])):
            kept.append(Run(ordinal, start))
            pieces.append((ordinal, run.ordinal + start - run.offset, behind - start))
            ordinal += behind - start
            insort(had, (start, behind))
    last = runs[-1]
    whole = (last.offset, NEVER)
    goes_on_at = next(start for start, _ in uncovered(whole, [*copied(*whole), *within(whole, had)]))
    return [*kept, Run(ordinal, goes_on_at)], [*pieces, (ordinal, last.ordinal, 1)]
