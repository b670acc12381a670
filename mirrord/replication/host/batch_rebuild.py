"""Implements the second path: if a source batch cannot be copied as it is, builds a new batch from its decoded
records."""

from collections.abc import Sequence
from itertools import islice

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.legacy_messages import NO_TIME
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HEAD_OFFSET, HEADER, Header, HeaderTuple
from mirrord.kafka.records.header_names import builder_for, writable_headers
from mirrord.kafka.records.record_decoding import ReadRecords, reading
from mirrord.kafka.records.steps import AT_ONCE, Steps, cleared, collected
from mirrord.ledger.facts.core import Verdict
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch

_MAGIC = 2
_UNLIMITED = (1 << 31) - 1
_SMALL_BYTES = 512 << 10
"""New batches up to this size before compression are compressed at once."""


def rebuilding(request: RebuildRequest, rebuild_bytes: int | None = None) -> Steps[RebuiltBatch | None]:
    """Decode the records of a source batch in steps, and put the records that the request selects into a new batch for
    the lane. The result is None if the request selects no records.

    The new batch has no gaps between its offsets. Keys, values, headers and timestamps are kept, and so is the codec
    unless the target refuses it. A log append time from the source becomes the create time of the records. Raises
    ValueError if the decompressed records are larger than `rebuild_bytes`, the flow's limit.
    """
    source = yield from reading(request.buffer, request.start, request.end, rebuild_bytes)
    wanted = (record for record in source.records if request.from_offset <= record.offset < request.until_offset)
    kept = yield from collected(islice(wanted, request.most))
    made = (yield from building(source, kept, request)) if kept else None
    kept.clear()
    yield from cleared(source.records, source.at_once)
    return made


def building(
    source: ReadRecords, kept: Sequence[DecodedRecord], request: RebuildRequest, left_out: Sequence[Verdict] = ()
) -> Steps[RebuiltBatch]:
    """Build a batch for the lane that contains the records `kept`, in steps.

    The offsets of the records are those on the source, and `source` is what has been read from the source batch.
    `left_out` becomes part of the result.
    """
    builder = yield from builder_for(
        kept,
        source.at_once,
        magic=_MAGIC,
        compression_type=request.codec(source.codec),
        is_transactional=0,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        base_sequence=request.base_sequence,
        batch_size=_UNLIMITED,
    )
    # For the builder, a first timestamp of -1 means "none yet". In that case, all timestamps are increased by one for
    # the builder, and the timestamps in the finished batch are decreased by one.
    shift = 1 if kept[0].time_ms == NO_TIME else 0
    pieces: list[tuple[int, int]] = []
    start = end = kept[0].offset
    newest_ms = kept[0].time_ms
    for first in range(0, len(kept), source.at_once):
        if first:
            yield None
        some = kept[first : first + source.at_once]
        for delta, record in enumerate(some, first):
            builder.append(delta, record.time_ms + shift, record.key, record.value, writable_headers(record))
            if (offset := record.offset) != end:
                pieces.append((start, end - start))
                start = offset
            end = offset + 1
        newest_ms = max(newest_ms, *(record.time_ms for record in some))
    pieces.append((start, end - start))
    is_large = len(kept) > AT_ONCE or builder.size() > _SMALL_BYTES
    data = bytearray((yield builder.build) if is_large else builder.build())
    if shift:
        _set_back(data, shift)
    return RebuiltBatch(data, tuple(pieces), newest_ms, tuple(left_out))


def _set_back(data: bytearray, by_ms: int) -> None:
    """Subtract `by_ms` from the timestamps of all records in a batch."""
    fields: HeaderTuple = HEADER.unpack_from(data)
    header = Header(*fields)
    times = (header.base_timestamp - by_ms, header.max_timestamp - by_ms)
    HEADER.pack_into(data, 0, *header._replace(base_timestamp=times[0], max_timestamp=times[1]))
    crc = checksum(memoryview(data)[HEAD_OFFSET:])
    HEADER.pack_into(data, 0, *header._replace(base_timestamp=times[0], max_timestamp=times[1], crc=crc))
