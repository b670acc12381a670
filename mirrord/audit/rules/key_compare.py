"""Comparison of compacted topics by key. For each key, it checks whether the newest record at the target is the newest
one of the source.

Compaction removes records on both sides at different times, so a missing record proves little. Readers of a compacted
topic rely on the newest record of each key. For each key, only the newest record of each side is kept (`merged`). Logs
can therefore be read in parts, in any order and on many machines.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.results import Difference, Seen

_NONE = -1


class Newest(msgspec.Struct, frozen=True, array_like=True):
    """The newest record of a key on both sides, up to where the logs were read; -1 for offsets that do not exist."""

    source: int = _NONE
    """The newest source offset of the key, among the records that were copied and the records that were copied from the
    target into the source."""
    place: int = _NONE
    """The target offset that the map names for the source record; -1 if that record came from the target."""
    is_tombstone: bool = False
    content: bytes = b""
    target: int = _NONE
    is_own: bool = False
    """Whether the lane's producer wrote the target record."""
    origin: int = _NONE
    """The source offset that the map names for the target record."""
    is_truncated: bool = False
    """Whether the source lost the original of the target record after it was copied."""
    target_content: bytes = b""


class KeyedCopy(msgspec.Struct, frozen=True):
    """The properties of a target partition that decide which differences its keys may have."""

    target_log_start: int
    target_compacted: bool
    """Whether the target topic is compacted. If not, the comparison by offsets already finds the records that the
    target lacks."""


def source_rows(wanted: AuditRange, seen: Iterable[Seen]) -> Iterator[tuple[bytes, Newest]]:
    """Yield each key of the source records that the map contains or that came from the target, together with the
    record."""
    pieces = sorted((piece for piece in wanted.pieces if not piece.truncated), key=_source)
    starts = [piece.source for piece in pieces]
    for each in seen:
        piece = _at(pieces, starts, each.offset)
        if each.key is None:
            continue
        if piece is not None:
            place = piece.target + each.offset - piece.source
            yield each.key, Newest(each.offset, place, each.is_tombstone, each.content)
        elif (verdict := wanted.verdict_at(each.offset)) is not None and verdict.reason == "copied-from-target":
            yield each.key, Newest(each.offset, _NONE, each.is_tombstone, each.content)


def target_rows(wanted: AuditRange, seen: Iterable[Seen]) -> Iterator[tuple[bytes, Newest]]:
    """Yield each key of the target records, whichever client wrote them, together with the record."""
    pieces = sorted(wanted.pieces, key=_target)
    starts = [piece.target for piece in pieces]
    for each in seen:
        if each.key is None:
            continue
        piece = _at(pieces, starts, each.offset)
        yield (
            each.key,
            Newest(
                target=each.offset,
                is_own=each.is_own,
                origin=_NONE if piece is None else piece.source + each.offset - piece.target,
                is_truncated=piece is not None and piece.truncated,
                target_content=each.content,
            ),
        )


def merged(one: Newest, other: Newest) -> Newest:
    """Combine two findings for the same key: return the newest record of each side."""
    # If a record was copied twice, the later copy counts.
    source = max(one, other, key=lambda each: (each.source, each.place))
    target = max(one, other, key=lambda each: each.target)
    return Newest(
        source.source,
        source.place,
        source.is_tombstone,
        source.content,
        target.target,
        target.is_own,
        target.origin,
        target.is_truncated,
        target.target_content,
    )


def judge(newest: Newest, copy: KeyedCopy) -> Difference | None:
    """Return the difference found for a key at the target, after everything has been audited; None if there is none.

    A missing record is not a difference if the target has a later record of its key, because compaction may have
    removed older records. A newer record of another writer is not reported for the key, because the comparison by
    offsets reports it. If such a record was also copied into the source and is the newest one there, the newest record
    at the target must not be an older one of this lane. A tombstone may be gone at the target, and so may everything
    that it deletes. If the source itself no longer has a copied record, its newest known record is older than the copy,
    which is not a difference.
    """
    if newest.source < 0:
        return None
    if newest.place < 0:
        is_older = newest.is_own and not newest.is_truncated and 0 <= newest.origin < newest.source
        is_stale = is_older and newest.target_content != newest.content
        return Difference("stale", newest.source, newest.target) if is_stale else None
    if newest.place < copy.target_log_start or newest.target == newest.place:
        return None
    # The source uses the offsets of a truncated record again, so they do not show which record is newer.
    if newest.origin >= newest.source and not newest.is_truncated:
        return None
    if newest.target < newest.place:
        if not copy.target_compacted:
            return None
        if newest.target >= 0:
            return Difference("stale", newest.source, newest.target)
        return None if newest.is_tombstone else Difference("missing", newest.source, newest.place)
    if newest.is_truncated or not newest.is_own:
        return None
    if newest.origin < 0 and newest.target_content == newest.content:
        return None
    return Difference("stale", newest.source, newest.target)


def _at(pieces: Sequence[MapPiece], starts: Sequence[int], offset: int) -> MapPiece | None:
    """Return the last part of the map that begins at or before an offset, if it extends to that offset."""
    at = bisect_right(starts, offset) - 1
    piece = pieces[at] if at >= 0 else None
    return piece if piece is not None and offset < starts[at] + piece.length else None


def _source(piece: MapPiece) -> tuple[int, int]:
    return piece.source, piece.target


def _target(piece: MapPiece) -> int:
    return piece.target
