"""Handles verdicts that record a decision, such as the decision of a filter, instead of a property of the source. If a
filter is called again for the same record, its decision may be different.

A replicator that takes over a lane calls the filter again for every record without a decision in the ledger. All runs
and decisions that were recorded for later records are then no longer valid, and are recorded again.
"""

from collections.abc import Iterable, Sequence

from mirrord.ledger.facts.core import HoleFound, Reason
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run, Runs

DECIDED: frozenset[Reason] = frozenset({"filtered", "rejected", "skipped"})
EVERYTHING_BEHIND = 1 << 63

VoidPiece = tuple[int, int, int]
"""Consecutive ordinals of an open hole whose source offsets are consecutive, as (first ordinal, its source offset,
number of ordinals)."""


def void_pieces(runs: Runs, hole: HoleFound) -> list[VoidPiece]:
    """Return the pieces of the hole if it is open; otherwise return nothing. The source offsets of these pieces have
    the verdict "unexplained" until a later run assigns the ordinals of the hole again."""
    return list(runs.between(hole.first, hole.last)) if hole.is_open else []


def void_no_longer(pieces: Iterable[VoidPiece], lowest: int) -> tuple[list[Interval], list[VoidPiece]]:
    """Split the pieces of open holes at the ordinal `lowest`. From this ordinal on, ordinals are assigned again.

    Return the source offsets from `lowest` on, and the pieces below it. The returned offsets lose the verdict
    "unexplained", because the new runs and verdicts say which of them are copied. The returned pieces keep it.
    """
    ranges: list[Interval] = []
    left: list[VoidPiece] = []
    for ordinal, offset, length in pieces:
        kept = min(max(lowest - ordinal, 0), length)
        if kept:
            left.append((ordinal, offset, kept))
        if kept < length:
            ranges.append((offset + kept, offset + length))
    return ranges, left


def invalidated_decisions(runs: Runs, new_runs: Sequence[Run], above: int) -> list[Interval]:
    """Return the source offsets whose earlier decisions the runs `new_runs` invalidate. These are the offsets that
    these runs copy, and the offsets that the lane reaches again after them. Return an empty list if all of these runs
    begin at source offset `above` or higher."""
    if not new_runs:
        return []
    lowest, last = min(run.ordinal for run in new_runs), max(run.ordinal for run in new_runs)
    if min(run.offset for run in new_runs) >= above:
        return []
    found = [(offset, offset + length) for _, offset, length in runs.between(lowest, last - 1)]
    newest, behind = runs.last, runs.offset_of(last)
    if newest is not None and newest.ordinal <= last and behind is not None:
        found.append((behind, EVERYTHING_BEHIND))
    return found
