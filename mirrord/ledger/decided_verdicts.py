"""Determines which earlier verdicts no longer apply because of a later fact.

Most of these verdicts record a decision, such as that of a filter, rather than a property of the source. If a filter is
called again for the same record, it may decide differently.

A replicator that takes over a lane calls the filter again for every record without a decision in the ledger. It then
records new runs. From then on, the runs and decisions that the ledger already contains for later source records are no
longer valid, and the replicator records them again.

Some verdicts come with the source epochs of their records. This module also determines how long these epochs apply.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import get_args

from mirrord.ledger.facts.core import HoleFound, MapRebuilt, Reason
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.runs import Run, Runs

DECIDED: frozenset[Reason] = frozenset({"filtered", "rejected", "skipped"})
NOT_COPIED: frozenset[Reason] = frozenset(get_args(Reason)) - {"doubled", "truncated"}
"""The reasons that do not apply to a source offset whose record is in the target."""
EVERYTHING_BEHIND = 1 << 63

LeftOutEpochs = tuple[tuple[int, int, int], ...]
"""The leader epochs of source records that are not copied again (`VerdictGiven.epochs`): triples (start, end, epoch) of
source offsets, in ascending order and without overlap."""
LEFT_OUT_EPOCHS_KEPT = 128
"""Maximum number of these triples that are kept for a lane."""

VoidPiece = tuple[int, int, int]
"""A part of a hole for which nothing is copied again (`HoleFound.is_open`). The ordinals of the part are consecutive,
and so are their source offsets. The tuple contains the first ordinal, its source offset, and the number of ordinals."""


def void_pieces(runs: Runs, hole: HoleFound) -> list[VoidPiece]:
    """Return the parts of a hole for which nothing is copied again (`HoleFound.is_open`). The list is empty for other
    holes. The source offsets of these parts have the verdict "unexplained" until later runs assign the ordinals of the
    hole to different records."""
    return list(runs.between(hole.first, hole.last)) if hole.is_open else []


def void_no_longer(pieces: Iterable[VoidPiece], lowest: int) -> tuple[list[Interval], list[VoidPiece]]:
    """Split the pieces at the ordinal `lowest`, because new runs have assigned the ordinals at or above it to different
    records.

    Return two lists. The first one contains the source offsets of the ordinals at or above `lowest`. These offsets lose
    the verdict "unexplained", because the new runs and verdicts say which of them are copied. The second one contains
    the pieces with the ordinals below `lowest`. Their offsets keep this verdict.
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
    """Return the source offsets on which earlier decisions are no longer valid because the runs `new_runs` were
    recorded.

    These are the source offsets in the new runs. If no other run follows the new ones, all higher source offsets are
    returned as well, because the lane reaches them again. No decision has been recorded for source offsets at or above
    `above`. The list is therefore empty if all new runs begin there.
    """
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


def epochs_after_verdicts(known: LeftOutEpochs, new: LeftOutEpochs) -> LeftOutEpochs:
    """Return the epochs of left-out records after verdicts with the epochs `new` have been recorded. For offsets that
    both contain, the newer epoch applies. Only the highest ranges are kept: a source that loses records loses its
    newest ones."""
    if not new:
        return known
    taken = [(start, end) for start, end, _ in new]
    found: list[tuple[int, int, int]] = []
    for start, end, epoch in sorted([*_uncovered(known, taken), *new]):
        if found and found[-1][1:] == (start, epoch):
            found[-1] = (found[-1][0], end, epoch)
        elif start < end:
            found.append((start, end, epoch))
    return tuple(found[-LEFT_OUT_EPOCHS_KEPT:])


def epochs_after_runs(known: LeftOutEpochs, runs: Sequence[Run], lost: Sequence[int]) -> LeftOutEpochs:
    """Return the epochs of left-out records after `runs` have been recorded. The lane copies the records of these runs,
    so they are not left out any longer. `lost` contains the source offsets from which the source has lost its
    records."""
    if not known or not runs:
        return known
    ordered = sorted(runs, key=lambda run: run.ordinal)
    taken = [(run.offset, run.offset + behind.ordinal - run.ordinal) for run, behind in pairwise(ordered)]
    taken.append((min([ordered[-1].offset, *lost]), EVERYTHING_BEHIND))
    return tuple(_uncovered(known, taken))


def _uncovered(known: LeftOutEpochs, taken: Sequence[Interval]) -> Iterator[tuple[int, int, int]]:
    return ((*part, epoch) for start, end, epoch in known for part in uncovered((start, end), taken))


def rebuilt_offsets(runs: Runs, holes: Iterable[HoleFound], fact: MapRebuilt) -> list[Interval]:
    """Return the source offsets that a rebuilt map assigns to records that the target has or that are copied again.

    A replicator that has since lost the lane may have recorded verdicts on these offsets, because it saw the source in
    a different state. These verdicts no longer apply. `runs` and `holes` are those of the lane after the
    rebuild, or only those in the entry of the rebuild. Holes that begin below the first rebuilt ordinal are ignored,
    because the entry of the rebuild contains new holes for all rebuilt ordinals that the target lacks.
    """
    lacking = [(hole.first, hole.last + 1) for hole in holes if fact.first <= hole.first <= hole.last]
    pieces = (
        piece for part in uncovered((fact.first, fact.until), lacking) for piece in runs.between(part[0], part[1] - 1)
    )
    return [(offset, offset + length) for _, offset, length in pieces]
