"""Implements the second path: if a source batch cannot be copied as it is, builds a new batch from its decoded
records."""

from collections.abc import Sequence

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.legacy_messages import NO_TIME
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HEAD_OFFSET, HEADER, Header, HeaderTuple
from mirrord.kafka.records.header_names import builder_for, writable_headers
from mirrord.kafka.records.record_decoding import read
from mirrord.model.intervals import ranges
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch

_MAGIC = 2
_UNLIMITED = (1 << 31) - 1


def rebuild(request: RebuildRequest, rebuild_bytes: int | None = None) -> RebuiltBatch | None:
    """Decode the records of a source batch, and put the records that the request selects into a new batch for the lane.
    Return None if the request selects no records.

    This function implements `mirrord.replication.lane.second_path.Rebuilder`. The new batch has no gaps between its
    offsets. Keys, values, headers and timestamps are kept, and so is the codec unless the target refuses it. A log
    append time from the source becomes the create time of the records. Raises ValueError if the decompressed records
    are larger than `rebuild_bytes`, the flow's limit.
    """
    codec, records = read(request.buffer, request.start, request.end, rebuild_bytes)
    wanted = [record for record in records if request.from_offset <= record.offset < request.until_offset]
    kept = wanted[: request.most]
    return build(codec, kept, [record.offset for record in kept], request) if kept else None


def build(codec: int, kept: Sequence[DecodedRecord], offsets: Sequence[int], request: RebuildRequest) -> RebuiltBatch:
    """Return a batch for the lane that contains the records `kept`.

    `offsets` are the records' offsets on the source, and `codec` is the codec of the source batch.
    """
    builder = builder_for(
        kept,
        magic=_MAGIC,
        compression_type=request.codec(codec),
        is_transactional=0,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        base_sequence=request.base_sequence,
        batch_size=_UNLIMITED,
    )
    # For the builder, a first timestamp of -1 means "none yet". In that case, all timestamps are increased by one for
    # the builder, and the timestamps in the finished batch are decreased by one.
    shift = 1 if kept[0].time_ms == NO_TIME else 0
    for delta, record in enumerate(kept):
        builder.append(delta, record.time_ms + shift, record.key, record.value, writable_headers(record))
    data = bytearray(builder.build())
    if shift:
        _set_back(data, shift)
    newest_ms = max(record.time_ms for record in kept)
    return RebuiltBatch(data, _pieces(offsets), newest_ms)


def _set_back(data: bytearray, by_ms: int) -> None:
    """Subtract `by_ms` from the timestamps of all records in a batch."""
    fields: HeaderTuple = HEADER.unpack_from(data)
    header = Header(*fields)
    times = (header.base_timestamp - by_ms, header.max_timestamp - by_ms)
    HEADER.pack_into(data, 0, *header._replace(base_timestamp=times[0], max_timestamp=times[1]))
    crc = checksum(memoryview(data)[HEAD_OFFSET:])
    HEADER.pack_into(data, 0, *header._replace(base_timestamp=times[0], max_timestamp=times[1], crc=crc))


def _pieces(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Group the offsets into ranges without gaps, and return each range as a pair `(offset, length)`."""
    return tuple((start, end - start) for start, end in ranges(offsets))
