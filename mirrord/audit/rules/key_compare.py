"""Comparison of compacted topics by key: for each key, the newest record on the target must be a copy of the newest
record on the source.

Compaction removes records at different times on the source and on the target, so a missing record proves little.
Readers of a compacted topic rely on the newest record for each key. The comparison therefore keeps, for each key, only
the newest source record and the newest target record. Two results can be combined (`merged`), so the logs can be read
in parts, in any order, and on many machines.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.results import Difference, Seen

_NONE = -1


class Newest(msgspec.Struct, frozen=True, array_like=True):
    """The newest record with a key on the source and on the target, in the parts of the logs that were read. An offset
    of -1 means that there is no such record."""

    source: int = _NONE
    """The offset of the newest source record with the key. This is either a record that was copied to the target or a
    record that was copied from the target."""
    place: int = _NONE
    """The target offset that the offset map gives for the source record; -1 if that record was copied from the
    target."""
    is_tombstone: bool = False
    content: bytes = b""
    target: int = _NONE
    is_own: bool = False
    """Whether the lane's producer wrote the target record."""
    origin: int = _NONE
    """The source offset that the offset map gives for the target record; -1 if the map does not contain that record."""
    is_truncated: bool = False
    """Whether the source lost the original of the target record after the original was copied."""
    target_content: bytes = b""
    first_open: int = _NONE
    """The offset of the first target record with the key that is in an open transaction of another client; -1 if there
    is none. Such a record counts neither as written nor as absent."""
    last_open: int = _NONE
    """The offset of the last such record."""


class Undecided(msgspec.Struct, frozen=True):
    """The outcome for a key if it depends on whether an open transaction of another client will be committed."""

    source: int
    """The offset of the newest source record with the key."""


class KeyedCopy(msgspec.Struct, frozen=True):
    """The properties of a target partition that determine which differences are permitted for a key."""

    target_log_start: int
    target_compacted: bool
    """Whether the target topic is compacted. If it is not, the comparison by key does not report missing records,
    because the comparison by offset finds them."""


def source_rows(wanted: AuditRange, seen: Iterable[Seen]) -> Iterator[tuple[bytes, Newest]]:
    """Yield the key of each source record that the offset map contains or that was copied from the target, together
    with the record."""
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


def open_rows(seen: Iterable[Seen]) -> Iterator[tuple[bytes, Newest]]:
    """Yield the key of each target record that is in an open transaction of another client, together with the
    record."""
    for each in seen:
        if each.key is not None:
            yield each.key, Newest(first_open=each.offset, last_open=each.offset)


def target_rows(wanted: AuditRange, seen: Iterable[Seen]) -> Iterator[tuple[bytes, Newest]]:
    """Yield the key of each target record together with the record, regardless of which client wrote it."""
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
    """Combine two findings for the same key: return the newer source record and the newer target record."""
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
        min((each.first_open for each in (one, other) if each.first_open >= 0), default=_NONE),
        max(one.last_open, other.last_open),
    )


def judge(newest: Newest, copy: KeyedCopy) -> Difference | Undecided | None:
    """Return the difference between source and target for a key, or None if there is no difference. Must be called
    after all ranges have been read.

    Records in open transactions may turn out to be committed or aborted. The outcome is undecided if it depends on
    that: it is then not the same without these records, with the first one, and with the last one.
    """
    outcome = _judge_ended(newest, copy)
    for offset in {newest.first_open, newest.last_open}:
        if offset > newest.target:
            written = msgspec.structs.replace(
                newest, target=offset, is_own=False, origin=_NONE, is_truncated=False, target_content=b""
            )
            if _kind(_judge_ended(written, copy)) != _kind(outcome):
                return Undecided(newest.source)
    return outcome


def _kind(outcome: Difference | None) -> str:
    return "" if outcome is None else outcome.kind


def _judge_ended(newest: Newest, copy: KeyedCopy) -> Difference | None:
    """Return the difference between source and target for a key, or None if there is no difference. Records in open
    transactions do not count.

    The newest target record with the key should be the copy of the newest source record with the key. These deviations
    are permitted:

    - The newest target record is the copy of a record that the source no longer holds and that was newer than the
      newest source record.
    - The newest source record is a tombstone, and the target holds no record with the key. Compaction has removed both
      the tombstone and the records that it deletes.
    - The copy is missing from a target that is not compacted, or is below the log start offset of the target. The
      comparison by offset determines whether this is a difference.
    - Another client wrote a newer record to the target. Again, the comparison by offset determines whether this is a
      difference.
    - The newest source record was itself copied from the target, so the lane has not copied it. There is a difference
      only if the newest target record is an older record of this lane with different content.
    """
    if newest.source < 0:
        return None
    if newest.place < 0:
        is_older = newest.is_own and not newest.is_truncated and 0 <= newest.origin < newest.source
        is_stale = is_older and newest.target_content != newest.content
        return Difference("stale", newest.source, newest.target) if is_stale else None
    if newest.place < copy.target_log_start or newest.target == newest.place:
        return None
    # The source reuses the offsets of truncated records, so these offsets do not show which record is newer.
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
    """Return the part of the offset map that contains an offset, or None. `starts` are the first offsets of the
    parts."""
    at = bisect_right(starts, offset) - 1
    piece = pieces[at] if at >= 0 else None
    return piece if piece is not None and offset < starts[at] + piece.length else None


def _source(piece: MapPiece) -> tuple[int, int]:
    return piece.source, piece.target


def _target(piece: MapPiece) -> int:
    return piece.target
