"""Batches of both sides, compared by their headers: most of a range is proven equal without reading a record.

A source batch that stands at the target as one batch, at the offsets that the map says, with the same checksum of its
records, holds the same records (`mirrord.replication.lane.target.batch_compare.same_bytes`). Whatever is not so on
either side leaves the range open: then its records decide.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from mirrord.audit.rules.record_compare import merged
from mirrord.audit.rules.reordering import mapped_disorder
from mirrord.audit.rules.results import WITHHELD, AuditRange, Compared, Explained
from mirrord.kafka.protocol.record_batch import Header
from mirrord.replication.lane.target.batch_compare import same_bytes


class SeenBatch(msgspec.Struct, frozen=True):
    """A batch of format 2, by its header."""

    header: Header
    records_crc: int


def compare_batches(
    wanted: AuditRange,
    source: Iterable[SeenBatch | None],
    target: Iterable[SeenBatch | None],
    *,
    others_write: bool = False,
) -> Compared | None:
    """The range, proven by its batches alone; None when they do not prove it.

    The batches are those that a reader of the source is given, and all of the target but markers, which hold no
    records. None among them is a batch of an older format. With `others_write` what others wrote at the target says
    nothing. A record that the map has and no batch holds leaves the range open.
    """
    found = _copies(wanted, target, others_write=others_write)
    if found is None or any(piece.truncated for piece in wanted.pieces):
        return None
    copies, explained = found
    pieces = sorted(wanted.pieces, key=lambda piece: piece.source)
    starts = [piece.source for piece in pieces]
    equal = 0
    for original in source:
        if original is None:
            return None
        header = original.header
        if not header.record_count:
            continue  # the cleaner keeps a producer's last batch without its records
        # What of a batch lies in another range is compared there once more.
        first, last = max(header.base_offset, wanted.source_start), min(header.last_offset, wanted.source_end - 1)
        at = bisect_right(starts, first) - 1
        piece = pieces[at] if at >= 0 else None
        if piece is None or first >= piece.source + piece.length:
            verdict = wanted.verdict_at(first)
            if verdict is None or verdict.reason not in WITHHELD or last >= verdict.end:
                return None
            if at + 1 < len(starts) and starts[at + 1] <= last:
                return None
            explained.append(Explained(verdict.reason, "source", first, last + 1))
            continue
        copy = copies.pop(piece.target + header.base_offset - piece.source, None)
        if copy is None or last >= piece.source + piece.length or not _same(copy, original):
            return None
        equal += last - first + 1
    is_whole = not copies and equal == sum(piece.length for piece in pieces)
    return Compared(equal, (), merged([*explained, *mapped_disorder(pieces)])) if is_whole else None


def _copies(
    wanted: AuditRange, target: Iterable[SeenBatch | None], *, others_write: bool
) -> tuple[dict[int, SeenBatch], list[Explained]] | None:
    """What the lane wrote, by offset, and what others may have written; None: more stands there."""
    copies: dict[int, SeenBatch] = {}
    explained: list[Explained] = []
    for copy in target:
        if copy is not None and copy.header.base_offset in wanted.brought_back:
            # Each in a batch of its own.
            explained.append(Explained("brought-back", "target", copy.header.base_offset, copy.header.last_offset + 1))
            continue
        if copy is None or (copy.header.producer_id != wanted.producer_id and not others_write):
            return None
        if copy.header.producer_id == wanted.producer_id:
            copies[copy.header.base_offset] = copy
        else:
            explained.append(Explained("other-writers", "target", copy.header.base_offset, copy.header.last_offset + 1))
    return copies, explained


def _same(copy: SeenBatch, original: SeenBatch) -> bool:
    """Without a hole in it, or else its count says nothing."""
    header = original.header
    return header.record_count == header.last_offset_delta + 1 and same_bytes(
        copy.header, copy.records_crc, header, original.records_crc
    )
