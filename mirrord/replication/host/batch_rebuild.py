"""Builds a batch of the lane from decoded records: the second path, for batches that cannot be copied as they are."""

# pyright: reportMissingTypeStubs=false

from collections.abc import Sequence

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrord.kafka.client.record_codec import read
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.legacy_messages import NO_TIME
from mirrord.kafka.protocol.record import Record
from mirrord.kafka.protocol.record_batch import HEAD_OFFSET, HEADER, Header, HeaderTuple
from mirrord.model.intervals import ranges
from mirrord.replication.lane.state import Rebuild, Rebuilt

_MAGIC = 2
_UNLIMITED = (1 << 31) - 1


def rebuild(request: Rebuild) -> Rebuilt | None:
    """The second path (`mirrord.replication.lane.state.Rebuilder`): the same records in a batch of the lane, without
    holes.

    Key, value and headers stay, and the codec unless the target refuses it. Record times stay too; an append time
    becomes a creation time.
    """
    codec, records = read(request.buffer, request.start, request.end)
    wanted = [record for record in records if request.from_offset <= record.offset < request.until_offset]
    kept = wanted[: request.most]
    return build(codec, kept, [record.offset for record in kept], request) if kept else None


def build(codec: int, kept: Sequence[Record], offsets: Sequence[int], request: Rebuild) -> Rebuilt:
    """A batch of the lane with these records, which stand at these offsets of the source; `codec` is the one that they
    had there."""
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=request.codec(codec),
        is_transactional=0,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        base_sequence=request.base_sequence,
        batch_size=_UNLIMITED,
    )
    # The builder takes -1 as the first time for "none yet". So then all times are one more, and the header says less.
    shift = 1 if kept[0].time_ms == NO_TIME else 0
    for delta, record in enumerate(kept):
        builder.append(delta, record.time_ms + shift, record.key, record.value, list(record.headers))
    data = bytearray(builder.build())
    if shift:
        _set_back(data, shift)
    newest_ms = max(record.time_ms for record in kept)
    return Rebuilt(data, _pieces(offsets), newest_ms)


def _set_back(data: bytearray, by_ms: int) -> None:
    """Give all records of a batch earlier times."""
    fields: HeaderTuple = HEADER.unpack_from(data)
    header = Header(*fields)
    times = (header.base_timestamp - by_ms, header.max_timestamp - by_ms)
    HEADER.pack_into(data, 0, *header._replace(base_timestamp=times[0], max_timestamp=times[1]))
    crc = checksum(memoryview(data)[HEAD_OFFSET:])
    HEADER.pack_into(data, 0, *header._replace(base_timestamp=times[0], max_timestamp=times[1], crc=crc))


def _pieces(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Offsets as `(offset, length)` of what follows each other."""
    return tuple((start, end - start) for start, end in ranges(offsets))
