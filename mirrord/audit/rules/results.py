"""The data types of an audit: the records and batches to compare, and the differences and totals to report."""

from typing import Literal

import msgspec

from mirrord.ledger.facts.audit import RepairedKind
from mirrord.ledger.facts.core import Reason
from mirrord.model.names import LaneId, Side

DifferenceKind = Literal[
    "missing", "altered", "duplicated", "reordered", "displaced", "extra", "foreign", "stale", "not-copied"
]
"""How the target differs from what the ledger says about it.

- "missing": the range at the target does not contain the record.
- "altered": the target offset of the record contains another record.
- "duplicated": the target contains an additional copy of a source record.
- "reordered": the target does not contain the record in the order in which it was copied.
- "displaced": the record is in order, but not at the offset that the offset map names.
- "extra": the lane wrote a record that the offset map does not contain.
- "foreign": another producer wrote the record.
- "stale": the target's newest record of a key is older than the source's newest record of this key.
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
"""Why a deviation between source and target is not a difference. A `Reason` is a verdict of the ledger. "forgotten":
the ledger may have held a verdict before it was trimmed. "other-writers": the configuration allows other writers in the
target topic. "brought-back": `mirrord quarantine replay` appended the record. "repaired": `mirrord repair` wrote the
record to another topic. "out-of-order": the offset map itself places the record after newer ones, because it was copied
again. The other causes are events after the copy."""


WITHHELD: frozenset[Reason] = frozenset(("filtered", "copied-from-target", "rejected", "skipped", "unexplained"))
"""Verdicts on records that the source contains and the target does not. Each of the other verdicts says something else.
"control", "compacted": there is no such record. "expired", "recreated": the record was deleted before it was copied.
"aborted": consumers do not see the record. "truncated", "doubled": the record was copied. If the source returns a
record in spite of one of these other verdicts, the record is missing at the target."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Conditions that may explain a deviation: certain or possible events in the source log or the target log after the
    copy."""

    source_log_start: int = 0
    target_log_start: int = 0
    source_committed: bool = True
    """Whether the source is read with the isolation level `read_committed`, so without aborted records."""
    source_compacted: bool = False
    target_compacted: bool = False
    others_write: bool = False
    """Whether clients other than the lane may write into the target topic."""


class Seen(msgspec.Struct, frozen=True):
    """The properties of a record that are compared."""

    offset: int
    content: bytes
    """A digest of key, value and headers (`mirrord.kafka.client.record_digest`)."""
    time_ms: int
    key: bytes | None = None
    """A digest of the key alone; None if there is no key."""
    is_tombstone: bool = False
    is_own: bool = False
    """For a target record: whether the lane's producer wrote it."""
    has_append_time: bool = False
    """For a target record: whether the target broker set its timestamp. Such a timestamp is not compared."""


class Difference(msgspec.Struct, frozen=True, order=True):
    """Consecutive records that differ in the same way. If both source and target hold them, their offsets are
    consecutive at both."""

    kind: DifferenceKind
    source: int | None
    """The source offset of the first record; None if the source has no such record."""
    target: int | None
    """The target offset of the first record, or the offset that it should have if the target lacks it; None if the
    offset map names none."""
    length: int = 1


class Explained(msgspec.Struct, frozen=True, order=True):
    """A range of offsets at the source or the target that deviates, and the cause that makes the deviation
    acceptable."""

    cause: Cause
    side: Side
    start: int
    end: int


class Compared(msgspec.Struct, frozen=True):
    """The outcome of the comparison of one range."""

    equal: int
    """Number of source records that have an equal copy at the target offset that the offset map names."""
    differences: tuple[Difference, ...] = ()
    explained: tuple[Explained, ...] = ()


class RangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit for one range of ordinals."""

    lane: LaneId
    first: int
    end: int
    by: Literal["ledger", "batches", "records"]
    """The basis of the result: only the ledger, a comparison of batches, or a comparison of records."""
    compared: Compared
    newest_ms: int = -1
    """The highest timestamp of the source records; -1 if it is not known."""
    read_bytes: int = 0
    """Number of bytes read from the source log and the target log."""


class LaneSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of an audit for one lane, for tables and for JSON output."""

    flow: str
    topic: str
    partition: int
    records: int
    """Number of records of the lane in the ranges that this audit was asked to examine."""
    equal: int
    differences: dict[str, int]
    """Number of differing records for each kind of difference."""
    explained: dict[str, int]
    """Number of explained offsets for each cause."""
    proven_to: int | None
    """Every source offset below this one is proven to be at the target, or is explained. None if nothing is proven."""
    proven_ms: int | None
    """The highest record timestamp below `proven_to`; None if it is not known."""
    read_bytes: int
    skipped: str = ""
    ranges: int = 0
    """Number of ranges that no earlier audit has proven, including those that this audit was not asked to examine."""
    looked_at: int = 0
    """Number of unproven ranges that this audit has compared."""
    waiting: int = 0
    """Number of source offsets above the resume position, which are not copied yet."""
    beyond: int = 0
    """Number of target offsets above the last record that the ledger knows. They are not compared."""
    has_nothing: bool = False
    """Whether the source partition holds nothing to copy."""


class LaneDifference(msgspec.Struct, frozen=True):
    """A difference, with its flow, topic and partition."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    difference: Difference


class LaneRepaired(msgspec.Struct, frozen=True):
    """A repaired range of differences, with its flow, topic and partition, and the topic that holds the repaired
    records."""

    flow: str
    topic: str
    partition: int
    difference: RepairedKind
    start: int
    """The first of the source offsets [start, end)."""
    end: int
    into: str
    at: int
    """An offset in the topic `into`: the first of the repaired records is there or at a lower offset."""
    by: str
    at_ms: int
