"""Verdicts that are somebody's answer, not a fact of the source: asked again, a filter may answer otherwise.

Whoever takes a lane over asks again about what nobody had told the ledger. What was told behind that is void then, runs
and answers alike, and is told anew.
"""

from collections.abc import Iterable, Sequence

from mirrord.ledger.facts.core import HoleFound, Reason
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run, Runs

DECIDED: frozenset[Reason] = frozenset({"filtered", "rejected", "skipped"})
EVERYTHING_BEHIND = 1 << 63

Piece = tuple[int, int, int]
"""Ordinals that follow each other, with their source offsets: the first ordinal, its offset, how many."""


def void_pieces(runs: Runs, hole: HoleFound) -> list[Piece]:
    """The source offsets of an open hole: they were told as unexplained, and count as that for as long as nobody tells
    its ordinals anew."""
    return list(runs.between(hole.first, hole.last)) if hole.is_open else []


def void_no_longer(pieces: Iterable[Piece], lowest: int) -> tuple[list[Interval], list[Piece]]:
    """Ordinals from `lowest` on are told anew, and with them what is copied, or not, of the offsets that nobody could
    explain: these offsets, and the pieces that are left."""
    ranges: list[Interval] = []
    left: list[Piece] = []
    for ordinal, offset, length in pieces:
        kept = min(max(lowest - ordinal, 0), length)
        if kept:
            left.append((ordinal, offset, kept))
        if kept < length:
            ranges.append((offset + kept, offset + length))
    return ranges, left


def answered_anew(runs: Runs, told: Sequence[Run], above: int) -> list[Interval]:
    """The source offsets of which runs that were just told say that they are copied, or that the lane comes to them
    again: what was decided about those before no longer counts. Nothing when all of them lie above an offset."""
    if not told:
        return []
    lowest, last = min(run.ordinal for run in told), max(run.ordinal for run in told)
    if min(run.offset for run in told) >= above:
        return []
    found = [(offset, offset + length) for _, offset, length in runs.between(lowest, last - 1)]
    newest, behind = runs.last, runs.offset_of(last)
    if newest is not None and newest.ordinal <= last and behind is not None:
        found.append((behind, EVERYTHING_BEHIND))
    return found
