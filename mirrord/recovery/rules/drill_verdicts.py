"""Decides whether a consumer group would continue on the target with the record that it reads next on the source."""

from typing import Literal, NamedTuple

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.ledger.offset_map import LaneMap

DrillOutcome = Literal["same", "at end", "waiting", "left out", "finding"]
"""What a drill has found for a position.

- "same": the next record on the target is the next record on the source.
- "at end": the source has no next record.
- "waiting": the next record has not been copied yet.
- "left out": mirrord does not copy the next record, as the ledger says, or the target has removed it because a newer
  record has the same key.
- "finding": the group would not continue with its next record.
"""
_NEVER_COPIED = frozenset({"start", "inherited"})


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


class VisibleRecord(NamedTuple):
    """A record that a consumer reads."""

    record: DecodedRecord
    has_append_time: bool
    """Whether the broker has set the timestamp."""

    @property
    def offset(self) -> int:
        """Offset of the record."""
        return self.record.offset


class DrilledLog(NamedTuple):
    """The properties of a target partition that decide whether it may lack a record."""

    start: int
    """Log start offset."""
    is_compacted: bool


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
    """Return the verdict on one position."""
    if found.source is None:
        line = _reads_again(position, found.target, lane_map, before=None)
        return _finding(position, line) if line else DrillVerdict("at end")
    next_offset = found.source.offset
    translated = lane_map.to_target(next_offset)
    if translated.record is None:
        if translated.kind == "not_copied" and translated.reason != "pending":
            return DrillVerdict("left out")
        if translated.kind == "before_map" and translated.reason in _NEVER_COPIED:
            return _finding(position, f"the record at {next_offset} is from before the copy began")
        return DrillVerdict("waiting")
    if translated.record < log.start:
        removed = f"the target has deleted the record (retention): its log begins at {log.start}"
        return _finding(position, f"the next record is at {next_offset}, and {removed}")
    if found.copy is None or found.copy.offset != translated.record:
        if log.is_compacted and found.source.record.key is not None:
            return DrillVerdict("left out")
        lacks = f"the target has no record at {translated.record}, where the map has the record at {next_offset}"
        return _finding(position, lacks)
    if parts := different_parts(found.source, found.copy):
        what = f"the record at {translated.record} on the target is not the record at {next_offset} on the source"
        return _finding(position, f"{what}: {', '.join(parts)} differ")
    if line := _skips(position, found.later, lane_map):
        return _finding(position, line)
    line = _reads_again(position, found.target, lane_map, before=translated.record)
    return _finding(position, line) if line else DrillVerdict("same")


def different_parts(one: VisibleRecord, other: VisibleRecord) -> list[str]:
    """Return which parts of two records differ. A timestamp counts only if no broker has set it."""
    parts = [
        name
        for name, first, second in (
            ("keys", one.record.key, other.record.key),
            ("values", one.record.value, other.record.value),
            ("headers", list(one.record.headers), list(other.record.headers)),
        )
        if first != second
    ]
    if not other.has_append_time and one.record.time_ms != other.record.time_ms:
        parts.append("timestamps")
    return parts


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
