"""The form of a decoded record, which is the same for all message formats."""

from collections.abc import Sequence
from typing import NamedTuple


class DecodedRecord(NamedTuple):
    """A decoded record. `offset` is the record's offset in the log from which it was read. The names of
    headers are text. Bytes of a name that are not UTF-8 are lone surrogates (error handler "surrogateescape")."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
