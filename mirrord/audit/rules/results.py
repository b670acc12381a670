"""What an audit compares and what it finds."""

from bisect import bisect_right
from typing import Literal

import msgspec

from mirrord.ledger.facts.audit import RepairedKind
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.names import LaneId

Kind = Literal["missing", "altered", "duplicated", "reordered", "displaced", "extra", "foreign", "stale", "not-copied"]
"""How a copy differs from what the ledger says.

"missing": the range at the target does not contain the record. "altered": the target offset of the record contains
another record. "duplicated": the target contains a source record once more. "reordered": the target contains records in
another order than they were copied in. "displaced": the record is in order, but not at the offset that the map names.
"extra": the lane wrote a record that the map does not contain. "foreign": another producer wrote the record. "stale":
the target's newest record of a key is an older one than the source's. "not-copied": the configuration selects the
partition and the ledger contains no copy of it.
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


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A part of the exact map: `length` records with consecutive offsets on both sides."""

    ordinal: int
    source: int
    target: int
    length: int
    truncated: bool = False
    """The source lost these records after they were copied, and uses their offsets again."""


class AuditRange(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared at one go: ordinals of a lane, with the offsets around them on both sides.

    The ranges of a lane follow each other without gap or overlap on both sides, so each offset is looked at once.
    Pieces that are truncated lie in it at the target alone. A range without pieces covers source offsets alone: the
    ledger has verdicts on all of them.
    """

    lane: LaneId
    producer_id: int
    first: int
    end: int
    """The ordinals [first, end)."""
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    pieces: tuple[Piece, ...]
    """In the order of their ordinals; ordinals that stand in none are void."""
    verdicts: tuple[Verdict, ...] = ()
    """On what is in none of the pieces, in the order of the offsets; no two on the same one."""
    forgotten_below: int = 0
    """On source offsets below this one the ledger held verdicts by which a record was left out, and was trimmed."""
    brought_back: tuple[int, ...] = ()
    """Target offsets of records that were left out and appended later, ascending."""

    def verdict_at(self, offset: int) -> Verdict | None:
        """The one on a source offset."""
        at = bisect_right(self.verdicts, offset, key=_start) - 1
        return self.verdicts[at] if at >= 0 and offset < self.verdicts[at].end else None


def _start(verdict: Verdict) -> int:
    return verdict.start


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to either log after the copy, and could."""

    source_log_start: int = 0
    target_log_start: int = 0
    source_committed: bool = True
    """Of the source no aborted records are seen."""
    source_compacted: bool = False
    target_compacted: bool = False
    others_write: bool = False
    """The target's topic is not the lane's alone."""


class Seen(msgspec.Struct, frozen=True):
    """A record, as much of it as is compared."""

    offset: int
    content: bytes
    """A digest of key, value and headers (`mirrord.kafka.client.record_digest`)."""
    time_ms: int
    key: bytes | None = None
    """A digest of the key alone; None without a key."""
    is_tombstone: bool = False
    is_own: bool = False
    """At the target: written by the lane's producer."""
    has_append_time: bool = False
    """At the target: the time is the target's own, and is not compared."""


class Difference(msgspec.Struct, frozen=True, order=True):
    """Records with consecutive offsets, on each side where there are any, that differ in the same way."""

    kind: Kind
    source: int | None
    """The first one's offset; None where the source has no such record."""
    target: int | None
    """The first one's offset, where it stands, or where it should if it stands nowhere; None: nowhere."""
    length: int = 1


class Explained(msgspec.Struct, frozen=True, order=True):
    """Offsets of one side that are not compared one to one, and why that is as it should be."""

    cause: Cause
    side: Literal["source", "target"]
    start: int
    end: int


class Compared(msgspec.Struct, frozen=True):
    """The outcome for a range."""

    equal: int
    """Records that stand where the map says, as the source has them."""
    differences: tuple[Difference, ...] = ()
    explained: tuple[Explained, ...] = ()


class RangeResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit found in one range."""

    lane: LaneId
    first: int
    end: int
    by: Literal["ledger", "batches", "records"]
    """What proved it, or was compared in the end."""
    compared: Compared
    newest_ms: int = -1
    """The highest time of the source's records; -1: not known."""
    read_bytes: int = 0
    """Of both logs."""


class LaneSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A lane's sums, for people and programs."""

    flow: str
    topic: str
    partition: int
    records: int
    """Below the mark, as far as this audit was asked to look."""
    equal: int
    differences: dict[str, int]
    """Records by kind."""
    explained: dict[str, int]
    """Offsets by cause."""
    proven_to: int | None
    """Every source offset below this one is at the target, or explained; None: nothing is proven."""
    proven_ms: int | None
    """The highest record time up to there; None: not known."""
    read_bytes: int
    skipped: str = ""
    ranges: int = 0
    """That are not proven by an earlier audit, whether this one was asked to look at them or not."""
    looked_at: int = 0
    """How many of these were compared."""
    waiting: int = 0
    """Newer source offsets that are not copied yet."""
    beyond: int = 0
    """Target offsets after the last record that the ledger knows: not compared."""
    has_nothing: bool = False
    """The source partition has nothing that could be copied."""


class LaneDifference(msgspec.Struct, frozen=True):
    """A difference, with its place."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    difference: Difference


class LaneRepaired(msgspec.Struct, frozen=True):
    """Differences that were repaired, with their place."""

    flow: str
    topic: str
    partition: int
    difference: RepairedKind
    start: int
    """The source offsets [start, end)."""
    end: int
    into: str
    at: int
    """Where the first of the records lies, or in front of it."""
    by: str
    at_ms: int
