"""Batches that the target does not take as they are: which of their records go together in one, and which in none.

A batch that is too large is made anew in batches of half its size; one that holds a record which the target refuses,
in batches of half its records, until that record stands alone. Ordinals, and with them sequences, stay those of the
records, so it does not matter where a crash finds the lane between two of them.
"""

from itertools import pairwise
from typing import NamedTuple

import msgspec

from mirrord.flow.state import Lane, Rebuild, Rebuilt
from mirrord.model.facts import Reason, Verdict
from mirrord.model.runs import Run
from mirrord.wire.batch import RAW_ATTRIBUTES

FAR = 1 << 62


class Piece(NamedTuple):
    """What goes together: at most so many records, up to this source offset; or what is left out."""

    end: int
    most: int
    left_out: Reason | None = None


def bounds(lane: Lane) -> tuple[int, int, int, int]:
    """Which batches can go as they are: up to an ordinal, up to a source offset, of so many bytes, and with none of
    these attributes.

    What is copied again ends where the plan goes on elsewhere, be it inside a batch.
    """
    stop = lane.plan[0].ordinal if lane.plan else FAR
    if lane.shaped:
        stop = -1  # nothing does
    return stop, whole_until(lane, lane.position), lane.largest, strange(lane)


def strange(lane: Lane) -> int:
    """The attributes of batches that are made anew. With a codec that the target refuses others may share a bit: they
    are made anew as well, and keep theirs."""
    found = ~RAW_ATTRIBUTES
    for codec in lane.refused_codecs:
        found |= codec
    return found


def whole_until(lane: Lane, position: int) -> int:
    """Batches behind a position that end at or below this source offset go as they are, by what is known of single
    records."""
    first = FAR
    if lane.cut is not None and position < lane.cut.end:
        first = max(lane.cut.start, position)
    for out in lane.left_out:
        if position < out.end:
            return min(first, max(out.start, position))
    return first


def next_piece(lane: Lane, position: int, next_offset: int) -> Piece:
    """What follows at a position, in a batch that ends in front of `next_offset`."""
    limit = next_offset
    for out in lane.left_out:
        if out.start <= position < out.end:
            return Piece(min(out.end, next_offset), 0, out.reason)
        if position < out.start:
            limit = min(limit, out.start)
            break
    cut = lane.cut
    if cut is None or position >= cut.end:
        return Piece(limit, FAR)
    if position < cut.start:
        return Piece(min(limit, cut.start), FAR)
    return Piece(min(limit, cut.end), cut.most)


class Rest(NamedTuple):
    """What is to be copied again without what is left out."""

    runs: list[Run]
    pieces: list[tuple[int, int, int]]
    """(ordinal, ordinal so far, length) of these runs."""
    gone: list[Verdict]
    """What is left out."""


def without_left_out(lane: Lane) -> Rest:
    """What is to be copied again from here on, without what is left out."""
    begin = Run(lane.next_ordinal, lane.position)
    runs: list[Run] = []
    pieces: list[tuple[int, int, int]] = []
    gone: list[Verdict] = []
    ordinal = begin.ordinal
    for run, following in pairwise((begin, *lane.plan)):
        offset, end = run.offset, run.offset + following.ordinal - run.ordinal
        for out in [*lane.left_out, Verdict(end, end, "rejected")]:
            if out.start < end and offset < out.end:
                gone.append(Verdict(max(out.start, offset), min(out.end, end), out.reason))
            kept = max(min(out.start, end) - offset, 0)
            if kept:
                runs.append(Run(ordinal, offset))
                pieces.append((ordinal, run.ordinal + offset - run.offset, kept))
                ordinal += kept
            offset = max(offset, min(out.end, end))
    offset = lane.plan[-1].offset
    for out in lane.left_out:
        if out.start <= offset < out.end:
            gone.append(Verdict(offset, out.end, out.reason))
            offset = out.end
    return Rest([*runs, Run(ordinal, offset)], [*pieces, (ordinal, lane.plan[-1].ordinal, 1)], gone)


def rebuild(lane: Lane, wanted: Rebuild) -> Rebuilt | None:
    """The second path, in a batch no larger than the target is known to take. Raises ValueError."""
    if lane.refused_codecs:
        wanted = msgspec.structs.replace(wanted, refused_codecs=lane.refused_codecs)
    rebuilt = lane.rebuild(wanted)
    if rebuilt is None:
        return None
    is_cut = False
    while len(rebuilt.data) > lane.largest and (count := sum(length for _, length in rebuilt.pieces)) > 1:
        is_cut = True
        fits = count * lane.largest // len(rebuilt.data)
        fewer = lane.rebuild(msgspec.structs.replace(wanted, most=max(1, min(fits, count - 1))))
        if fewer is None:
            break
        rebuilt = fewer
    return msgspec.structs.replace(rebuilt, is_cut=is_cut) if is_cut else rebuilt
