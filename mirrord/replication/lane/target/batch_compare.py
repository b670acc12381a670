"""Compares a batch in the target with the source.

First, the headers are compared: in a raw copy, the checksum of the records is the same as in the source batch. The
checksums differ if the batch was rebuilt on the second path or recompressed by the target. In that case, the records
themselves are compared. A record that the source or the target no longer has cannot be compared, and is not treated as
a difference.
"""

import sys
from collections.abc import Container, Iterable, Mapping
from typing import Literal

import msgspec

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CODEC_MASK, LOG_APPEND_TIME, Header
from mirrord.kafka.protocol.sequence import nearest
from mirrord.model.intervals import ranges

CompareOutcome = Literal["equal", "unverifiable", "different"]


class BatchFinding(msgspec.Struct, frozen=True):
    """The outcome of a comparison. If it is not "equal", the note says why."""

    outcome: CompareOutcome
    note: str = ""
    gone: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) whose records are in the target but no longer in the source. Their source offsets are below
    the source's end."""
    equal_until: int = -1
    """The ordinal after the last one whose record was compared and found equal, or -1."""
    replaced: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) whose records are in the target but not in the source: at the offsets of these records, the
    source has different records from a different leader epoch, or its log ends below these offsets."""
    deleted_until: int = -1
    """The ordinal after the last one that was not compared because retention on the target has deleted its record, or
    -1."""


EQUAL = BatchFinding("equal")


class BatchCopy(msgspec.Struct, frozen=True):
    """A batch of the lane in the target log."""

    header: Header
    records_crc: int

    @property
    def count(self) -> int:
        """Number of ordinals in the batch, including those of records that a log cleaner has removed."""
        return self.header.last_offset_delta + 1

    def first(self, near: int) -> int:
        """Return the ordinal of the batch's first record. `near` is any ordinal that differs from it by less than
        2^30."""
        return nearest(self.header.base_sequence, near)


def same_bytes(copy: Header, copy_crc: int, original: Header, original_crc: int) -> bool:
    """Return whether the records in the target batch are byte-for-byte identical to those in the source batch, judging
    by the headers.

    If the target topic uses the append time as the timestamp, the broker sets the batch's maximum timestamp, but keeps
    the base timestamp, to which the records' timestamps are relative.
    """
    return (
        copy_crc == original_crc
        and copy.record_count == original.record_count
        and copy.last_offset_delta == original.last_offset_delta
        and copy.attributes & CODEC_MASK == original.attributes & CODEC_MASK
        and not original.attributes & LOG_APPEND_TIME
        and copy.base_timestamp == original.base_timestamp
        and (copy.max_timestamp == original.max_timestamp or bool(copy.attributes & LOG_APPEND_TIME))
    )


def same_records(
    ordinals: Iterable[tuple[int, int]],
    copies: Mapping[int, DecodedRecord],
    originals: Mapping[int, DecodedRecord],
    *,
    timed: bool,
    source_end: int = sys.maxsize,
    reused: Container[int] = (),
) -> BatchFinding:
    """Compare records in the target with records in the source.

    `ordinals` contains pairs (ordinal, source offset). `copies` contains the target's records by ordinal, and
    `originals` contains the source's records by offset. `timed` is False if the target topic sets the timestamps to the
    append time. If the source lacks a record, the record counts as gone from the source only if its offset is below
    `source_end`.

    For each ordinal in `reused`, the record that is now at its source offset has a different leader epoch than the
    record that was copied. The two records may still be identical. If they are not, this does not count as a
    difference, because the source has lost the copied record.
    """
    missing, equal_until, gone, replaced = -1, -1, list[int](), list[int]()
    for ordinal, offset in ordinals:
        copy, original = copies.get(ordinal), originals.get(offset)
        if copy is None or original is None:
            missing = ordinal if missing < 0 else missing
            if copy is not None:
                (gone if offset < source_end else replaced).append(ordinal)
        elif not (fault := _difference(copy, original, timed=timed)):
            equal_until = ordinal + 1
        elif ordinal in reused:
            missing = ordinal if missing < 0 else missing
            replaced.append(ordinal)
        else:
            return BatchFinding("different", f"ordinal {ordinal} (source offset {offset}) differs in its {fault}")
    if missing >= 0:
        line = f"the record of ordinal {missing} is no longer on both sides"
        return BatchFinding("unverifiable", line, ranges(gone), equal_until, ranges(replaced))
    return BatchFinding("equal", equal_until=equal_until)


def _difference(copy: DecodedRecord, original: DecodedRecord, *, timed: bool) -> str:
    if copy.key != original.key:
        return "key"
    if copy.value != original.value:
        return "value"
    if list(copy.headers) != list(original.headers):
        return "headers"
    return "timestamp" if timed and copy.time_ms != original.time_ms else ""


def together(findings: Iterable[BatchFinding]) -> BatchFinding:
    """Combine findings: a difference takes precedence over a record that cannot be compared. If several findings have
    the same outcome, the first of them is returned."""
    worst, gone, replaced = EQUAL, list[tuple[int, int]](), list[tuple[int, int]]()
    equal_until = deleted_until = -1
    for finding in findings:
        if finding.outcome == "different":
            return finding
        gone += finding.gone
        replaced += finding.replaced
        equal_until = max(equal_until, finding.equal_until)
        deleted_until = max(deleted_until, finding.deleted_until)
        if worst.outcome == "equal":
            worst = finding
    return msgspec.structs.replace(
        worst,
        gone=tuple(gone),
        replaced=tuple(replaced),
        equal_until=equal_until,
        deleted_until=deleted_until,
    )
