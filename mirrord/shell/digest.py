"""What a record holds, in a few bytes: to find the same record in two logs without keeping either."""

import hashlib

from mirrord.flow.compare import Record

_BYTES = 16


def digest(record: Record, *, timed: bool) -> bytes:
    """Of key, value and headers; of the time only if `timed`, for a target may set its own. Never of the offset."""
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += (name.encode(), value)
    made = hashlib.blake2b(digest_size=_BYTES)
    made.update(b"%d" % (record.time_ms if timed else 0))
    for part in parts:
        made.update(b" -" if part is None else b" %d " % len(part) + part)
    return made.digest()
