"""Whether a target partition holds copies that nobody told of: what two stretches, one of each log, have in common."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from mirrord.wire.batch import CONTROL, TRANSACTIONAL, Header

What = Literal["records", "contents", "times"]
"""What is compared. "records": times and all; "contents": without the times, where the target sets its own; "times":
nothing else, where records are transformed on the way."""

ENOUGH_CONTENTS = 10
"""So many different ones that agree are no chance; of fewer all have to."""
ENOUGH_TIMES = 3


class FoundRow(NamedTuple):
    """A record: its offset, and what is compared of it."""

    offset: int
    held: bytes


def may_be_a_lanes(header: Header) -> bool:
    """A lane's batches have a producer with sequences and belong to no transaction."""
    return header.producer_id >= 0 and header.base_sequence >= 0 and not header.attributes & (TRANSACTIONAL | CONTROL)


def in_common(source: Sequence[FoundRow], target: Sequence[FoundRow], what: What) -> tuple[int, int] | None:
    """A source offset and a target offset that hold the same record; None when nothing says so."""
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
