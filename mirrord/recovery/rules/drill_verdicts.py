"""Decides whether a consumer group would continue on the target with the record that it reads next on the source."""

import hashlib
from typing import Literal, NamedTuple

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.ledger.facts.core import Reason
from mirrord.ledger.offset_map import LaneMap, Translation

DrillOutcome = Literal["same", "at end", "waiting", "explained", "finding"]
"""What a drill has found for a position.

- "same": the next record on the target is the next record on the source.
- "at end": the source has no next record.
- "waiting": the next record has not been copied yet, or an open transaction of another client on the target hides it.
- "explained": the ledger says why the next record is not copied, or the target has removed it because a newer record
  has the same key.
- "finding": the group would not continue with its next record.
"""
_NEVER_COPIED = frozenset({"start", "inherited"})
_INTENDED: frozenset[Reason] = frozenset(
    {"control", "aborted", "compacted", "filtered", "copied-from-target", "rejected", "doubled", "skipped"}
)
"""The reasons in verdicts on records that are not copied because of a decision, or that readers do not see. The other
reasons are losses."""
_DIGEST_BYTES = 16


class DrillPosition(NamedTuple):
    """A position of a consumer group on both clusters. The source was asked before and after the target, because groups
    commit all the time."""

    group: str
    topic: str
    """Name of the source topic."""
    partition: int
    source_offset: int
    """Committed offset on the source before the target was asked."""
    later_offset: int
    """Committed offset on the source after the target was asked."""
    target_offset: int | None
    """Committed offset on the target. None if it does not have to match the one on the source."""

    def __str__(self) -> str:
        return f"group {self.group} in {self.topic}-{self.partition}"

    @property
    def key(self) -> str:
        """A text that is the same for each look at this position."""
        return f"{self.group} {self.topic} {self.partition}"


class VisibleRecord(NamedTuple):
    """A record that a consumer reads. Its parts are kept as digests, because records may be large."""

    offset: int
    time_ms: int
    has_append_time: bool
    """Whether the broker has set the timestamp."""
    has_key: bool
    key: bytes
    value: bytes
    headers: bytes

    @staticmethod
    def of(record: DecodedRecord, *, has_append_time: bool) -> "VisibleRecord":
        """Return what is kept of a record."""
        headers = [part for name, value in record.headers for part in (name.encode(errors="surrogateescape"), value)]
        parts = (_digest(record.key), _digest(record.value), _digest(*headers))
        return VisibleRecord(record.offset, record.time_ms, has_append_time, record.key is not None, *parts)


class DrilledLog(NamedTuple):
    """What decides whether a target partition may lack a record, or may hold another one."""

    start: int
    """Log start offset."""
    stable_end: int
    """Last stable offset: consumers of committed records do not read beyond it."""
    is_compacted: bool = False
    is_transformed: bool = False
    """Whether the flow changes the records of this topic, so that their contents cannot be compared."""
    is_explained: bool = True
    """Whether all verdicts of the lane are known, so that a record without one is not explained."""


class NextRecords(NamedTuple):
    """What consumers read at a position on both clusters."""

    source: VisibleRecord | None
    """The first record from `source_offset` on. None if there is none."""
    later: VisibleRecord | None
    """The first record from `later_offset` on. None if there is none."""
    target: VisibleRecord | None
    """The first record from `target_offset` on. None if there is none."""
    copy: VisibleRecord | None
    """The target record at the offset that the map gives for `source`. None if there is none."""


class DrillVerdict(NamedTuple):
    """The outcome for a position, with one line about it if it is a finding."""

    outcome: DrillOutcome
    line: str = ""


def verdict_on(position: DrillPosition, found: NextRecords, lane_map: LaneMap, log: DrilledLog) -> DrillVerdict:
    """Return the verdict on one position. Raises ArchiveLost if a part of the map cannot be read."""
    if found.source is None:
        line = _reads_again(position, found.target, lane_map, before=None)
        return _finding(position, line) if line else DrillVerdict("at end")
    next_offset = found.source.offset
    translated = lane_map.to_target(next_offset)
    there = translated.record
    if there is None:
        return _not_there(position, next_offset, translated, log)
    if there < log.start:
        removed = f"the target has deleted the record (retention): its log begins at {log.start}"
        return _finding(position, f"the next record is at {next_offset}, and {removed}")
    if found.copy is None or found.copy.offset != there:
        if log.is_compacted and found.source.has_key:
            return DrillVerdict("explained")
        return _finding(position, f"the target has no record at {there}, where the map has the record at {next_offset}")
    if not log.is_transformed and (parts := different_parts(found.source, found.copy)):
        what = f"the record at {there} on the target is not the record at {next_offset} on the source"
        return _finding(position, f"{what}: {', '.join(parts)} differ")
    line = _skips(position, found.later, lane_map) or _reads_again(position, found.target, lane_map, before=there)
    if line:
        return _finding(position, line)
    return DrillVerdict("waiting" if there >= log.stable_end else "same")


def different_parts(one: VisibleRecord, other: VisibleRecord) -> list[str]:
    """Return which parts of two records differ. A timestamp counts only if no broker has set it."""
    pairs = (("keys", one.key, other.key), ("values", one.value, other.value), ("headers", one.headers, other.headers))
    parts = [name for name, first, second in pairs if first != second]
    if not other.has_append_time and one.time_ms != other.time_ms:
        parts.append("timestamps")
    return parts


def _not_there(position: DrillPosition, next_offset: int, translated: Translation, log: DrilledLog) -> DrillVerdict:
    """Return the verdict if the map has no target offset for the next record."""
    reason = translated.reason
    if translated.kind == "before_map" and reason in _NEVER_COPIED:
        return _finding(position, f"the record at {next_offset} is from before the copy began")
    if translated.kind != "not_copied" or reason == "pending":
        return DrillVerdict("waiting")
    if reason in _INTENDED or (not reason and not log.is_explained):
        return DrillVerdict("explained")
    why = f"it was lost ({reason})" if reason else "the ledger does not say why it was not copied"
    return _finding(position, f"the record at {next_offset} is not on the target: {why}")


def _skips(position: DrillPosition, later: VisibleRecord | None, lane_map: LaneMap) -> str:
    """Return which record the group would skip on the target, or an empty string."""
    if position.target_offset is None or later is None:
        return ""
    unread = lane_map.to_target(later.offset).record
    if unread is None or unread >= position.target_offset:
        return ""
    return f"it would skip the record at {unread} on the target, because its position there is {position.target_offset}"


def _reads_again(position: DrillPosition, first: VisibleRecord | None, lane_map: LaneMap, *, before: int | None) -> str:
    """Return which copied record the group would read again first on the target, or an empty string. `before` is the
    offset of the next record there, or None if there is none."""
    if position.target_offset is None or first is None or (before is not None and first.offset >= before):
        return ""
    original = lane_map.to_source(first.offset)
    if original.record is None or original.record >= position.source_offset:
        return ""
    if lane_map.to_target(position.source_offset).kind == "reordered":
        return ""  # some unread records precede this one on the target
    return f"it would read the record at {original.record} again, which is at {first.offset} on the target"


def _finding(position: DrillPosition, line: str) -> DrillVerdict:
    return DrillVerdict("finding", f"{position} at {position.source_offset}: {line}")


def _digest(*parts: bytes | None) -> bytes:
    made = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        made.update(b" -" if part is None else b" %d " % len(part) + part)
    return made.digest()
