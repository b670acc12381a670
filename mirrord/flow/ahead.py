"""What the ledger says of the ordinals ahead of the one at which a lane goes on."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrord.flow import lineage
from mirrord.flow.signals import LaneRecord
from mirrord.flow.state import NEVER, NOT_YET, Decided
from mirrord.model.intervals import joined, uncovered
from mirrord.model.runs import Run


def planned(record: LaneRecord, ordinal: int) -> list[Run]:
    """The jumps behind an ordinal that the mending of holes still has to make."""
    return list(record.source_runs.beginning_in(ordinal + 1, lineage.mended_until(record, ordinal)))


def decided(record: LaneRecord, ordinal: int) -> Decided:
    """What the ledger says of records behind an ordinal: of those in front of the last run that it was told of."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return NOT_YET
    pieces = sorted((offset, length) for _, offset, length in record.source_runs.between(ordinal, last.ordinal - 1))
    return Decided(tuple(pieces), last.offset, tuple(torn(record, ordinal)))


def torn(record: LaneRecord, ordinal: int) -> Iterator[tuple[int, int]]:
    """Source offsets behind an ordinal of which the ledger tells neither that they are copied nor that they are not:
    their fact was lost, and a later one was bound. Nothing behind it was produced."""
    last = record.source_runs.last
    if last is None or last.ordinal <= ordinal:
        return
    told = sorted((verdict.start, verdict.end) for verdict in record.newest_verdicts)
    known = NEVER
    for _, offset, length in (*record.source_runs.between(ordinal, last.ordinal - 1), (last.ordinal, last.offset, 0)):
        for start, end in told:
            if known < start < offset:
                yield known, start
            known = max(known, end) if start < offset else known
        if known < offset:
            yield known, offset
        known = offset + length


def once(runs: Sequence[Run]) -> tuple[list[Run], list[tuple[int, int, int]]]:
    """Runs that follow each other, without the offsets that an earlier one of them has; and as pieces (ordinal, ordinal
    so far, length). What stands under the ordinals of an open hole has its offsets for want of better ones."""
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
