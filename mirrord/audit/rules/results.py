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

- "missing": the target log does not contain the source record, and no known reason explains this.
- "altered": at the record's target offset, there is a record with different content.
- "duplicated": the target contains an additional copy of a source record.
- "reordered": the target contains the record, but not in the order in which the records were copied.
- "displaced": the target contains the record in the right order, but not at the offset that the offset map gives.
- "extra": the lane's producer wrote a target record that the offset map does not contain.
- "foreign": another producer wrote a record between the copied records.
- "stale": the target's newest record for a key is older than the source's newest record for this key.
- "not-copied": the configuration selects the partition, but according to the ledger, none of its records have been
  copied.
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
"""Why the audit accepts a deviation between source and target and does not report it as a difference.

- A `Reason`: the ledger has a verdict with this reason on the source offset.
- "source-retention", "source-compaction": the source has deleted the record since it was copied.
- "target-retention", "target-compaction": the target has deleted the copy.
- "other-writers": the configuration allows other writers in the target topic.
- "brought-back": `mirrord quarantine replay` appended the record.
- "forgotten": the ledger may have contained a verdict on the record before old verdicts were removed from it.
- "repaired": `mirrord repair` wrote the record to another topic.
- "out-of-order": according to the offset map itself, the record follows newer ones, because it was copied again.
"""


WITHHELD: frozenset[Reason] = frozenset(("filtered", "copied-from-target", "rejected", "skipped", "unexplained"))
"""The verdicts on records that were not copied although the source contains them. They explain why the target lacks a
record that the audit reads from the source.

The other verdicts do not explain this. "control" and "compacted" mean that the offset holds no record. "expired" and
"recreated" mean that the record was deleted before it was copied. "aborted" means that consumers do not see the record,
and "truncated" and "doubled" mean that it was copied. If the audit nevertheless reads such a record from the source,
the record is "missing" on the target. `mirrord.audit.rules.record_compare` makes exceptions for "aborted" and
"compacted".
"""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of the source log and the target log that may explain a deviation. For example, compaction may have
    removed a record after it was copied."""

    source_log_start: int = 0
    target_log_start: int = 0
    source_committed: bool = True
    """Whether the source is read with the isolation level `read_committed`, which hides aborted records."""
    source_compacted: bool = False
    target_compacted: bool = False
    others_write: bool = False
    """Whether clients other than the lane may write to the target topic."""


class Seen(msgspec.Struct, frozen=True):
    """The record properties that an audit compares."""

    offset: int
    content: bytes
    """A digest of key, value and headers, which `mirrord.kafka.records.record_digest` computes."""
    time_ms: int
    key: bytes | None = None
    """A digest of the key alone; None if there is no key."""
    is_tombstone: bool = False
    is_own: bool = False
    """For a target record: whether the lane's producer wrote it."""
    has_append_time: bool = False
    """For a target record: whether the target broker set its timestamp. Such a timestamp is not compared."""


class Difference(msgspec.Struct, frozen=True, order=True):
    """Consecutive records that differ in the same way. If the source and the target both contain the records, the
    offsets are consecutive in both logs."""

    kind: DifferenceKind
    source: int | None
    """The source offset of the first record; None if the source has no such record."""
    target: int | None
    """The target offset of the first record. If the target lacks the record, this is the offset that it should have
    according to the offset map, or None if the offset map does not contain the record."""
    length: int = 1


class Explained(msgspec.Struct, frozen=True, order=True):
    """A range of offsets at which source and target differ, with the known cause of the difference. The offsets are
    those of the source or of the target, depending on `side`."""

    cause: Cause
    side: Side
    start: int
    end: int


class Compared(msgspec.Struct, frozen=True):
    """The outcome of comparing the source records of one range of ordinals with their copies."""

    equal: int
    """Number of source records that have an equal copy at the target offset that the offset map gives."""
    differences: tuple[Difference, ...] = ()
    explained: tuple[Explained, ...] = ()
    undecided: tuple[int, ...] = ()
    """The offsets of the source records about which the audit cannot say anything yet, in ascending order. Each of them
    is the newest record of its key, and other clients have written this key to the target in open transactions."""


class RangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an audit for one range of ordinals."""

    lane: LaneId
    first: int
    end: int
    by: Literal["ledger", "batches", "records"]
    """What was examined: only the ledger, the batch headers, or the decoded records."""
    compared: Compared
    newest_ms: int = -1
    """The highest timestamp of the source records; -1 if unknown."""
    read_bytes: int = 0
    """Number of bytes read from the source log and the target log."""


class LaneSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of an audit for one lane, for tables and for JSON output."""

    flow: str
    topic: str
    partition: int
    records: int
    """Number of the lane's records in the ranges of ordinals that this audit was asked to examine."""
    equal: int
    differences: dict[str, int]
    """Number of differing records for each kind of difference."""
    explained: dict[str, int]
    """Number of explained offsets for each cause."""
    proven_to: int | None
    """Every source offset below this one is either proven to have been copied or explained. None if nothing is
    proven."""
    proven_ms: int | None
    """The highest timestamp of the records at source offsets below `proven_to`; None if unknown."""
    read_bytes: int
    skipped: str = ""
    ranges: int = 0
    """Number of ranges of ordinals that no earlier audit has proven. This includes ranges that this audit was not asked
    to examine."""
    looked_at: int = 0
    """Number of unproven ranges that this audit has compared."""
    waiting: int = 0
    """Number of source offsets between the resume position and the end of the source log. They have not been copied
    yet."""
    beyond: int = 0
    """Number of target offsets between the resume position and the end of the target log. They are not compared."""
    undecided: int = 0
    """Number of source records about which the audit cannot say anything before open transactions of other clients on
    the target have ended."""
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
    """Differing records that `mirrord repair` has written to another topic, with their flow, topic and partition, and
    the name of the other topic."""

    flow: str
    topic: str
    partition: int
    difference: RepairedKind
    start: int
    """First source offset of the repaired range [start, end)."""
    end: int
    into: str
    at: int
    """Offset in the topic `into` at or above which all repaired records are stored."""
    by: str
    at_ms: int
