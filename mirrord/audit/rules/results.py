"""The data types of an audit: what it compares, apart from its ranges, and what it reports."""

from typing import Literal

import msgspec

from mirrord.ledger.facts.audit import RepairedKind
from mirrord.ledger.facts.core import Reason
from mirrord.model.names import LaneId, Side

DifferenceKind = Literal[
    "missing", "altered", "duplicated", "reordered", "displaced", "extra", "foreign", "stale", "not-copied"
]
"""How a copy differs from what the ledger says.

- "missing": the range at the target does not contain the record.
- "altered": the target offset of the record contains another record.
- "duplicated": the target contains a source record an additional time.
- "reordered": the target contains records in another order than they were copied in.
- "displaced": the record is in order, but not at the offset that the map names.
- "extra": the lane wrote a record that the map does not contain.
- "foreign": another producer wrote the record.
- "stale": the target's newest record of a key is an older one than the source's.
- "not-copied": the configuration selects the partition, and the ledger contains no copy of it.
"""

Cause = (
    Reason
    | Literal[
        "source-retention",
        "source-compaction",
        "target-retention",
        "target-compaction",
        "other-writers",
        "brought-back",
        "forgotten",
        "repaired",
        "out-of-order",
    ]
)
"""Why records cannot or need not be compared, and why that is not a difference. A `Reason` is a verdict of the ledger.
"forgotten": the ledger contained the verdict before it was trimmed. "other-writers": the configuration allows other
writers in the target topic. "brought-back": `mirrord quarantine replay` appended the record. "repaired": `mirrord
repair` wrote the record to another topic. "out-of-order": the map itself says that the record follows newer ones,
because it was copied again. The other causes are events after the copy."""


WITHHELD: frozenset[Reason] = frozenset(("filtered", "copied-from-target", "rejected", "skipped", "unexplained"))
"""Verdicts on records that the source contains and the target does not. The other verdicts say that there is no such
record ("control", "compacted"), that it was deleted before it was copied ("expired", "recreated"), that readers do not
see it ("aborted"), or that it was copied ("truncated", "doubled"). A record that the source returns in spite of such a
verdict is missing at the target."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that may explain a deviation: what happened, or may have happened, to either log after the copy."""

    source_log_start: int = 0
    target_log_start: int = 0
    source_committed: bool = True
    """Whether the source is read without its aborted records."""
    source_compacted: bool = False
    target_compacted: bool = False
    others_write: bool = False
    """Whether the target topic has other writers than the lane."""


class Seen(msgspec.Struct, frozen=True):
    """A record, reduced to what is compared."""

    offset: int
    content: bytes
    """A digest of key, value and headers (`mirrord.kafka.client.record_digest`)."""
    time_ms: int
    key: bytes | None = None
    """A digest of the key alone; None if there is no key."""
    is_tombstone: bool = False
    is_own: bool = False
    """At the target: whether the lane's producer wrote the record."""
    has_append_time: bool = False
    """At the target: whether the target set the time itself. Such a time is not compared."""


class Difference(msgspec.Struct, frozen=True, order=True):
    """Records that differ in the same way, with consecutive offsets on each side that has them."""

    kind: DifferenceKind
    source: int | None
    """The offset of the first record; None where the source has no such record."""
    target: int | None
    """The offset of the first record, or where it should be if the target does not hold it; None if the map names no
    target offset for it."""
    length: int = 1


class Explained(msgspec.Struct, frozen=True, order=True):
    """Offsets of one side that are not compared one to one, and the cause that justifies this."""

    cause: Cause
    side: Side
    start: int
    end: int


class Compared(msgspec.Struct, frozen=True):
    """The outcome of the comparison of one range."""

    equal: int
    """Number of records that are where the map says, and equal those of the source."""
    differences: tuple[Difference, ...] = ()
    explained: tuple[Explained, ...] = ()


class RangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit for one range."""

    lane: LaneId
    first: int
    end: int
    by: Literal["ledger", "batches", "records"]
    """What the result is based on: the ledger alone, a comparison of batches, or a comparison of records."""
    compared: Compared
    newest_ms: int = -1
    """The highest timestamp of the source's records; -1 if it is not known."""
    read_bytes: int = 0
    """Bytes read from both logs."""


class LaneSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a lane, for display and for programs."""

    flow: str
    topic: str
    partition: int
    records: int
    """Number of records below the resume position, within the range that this audit was asked to examine."""
    equal: int
    differences: dict[str, int]
    """Number of records by kind."""
    explained: dict[str, int]
    """Number of offsets by cause."""
    proven_to: int | None
    """Every source offset below this one is at the target, or explained; None if nothing is proven."""
    proven_ms: int | None
    """The highest record timestamp up to that offset; None if it is not known."""
    read_bytes: int
    skipped: str = ""
    ranges: int = 0
    """Number of ranges that no earlier audit has proven, whether or not this audit was asked to examine them."""
    looked_at: int = 0
    """The number of these ranges that were compared."""
    waiting: int = 0
    """Number of newer source offsets that are not copied yet."""
    beyond: int = 0
    """Number of target offsets after the last record that the ledger knows. They are not compared."""
    has_nothing: bool = False
    """Whether the source partition has nothing that could be copied."""


class LaneDifference(msgspec.Struct, frozen=True):
    """A difference, with its location."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    difference: Difference


class LaneRepaired(msgspec.Struct, frozen=True):
    """Repaired differences, with their location."""

    flow: str
    topic: str
    partition: int
    difference: RepairedKind
    start: int
    """The source offsets [start, end)."""
    end: int
    into: str
    at: int
    """An offset in the topic `into`. The first of the records is found there or before it."""
    by: str
    at_ms: int
