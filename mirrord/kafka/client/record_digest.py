"""A digest of a record's content in a few bytes, to find the same record in two logs without keeping either record."""

import hashlib

from mirrord.kafka.protocol.record import DecodedRecord

_BYTES = 16


def digest(record: DecodedRecord, *, timed: bool) -> bytes:
    """Return the digest of key, value and headers.

    The time is included only if `timed`, because a target topic may replace timestamps with its append time. The offset
    is never included.
    """
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += (name.encode(), value)
    made = hashlib.blake2b(digest_size=_BYTES)
    made.update(b"%d" % (record.time_ms if timed else 0))
    for part in parts:
        made.update(b" -" if part is None else b" %d " % len(part) + part)
    return made.digest()
