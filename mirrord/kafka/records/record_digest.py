"""Computes a short digest of a record's content. With digests, mirrord can detect that two logs contain the same record
without keeping either copy in memory."""

import hashlib

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.header_names import name_bytes

_BYTES = 16


def digest(record: DecodedRecord, *, timed: bool) -> bytes:
    """Return the digest of the record's key, value and headers.

    The timestamp is included only if `timed` is set, because a target topic may replace timestamps with the broker's
    append time. The offset is never included.
    """
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += (name_bytes(name), value)
    made = hashlib.blake2b(digest_size=_BYTES)
    made.update(b"%d" % (record.time_ms if timed else 0))
    for part in parts:
        made.update(b" -" if part is None else b" %d " % len(part) + part)
    return made.digest()
