"""Detects copies in a target partition that the ledger does not know, by records that a part of the source log and a
part of the target log have in common."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, Header

What = Literal["records", "contents", "times"]
"""The parts of records that are compared. "records": everything, including timestamps. "contents": everything except
timestamps, if the target sets its own. "times": only timestamps, if records are transformed."""

ENOUGH_CONTENTS = 10
"""If this number of different contents occur in both logs, that is no coincidence. If the target has fewer different
contents, all of them must occur in both logs."""
ENOUGH_TIMES = 3


class FoundRow(NamedTuple):
    """A record: its offset, and the part of it that is compared."""

    offset: int
    held: bytes


def may_be_a_lanes(header: Header) -> bool:
    """Return whether a lane may have written a batch: it has a producer id and a sequence, and belongs to no
    transaction."""
    return header.producer_id >= 0 and header.base_sequence >= 0 and not header.attributes & (TRANSACTIONAL | CONTROL)


def in_common(source: Sequence[FoundRow], target: Sequence[FoundRow], what: What) -> tuple[int, int] | None:
    """Return a source offset and a target offset that hold the same record, or None if there is not enough evidence of
    such a pair."""
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
