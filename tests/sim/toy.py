"""Small record batches of numbered records, in Kafka's format 2.

Every record that is ever written to a fake source has a number of its own, so that a reader of the fake target knows
which record it sees. The number is the record's value. The key is that of the number (`key_of`), or there is none. All
records of a batch have its timestamp. They also all have the same length, so that their numbers can be read quickly.
"""

import random
from collections.abc import Callable, Iterable
from struct import Struct

import google_crc32c

from mirrord.kafka.protocol.record_batch import CONTROL, HEADER, HEADER_LENGTH, TRANSACTIONAL
from mirrord.ledger.facts.core import Verdict
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch

# A record: its length, attributes, timestamp delta, offset delta, the length of the key, the key, the length of the
# value, the value, the number of headers (org.apache.kafka.common.record.DefaultRecord). All integers but the value are
# varints, of which each has one byte here: twice the number, or 1 for -1.
_PLAIN, _KEYED = Struct(">6BqB"), Struct(">7BqB")
_PLAIN_NUMBERS, _KEYED_NUMBERS = Struct(">3xB2xqx"), Struct(">3xB3xqx")
_PLAIN_LENGTH, _KEYED_LENGTH = 2 * (_PLAIN.size - 1), 2 * (_KEYED.size - 1)
_CHECKSUM, _CHECKSUM_OFFSET, _CHECKED_FROM = Struct(">I"), 17, 21
"""The checksum of a batch, where it is, and where the bytes begin that it covers."""
_MOST = 64
"""Offset deltas and keys below this number fit into one byte."""


def key_of(number: int, keys: int) -> int:
    """The key of a record, if there are this many keys."""
    return abs(number) % keys


def encode(
    base: int,
    last: int,
    records: Iterable[tuple[int, int]],
    *,
    newest_ms: int,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 0,
    keys: int = 0,
) -> bytearray:
    """A batch of (offset, number) records that spans the offsets base..last. With 0 keys, the records have none."""
    assert max(last - base, keys - 1) < _MOST
    if keys:
        rows = [
            _KEYED.pack(_KEYED_LENGTH, 0, 0, 2 * (offset - base), 2, key_of(number, keys), 16, number, 0)
            for offset, number in records
        ]
    else:
        rows = [_PLAIN.pack(_PLAIN_LENGTH, 0, 0, 2 * (offset - base), 1, 16, number, 0) for offset, number in records]
    return _batch(base, last, rows, newest_ms, attributes, producer, leader_epoch)


def marker(base: int, *, commit: bool, newest_ms: int, producer: tuple[int, int], leader_epoch: int) -> bytes:
    """The marker of a transaction (org.apache.kafka.common.record.EndTransactionMarker). `producer` is its id and
    epoch."""
    row = bytes((32, 0, 0, 0, 8, 0, 0, 0, commit, 12, *bytes(6), 0))
    attributes = TRANSACTIONAL | CONTROL
    return bytes(_batch(base, base, [row], newest_ms, attributes, (*producer, -1), leader_epoch))


def _batch(
    base: int,
    last: int,
    rows: list[bytes],
    newest_ms: int,
    attributes: int,
    producer: tuple[int, int, int],
    leader_epoch: int,
) -> bytearray:
    body = b"".join(rows)
    batch = bytearray(HEADER_LENGTH + len(body))
    batch[HEADER_LENGTH:] = body
    length = HEADER_LENGTH - 12 + len(body)
    fields = (base, length, leader_epoch, 2, 0, attributes, last - base, newest_ms, newest_ms, *producer, len(rows))
    HEADER.pack_into(batch, 0, *fields)
    _CHECKSUM.pack_into(batch, _CHECKSUM_OFFSET, google_crc32c.value(bytes(batch[_CHECKED_FROM:])))
    return batch


def size(count: int, keys: int = 0) -> int:
    """The bytes of a batch of this many records."""
    return HEADER_LENGTH + count * (_KEYED if keys else _PLAIN).size


def records(batch: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
    """The (offset delta, number) records of a batch."""
    body = bytes(batch[HEADER_LENGTH:])
    layout = _KEYED_NUMBERS if body and body[0] == _KEYED_LENGTH else _PLAIN_NUMBERS
    return [(twice >> 1, number) for twice, number in layout.iter_unpack(body)]


def _rows(batch: bytes | bytearray | memoryview) -> list[bytes]:
    """The bytes of each record of a batch."""
    body = bytes(batch[HEADER_LENGTH:])
    length = _KEYED.size if body and body[0] == _KEYED_LENGTH else _PLAIN.size
    return [body[at : at + length] for at in range(0, len(body), length)]


def rebuild(request: RebuildRequest, keeps: Callable[[int], bool] = lambda _: True) -> RebuiltBatch | None:
    """The second path over toy batches; `keeps` is a filter, asked about source offsets."""
    batch = request.buffer[request.start : request.end]
    header = HEADER.unpack_from(batch, 0)
    rows = zip(records(batch), _rows(batch), strict=True)
    found = [(header[0] + delta, row) for (delta, _), row in rows]
    found = [each for each in found if request.from_offset <= each[0] < request.until_offset]
    known = {offset: request.decided.keeps(offset) for offset, _ in found}
    wanted = {offset for offset, says in known.items() if (keeps(offset) if says is None else says)}
    kept = [each for each in found if each[0] in wanted]
    if len(kept) > request.most:
        found = [each for each in found if each[0] < kept[request.most][0]]
        del kept[request.most :]
        found = [each for each in found if each[0] <= kept[-1][0]]
    left_out = tuple(Verdict(offset, offset + 1, "filtered") for offset, _ in found if offset not in wanted)
    if not kept:
        return RebuiltBatch(bytearray(), (), -1, left_out) if left_out else None
    pieces: list[tuple[int, int]] = []
    for offset, _ in kept:
        if pieces and sum(pieces[-1]) == offset:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + 1)
        else:
            pieces.append((offset, 1))
    data = _batch(
        0,
        len(kept) - 1,
        [row[:3] + bytes((2 * at,)) + row[4:] for at, (_, row) in enumerate(kept)],
        header[8],
        header[5] & ~(TRANSACTIONAL | CONTROL),
        (request.producer_id, request.producer_epoch, request.base_sequence),
        -1,
    )
    return RebuiltBatch(data, tuple(pieces), header[8], left_out)


class Filter:
    """A filter whose answers change: at random, or when its rules are changed."""

    def __init__(self, rng: random.Random, *, steady: bool = False) -> None:
        self._rng = rng
        self.rules: Callable[[int], bool] | None = _is_always_kept if steady else None
        """Whether it keeps the record at a source offset; None if its answers are random."""

    def keeps(self, offset: int) -> bool:
        """Its answer about the record at a source offset."""
        return self.rules(offset) if self.rules is not None else self._rng.random() < 0.6

    def rebuild(self, request: RebuildRequest) -> RebuiltBatch | None:
        """The second path with this filter."""
        return rebuild(request, self.keeps)


def _is_always_kept(offset: int) -> bool:
    """The rules of a filter that do not change: its answer about the record at a source offset."""
    return offset % 3 != 2
