"""Detects copies in a target partition that are missing from the ledger. The evidence consists of records that occur
both in a sample of the source log and in a sample of the target log."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, Header

What = Literal["records", "contents", "times"]
"""The part of each record that is compared. "records" is the whole record with its timestamp. "contents" is the record
without its timestamp, for target topics that set the timestamps themselves. "times" is only the timestamp, for flows
that transform records."""

ENOUGH_CONTENTS = 10
"""Minimum number of distinct record contents that must occur in both logs. A smaller number could occur in both by
coincidence. If the sample of the target log has fewer distinct contents, all of them must also occur in the source
log."""
ENOUGH_TIMES = 3


class FoundRow(NamedTuple):
    """The offset of a record, and the part of the record that is compared (`What`)."""

    offset: int
    held: bytes


def may_be_a_lanes(header: Header) -> bool:
    """Return whether a lane of mirrord may have written the batch. A lane writes with a producer id and a sequence, and
    never in a transaction."""
    return header.producer_id >= 0 and header.base_sequence >= 0 and not header.attributes & (TRANSACTIONAL | CONTROL)


def is_own(header: Header, producer_id: int) -> bool:
    """Return whether the lane with this producer id wrote the batch. An operator may have written the marker of a
    transaction with the same producer id."""
    return header.producer_id == producer_id and may_be_a_lanes(header)


def in_common(source: Sequence[FoundRow], target: Sequence[FoundRow], what: What) -> tuple[int, int] | None:
    """Return the offsets of a record that occurs in both logs, as (source offset, target offset). Return None if too
    few records occur in both logs to prove that the target holds copies."""
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
