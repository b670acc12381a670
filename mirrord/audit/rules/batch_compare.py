"""Comparison of source batches and target batches by their headers. For most ranges, the headers prove that source and
target are equal, so that no records have to be compared.

A source batch and a target batch hold the same records if the target holds the records in one batch, at the offsets
that the offset map gives, and with the same checksum. `mirrord.replication.lane.target.batch_compare.same_bytes` makes
this comparison. If any batch on the source or the target does not meet these conditions, the headers prove nothing
about the range, and its records have to be compared.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.record_compare import merged
from mirrord.audit.rules.reordering import mapped_disorder
from mirrord.audit.rules.results import WITHHELD, Compared, Explained
from mirrord.kafka.protocol.record_batch import Header
from mirrord.replication.lane.target.batch_compare import same_bytes


class SeenBatch(msgspec.Struct, frozen=True):
    """The header of a batch with message format 2, and the checksum of its records."""

    header: Header
    records_crc: int


def compare_batches(
    wanted: AuditRange,
    source: Iterable[SeenBatch | None],
    target: Iterable[SeenBatch | None],
    *,
    others_write: bool = False,
) -> Compared | None:
    """Return the result for the range if the batch headers alone prove that source and target are equal, or None
    otherwise.

    `source` contains the batches that a consumer of the source receives. `target` contains all batches of the target
    except control batches, which hold no records. None in place of a batch represents a batch with an older message
    format. With `others_write`, records that other clients wrote to the target do not count as differences. The result
    is also None if the offset map contains a record that is in none of the batches.
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
            continue  # the log cleaner keeps a producer's last batch as an empty batch
        # The part of a batch that belongs to another range is compared together with that range.
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
    """Return the lane's own batches by base offset, and the offsets of the batches that other producers were allowed to
    write. Those are the batches that `mirrord quarantine replay` appended and, with `others_write`, the batches of
    other clients. Return None if the target holds any other batch."""
    copies: dict[int, SeenBatch] = {}
    explained: list[Explained] = []
    for copy in target:
        if copy is not None and copy.header.base_offset in wanted.brought_back:
            # The replay wrote each of these records into a separate batch.
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
    """Return whether two batches hold the same records. If some offsets of the source batch no longer hold a record,
    the result is false: the batch then proves nothing about the copies of the lost records."""
    header = original.header
    return header.record_count == header.last_offset_delta + 1 and same_bytes(
        copy.header, copy.records_crc, header, original.records_crc
    )
