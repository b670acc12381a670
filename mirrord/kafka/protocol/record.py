"""A decoded record."""

from collections.abc import Sequence
from typing import NamedTuple


class DecodedRecord(NamedTuple):
    """A decoded record. `offset` belongs to the log that the record was read from; the key of a header is text."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
