"""Detection of unreported copies in a target partition: what two stretches, one of each log, have in common."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, Header

What = Literal["records", "contents", "times"]
"""The parts that are compared. "records": everything, including times; "contents": without the times, if the target
sets its own; "times": nothing else, if records are transformed on the way."""

ENOUGH_CONTENTS = 10
"""This many different contents that agree are no coincidence; if there are fewer, all must agree."""
ENOUGH_TIMES = 3


class FoundRow(NamedTuple):
    """A record: its offset, and the part of it that is compared."""

    offset: int
    held: bytes


def may_be_a_lanes(header: Header) -> bool:
    """Return whether a batch may be a lane's: it has a producer with sequences and belongs to no transaction."""
    return header.producer_id >= 0 and header.base_sequence >= 0 and not header.attributes & (TRANSACTIONAL | CONTROL)


def in_common(source: Sequence[FoundRow], target: Sequence[FoundRow], what: What) -> tuple[int, int] | None:
    """Return a source offset and a target offset that hold the same record, or None if nothing indicates that."""
    known: Mapping[bytes, int] = {row.held: row.offset for row in reversed(source)}
    pairs = {row.held: (known[row.held], row.offset) for row in reversed(target) if row.held in known}
    if not pairs:
        return None
    match what:
        case "records":
            agrees = True
        case "contents":
            agrees = len(pairs) >= min(ENOUGH_CONTENTS, len({row.held for row in target}))
        case "times":
            agrees = len(pairs) >= ENOUGH_TIMES
    return min(pairs.values()) if agrees else None
