"""Division of a lane's offset map into ranges that can be compared independently.

The map can be divided at a point only if everything before that point has lower source offsets and lower target offsets
than everything after it. Offsets decrease only where a run begins at an offset below the end of the previous run
(`Runs.turns`). A range that contains such a run may therefore hold more records than `most_records`.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.ledger.offset_map import voids
from mirrord.ledger.state import LaneState
from mirrord.model.runs import Runs

MOST_PIECES = 50_000
"""Maximum number of parts of the offset map in a range, unless the range cannot be divided."""
_NEVER = 1 << 63
ProvenTo = tuple[int | None, int | None]
"""The source offset and the target offset up to which an earlier audit has proven a partition; None if there was no
such audit."""
_BESIDE: tuple[Reason, ...] = ("truncated", "doubled")
"""Verdicts on records that were copied. They do not explain why the record that the source now holds at the same offset
is missing from the target."""


def pieces(lane: LaneState, first: int, end: int) -> Iterator[MapPiece]:
    """Yield the parts of the offset map for the ordinals [first, end), without the ordinals of refused batches."""
    cuts = sorted(lane.truncations)
    edges = sorted({ordinal for ordinal, _ in cuts if first < ordinal < end} | {first, end})
    for start, last in _live(lane, first, end):
        inner = [start, *(edge for edge in edges if start < edge <= last), last + 1]
        for low, high in pairwise(inner):
            limit = min((offset for ordinal, offset in cuts if ordinal > low), default=_NEVER)
            for ordinal, source, length in lane.source_runs.between(low, high - 1):
                for part, target, count in lane.target_runs.between(ordinal, ordinal + length - 1):
                    yield from _cut(MapPiece(part, source + part - ordinal, target, count), limit)


def _live(lane: LaneState, first: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the ordinals [first, end) as ranges (first, last), without the ordinals of refused batches."""
    position = first
    for start, last in voids(lane.holes):
        if start >= end:
            break
        if start > position:
            yield position, start - 1
        position = max(position, last + 1)
    if position < end:
        yield position, end - 1


def _cut(piece: MapPiece, limit: int) -> Iterator[MapPiece]:
    """Divide a part of the offset map at the source offset `limit`. The source has lost the records at and above this
    offset (they are truncated)."""
    kept = max(0, min(piece.length, limit - piece.source))
    if kept:
        yield MapPiece(piece.ordinal, piece.source, piece.target, kept)
    if kept < piece.length:
        yield MapPiece(
            piece.ordinal + kept, piece.source + kept, piece.target + kept, piece.length - kept, truncated=True
        )


def ranges(
    lane: LaneState,
    first: int,
    end: int,
    most_records: int,
    verdicts: Iterable[Verdict] = (),
    forgotten_below: int = 0,
    proven_to: ProvenTo = (None, None),
) -> Iterator[AuditRange]:
    """Yield the ordinals [first, end) in ranges of about `most_records` records.

    - The first range begins at the offsets `proven_to`. If no earlier audit has proven anything, the range begins with
      the first part of the offset map, and also includes the verdicts on the source offsets directly before that part.
    - Offsets between two ranges belong to the earlier range.
    - The last range extends to the source offset of the ordinal `end` if the verdicts extend to that offset.
    - If there are no ordinals but there are verdicts to check, a single range without any part of the map is yielded.
    - Of truncated records, only the target offsets are included, because the source reuses their source offsets.

    The verdicts come from `mirrord.ledger.gaps`. Each offset has at most one verdict other than "truncated" and
    "doubled".
    """
    sorted_verdicts = sorted(
        (each for each in verdicts if each.reason not in _BESIDE), key=lambda verdict: verdict.start
    )
    known_to = _explained_to(lane, end, sorted_verdicts)
    source_turns, target_turns = _Turns(lane.source_runs, end), _Turns(lane.target_runs, end)
    group: list[MapPiece] = []
    held = 0
    source_end = target_end = -1
    start: tuple[int, int] | None = None
    for piece in _short(pieces(lane, first, end), most_records):
        lowest = (
            min(piece.source, source_turns.lowest_from(piece.ordinal)),
            min(piece.target, target_turns.lowest_from(piece.ordinal)),
        )
        is_full = held + piece.length > most_records or len(group) >= MOST_PIECES
        if group and is_full and lowest[0] >= source_end and lowest[1] >= target_end:
            start = start or _first_starts(group, sorted_verdicts, proven_to)
            found = _range(lane, group, (min(start[0], lowest[0]), start[1]), lowest, sorted_verdicts)
            yield msgspec.structs.replace(found, forgotten_below=min(forgotten_below, found.source_end))
            group, held, start = [], 0, lowest
        group.append(piece)
        held += piece.length
        if not piece.truncated:
            source_end = max(source_end, piece.source + piece.length)
        target_end = max(target_end, piece.target + piece.length)
    if group:
        start = start or _first_starts(group, sorted_verdicts, proven_to)
        found = _range(lane, group, start, (max(start[0], source_end, known_to), target_end), sorted_verdicts)
        yield msgspec.structs.replace(found, forgotten_below=min(forgotten_below, found.source_end))
    elif start is None:
        yield from _without_pieces(lane, end, (proven_to[0], known_to), sorted_verdicts)


def _explained_to(lane: LaneState, end: int, verdicts: Sequence[Verdict]) -> int:
    """Return the source offset of the ordinal `end` if the verdicts extend to this offset, so that the ledger explains
    every offset below it. Otherwise, return 0."""
    limit = lane.source_runs.offset_of(end)
    if limit is None or not verdicts:
        return 0
    at = bisect_left(verdicts, limit, key=_end)
    return limit if at < len(verdicts) and verdicts[at].start < limit else 0


def _without_pieces(
    lane: LaneState, end: int, source: tuple[int | None, int], verdicts: Sequence[Verdict]
) -> Iterator[AuditRange]:
    source_from, source_end = source
    source_start = _first_verdict(source_end, verdicts) if source_from is None else source_from
    if source_start >= source_end:
        return
    target = lane.target_runs.offset_of(end) or 0
    yield AuditRange(
        lane=lane.key.id,
        producer_id=lane.producer_id,
        first=end,
        end=end,
        source_start=source_start,
        source_end=source_end,
        target_start=target,
        target_end=target,
        pieces=(),
        verdicts=_verdicts_within(verdicts, source_start, source_end),
    )


def _first_starts(group: Sequence[MapPiece], verdicts: Sequence[Verdict], proven_to: ProvenTo) -> tuple[int, int]:
    """Return the source offset and the target offset at which the first range begins."""
    (source, target), (source_from, target_from) = _starts(group), proven_to
    return (
        _first_verdict(source, verdicts) if source_from is None else min(source, source_from),
        target if target_from is None else min(target, target_from),
    )


def _first_verdict(offset: int, verdicts: Sequence[Verdict]) -> int:
    """Return the first offset covered by the sequence of verdicts that extends to `offset` without a gap. If there is
    no such sequence, return `offset`."""
    at = bisect_left(verdicts, offset, key=_end)
    while 0 <= at < len(verdicts) and verdicts[at].start < offset <= verdicts[at].end:
        offset = verdicts[at].start
        at -= 1
    return offset


def _verdicts_within(verdicts: Sequence[Verdict], start: int, end: int) -> tuple[Verdict, ...]:
    return tuple(verdicts[bisect_right(verdicts, start, key=_end) : bisect_left(verdicts, end, key=_start)])


def _short(found: Iterable[MapPiece], most: int) -> Iterator[MapPiece]:
    for piece in found:
        for at in range(0, piece.length, most):
            length = min(most, piece.length - at)
            yield MapPiece(piece.ordinal + at, piece.source + at, piece.target + at, length, piece.truncated)


def _starts(group: Sequence[MapPiece]) -> tuple[int, int]:
    return min(piece.source for piece in group), min(piece.target for piece in group)


def _range(
    lane: LaneState, group: list[MapPiece], start: tuple[int, int], end: tuple[int, int], verdicts: Sequence[Verdict]
) -> AuditRange:
    last = group[-1]
    return AuditRange(
        lane=lane.key.id,
        producer_id=lane.producer_id,
        first=group[0].ordinal,
        end=last.ordinal + last.length,
        source_start=start[0],
        source_end=end[0],
        target_start=start[1],
        target_end=end[1],
        pieces=tuple(group),
        verdicts=_verdicts_within(verdicts, start[0], end[0]),
    )


def _start(verdict: Verdict) -> int:
    return verdict.start


def _end(verdict: Verdict) -> int:
    return verdict.end


class _Turns:
    """The runs that go back, and the offsets at which they begin. A run goes back if its first offset is lower than the
    end of the previous run. Between two such runs, offsets only increase."""

    def __init__(self, runs: Runs, end: int) -> None:
        self._ordinals = [turn for turn in runs.turns if turn < end]
        offsets = [runs.offset_of(turn) or 0 for turn in self._ordinals]
        self._lowest = [*reversed(list(accumulate(reversed(offsets), min))), _NEVER]

    def lowest_from(self, ordinal: int) -> int:
        """Return the lowest offset to which a run that begins after this ordinal goes back. If no later run goes back,
        return a number above all offsets."""
        return self._lowest[bisect_right(self._ordinals, ordinal)]
