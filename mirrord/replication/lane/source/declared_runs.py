"""The ledger's content about ordinals after the one at which a lane resumes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrord.model.intervals import joined, uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.second_path import NOT_YET, Decided
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source import source_epochs


def planned(record: LaneRecord, ordinal: int) -> list[Run]:
    """Return the jumps after an ordinal that the mending of holes still has to make."""
    return list(record.source_runs.beginning_in(ordinal + 1, source_epochs.mended_until(record, ordinal)))


def decided(record: LaneRecord, ordinal: int) -> Decided:
    """Return the decisions in the ledger on records from an ordinal on, up to the last run in the ledger."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return NOT_YET
    pieces = sorted((offset, length) for _, offset, length in record.source_runs.between(ordinal, last.ordinal - 1))
    return Decided(tuple(pieces), last.offset, tuple(torn(record, ordinal)))


def torn(record: LaneRecord, ordinal: int) -> Iterator[tuple[int, int]]:
    """Yield source offsets from an ordinal on for which the ledger has neither a run nor a verdict: their fact was
    lost, and a later one was bound. Nothing after such a gap was produced."""
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


def once(runs: Sequence[Run]) -> tuple[list[Run], list[tuple[int, int, int]]]:
    """Return consecutive runs without the offsets that an earlier one of them contains, and the same as pieces
    (ordinal, former ordinal, length). The ordinals of an open hole have its offsets only for lack of better ones."""
    kept: list[Run] = []
    pieces: list[tuple[int, int, int]] = []
    had: list[tuple[int, int]] = []
    ordinal = runs[0].ordinal
    for run, following in pairwise(runs):
        end = run.offset + following.ordinal - run.ordinal
        for start, behind in uncovered((run.offset, end), had):
            kept.append(Run(ordinal, start))
            pieces.append((ordinal, run.ordinal + start - run.offset, behind - start))
            ordinal += behind - start
        had.append((run.offset, end))
    last = runs[-1]
    goes_on_at = next((end for start, end in joined(had) if start <= last.offset < end), last.offset)
    return [*kept, Run(ordinal, goes_on_at)], [*pieces, (ordinal, last.ordinal, 1)]
