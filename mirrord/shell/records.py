"""Record batches as records and back, by aiokafka's compiled record classes: the second path, and deep comparisons."""

from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from aiokafka.record.default_records import (  # pyright: ignore[reportMissingTypeStubs]
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
)

from mirrord.flow.compare import Record
from mirrord.flow.state import Rebuild, Rebuilt
from mirrord.wire.batch import CODEC_MASK
from mirrord.wire.crc32c import Bytes

_UNLIMITED = (1 << 31) - 1
_MAGIC = 2


class _AioRecord(Protocol):
    """What aiokafka's compiled classes give; they come without types for their headers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def decode(buffer: Bytes, start: int, end: int) -> list[Record]:
    """The records of the batch buffer[start:end]. Raises ValueError when they cannot be read.

    Where the batch has the time of its append, so have its records (KIP-32).
    """
    return list(_read(buffer, start, end)[1])


def rebuild(request: Rebuild) -> Rebuilt | None:
    """The second path (`mirrord.flow.state.Rebuilder`): the same records in a batch of the lane, without holes.

    Key, value, headers and codec stay. Record times stay too; an append time becomes a creation time.
    """
    attributes, records = _read(request.buffer, request.start, request.end)
    kept = [record for record in records if record.offset >= request.from_offset]
    if not kept:
        return None
    builder = DefaultRecordBatchBuilder(
        magic=_MAGIC,
        compression_type=attributes & CODEC_MASK,
        is_transactional=0,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        base_sequence=request.base_sequence,
        batch_size=_UNLIMITED,
    )
    for delta, record in enumerate(kept):
        builder.append(delta, record.time_ms, record.key, record.value, list(record.headers))
    newest_ms = max(record.time_ms for record in kept)
    return Rebuilt(bytearray(builder.build()), _pieces(kept), newest_ms)


def _pieces(records: Sequence[Record]) -> tuple[tuple[int, int], ...]:
    """The offsets of the records as `(offset, length)` of what follows each other."""
    pieces: list[tuple[int, int]] = []
    for record in records:
        if pieces and pieces[-1][0] + pieces[-1][1] == record.offset:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
        else:
            pieces.append((record.offset, 1))
    return tuple(pieces)


def _read(buffer: Bytes, start: int, end: int) -> tuple[int, list[Record]]:
    batch = DefaultRecordBatch(bytes(memoryview(buffer)[start:end]))
    if not batch.validate_crc():
        raise ValueError("the checksum does not fit")
    try:
        records = [
            Record(record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in cast(Iterator[_AioRecord], iter(batch))
        ]
    # Every codec has errors of its own, with no common base below Exception.
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    return batch.attributes, records
