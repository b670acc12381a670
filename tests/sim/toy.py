"""Small record batches: real v2 headers, and bodies of numbered records.

A body is `count` times (offset delta, record number). Every record that is ever written to a fake source has a number
of its own, so that a reader of the fake target knows which record it sees.
"""

import random
from collections.abc import Callable, Iterable
from struct import Struct

import google_crc32c

from mirrord.kafka.protocol.record_batch import CONTROL, HEADER, HEADER_LENGTH, TRANSACTIONAL
from mirrord.ledger.facts.core import Verdict
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch

RECORD = Struct(">iq")


def encode(
    base: int,
    last: int,
    records: Iterable[tuple[int, int]],
    *,
    newest_ms: int,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 0,
) -> bytearray:
    """A batch of (offset, number) records that spans the offsets base..last."""
    body = b"".join(RECORD.pack(offset - base, number) for offset, number in records)
    batch = bytearray(HEADER_LENGTH + len(body))
    batch[HEADER_LENGTH:] = body
    fields = [base, HEADER_LENGTH - 12 + len(body), leader_epoch, 2, 0, attributes, last - base, newest_ms, newest_ms]
    HEADER.pack_into(batch, 0, *fields, *producer, len(body) // RECORD.size)
    fields[4] = google_crc32c.value(bytes(batch[21:]))
    HEADER.pack_into(batch, 0, *fields, *producer, len(body) // RECORD.size)
    return batch


def size(count: int) -> int:
    """The bytes of a batch of this many records."""
    return HEADER_LENGTH + count * RECORD.size


def records(batch: bytes | bytearray | memoryview) -> list[tuple[int, int]]:
    """The (offset delta, number) records of a batch."""
    return list(RECORD.iter_unpack(bytes(batch[HEADER_LENGTH:])))


def rebuild(request: RebuildRequest, keeps: Callable[[int], bool] = lambda _: True) -> RebuiltBatch | None:
    """The second path over toy batches; `keeps` is a filter, asked about source offsets."""
    batch = request.buffer[request.start : request.end]
    header = HEADER.unpack_from(batch, 0)
    found = [(header[0] + delta, number) for delta, number in records(batch)]
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
    data = encode(
        0,
        len(kept) - 1,
        [(at, number) for at, (_, number) in enumerate(kept)],
        newest_ms=header[8],
        attributes=header[5] & ~(TRANSACTIONAL | CONTROL),
        producer=(request.producer_id, request.producer_epoch, request.base_sequence),
        leader_epoch=-1,
    )
    return RebuiltBatch(data, tuple(pieces), header[8], left_out)


def fickle(rng: random.Random) -> Callable[[RebuildRequest], RebuiltBatch | None]:
    """The second path with a filter whose answers change at random."""
    return lambda request: rebuild(request, lambda _: rng.random() < 0.6)
