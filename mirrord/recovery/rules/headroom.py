"""Determines how far retention is from deleting records that are still needed: on the source those that have not been
copied, and on the target those that consumer groups have not read.

Brokers delete a segment when its newest record is older than `retention.ms`, or when the segments after it contain
`retention.bytes`. The age gives a lower bound: no record is deleted before it is older than `retention.ms`, if its
timestamp is right. For the size, there is no such bound, because the sizes of the records are not recorded.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.last_seen.source_ends import SeenEnd
from mirrord.model.readiness import PartitionReadiness, RetentionReadiness, SourceHeadroom, TargetHeadroom
from mirrord.recovery.rules.groups import Commits, TargetBounds
from mirrord.topics.rules.retention import RETENTION_CONFIGS

STEPS = (1 / 2, 1 / 8, 1 / 64)
"""Parts of `retention.ms`. For each position of a group on the target, the largest of them is found for which the next
record is certainly kept."""
NEAR_SHARE = 1 / 8
"""Retention is near if less than this part of `retention.ms` is left."""
FORECAST_NEAR_S = 4 * 3_600.0
"""Retention is also near if the daemon forecasts that it deletes records that have not been copied within this time."""

FOREVER_MS = 100 * 365 * 86_400_000
"""A `retention.ms` from here on counts as no limit. Some topics have the highest possible value instead of -1."""


class RetentionLimits(NamedTuple):
    """What is known about the retention of a topic."""

    ms: int | None = None
    """`retention.ms`, or None if it is unknown, or if no record is ever too old."""
    is_known: bool = True
    by_size: bool = False
    """Whether there is `retention.bytes` as well."""
    note: str = ""
    """Why `ms` is None."""

    @property
    def limit_s(self) -> float | None:
        """`retention.ms` in seconds."""
        return None if self.ms is None else self.ms / 1000


class UnreadPosition(NamedTuple):
    """The lowest position of a group in a target partition after which there are records."""

    group: str
    offset: int


def limits_of(configs: Mapping[str, str | None] | str | None) -> RetentionLimits:
    """Return the limits that the effective configs of a topic define. Instead of the configs, there may be a line that
    says why they are not known."""
    if isinstance(configs, str):
        return RetentionLimits(is_known=False, note=configs)
    missing = [name for name in RETENTION_CONFIGS if (configs or {}).get(name) is None]
    if configs is None or missing:
        return RetentionLimits(is_known=False, note=f"{', '.join(missing)} of the topic was not recorded")
    if "delete" not in [each.strip() for each in (configs["cleanup.policy"] or "").split(",")]:
        return RetentionLimits(note=f"retention deletes nothing: cleanup.policy is {configs['cleanup.policy']}")
    age_ms, size = (_number(configs[name]) for name in ("retention.ms", "retention.bytes"))
    if age_ms is None or size is None:
        return RetentionLimits(is_known=False, note="retention.ms or retention.bytes of the topic is not a number")
    if not 0 <= age_ms < FOREVER_MS:
        return RetentionLimits(by_size=size >= 0, note=f"retention.ms is {age_ms}: no record is ever too old")
    return RetentionLimits(age_ms, by_size=size >= 0)


def source_headroom(
    found: PartitionReadiness, seen: SeenEnd, limits: RetentionLimits, forecast_s: float | None, now_ms: int
) -> SourceHeadroom:
    """Return the headroom of a source partition, if nothing more is copied. `seen` is what was last seen of it."""
    position, start = found.source_offset, seen.start
    if position is not None and start > position:
        note = f"the source has deleted offsets {position} up to {start}, which were not copied as far as is recorded"
        return SourceHeadroom(
            offsets=position - start,
            left_s=0.0,
            limit_s=limits.limit_s,
            forecast_s=forecast_s,
            by_size=limits.by_size,
            note=note,
        )
    left_s, is_known, note = None, limits.is_known, limits.note
    if limits.ms is not None:
        if found.lag_s is None or found.seen_ms is None:
            is_known, note = False, "it is not known how old the next record is that has to be copied"
        else:
            left_s = max(0.0, (found.seen_ms + limits.ms - now_ms) / 1000 - found.lag_s)
    return SourceHeadroom(
        offsets=None if position is None or start < 0 else position - start,
        left_s=left_s,
        limit_s=limits.limit_s,
        forecast_s=forecast_s,
        is_known=is_known,
        by_size=limits.by_size,
        note=note,
    )


def oldest_unread(
    commits: Commits, bounds: TargetBounds, partitions: Iterable[TopicAndPartition]
) -> dict[TopicAndPartition, UnreadPosition]:
    """Return the lowest position of a group in each of these target partitions. Positions without records after them
    are ignored, and those whose next record has been deleted already."""
    wanted, found = set(partitions), dict[TopicAndPartition, UnreadPosition]()
    for group, offsets in sorted(commits.items()):
        for place, offset in offsets.items():
            start, end = bounds.get(place, (0, 0))
            if place in wanted and start <= offset < end and (place not in found or offset < found[place].offset):
                found[place] = UnreadPosition(group, offset)
    return found


def target_headroom(
    unread: UnreadPosition, start: int, limits: RetentionLimits, kept_s: float | str | None
) -> TargetHeadroom:
    """Return the headroom of a target partition. `start` is its log start offset. For at least `kept_s` seconds, the
    next record of the position is kept. If that is not known, `kept_s` is None or says why."""
    left_s, is_known, note = None, limits.is_known, limits.note
    if limits.ms is not None:
        if kept_s is None or isinstance(kept_s, str):
            is_known, note = False, kept_s or "the target was not asked how old the record is"
        else:
            left_s = kept_s
    return TargetHeadroom(
        group=unread.group,
        target_offset=unread.offset,
        offsets=unread.offset - start,
        left_s=left_s,
        limit_s=limits.limit_s,
        is_known=is_known,
        by_size=limits.by_size,
        note=note,
    )


def summary(partitions: Iterable[PartitionReadiness], seen_ms: int | None) -> RetentionReadiness:
    """Return the shortest headroom of these partitions. The configs of the source were last seen at `seen_ms`."""
    sources = [each.source_headroom for each in partitions if each.source_headroom is not None]
    targets = [each.target_headroom for each in partitions if each.target_headroom is not None]
    return RetentionReadiness(
        seen_ms=seen_ms,
        source_left_s=min((each.left_s for each in sources if each.left_s is not None), default=None),
        forecast_s=min((each.forecast_s for each in sources if each.forecast_s is not None), default=None),
        target_left_s=min((each.left_s for each in targets if each.left_s is not None), default=None),
        source_unknown=sum(not each.is_known for each in sources),
        target_unknown=sum(not each.is_known for each in targets),
    )


def is_near(headroom: SourceHeadroom | TargetHeadroom) -> bool:
    """Return whether retention may soon delete records that are still needed."""
    if headroom.left_s is None:
        return False
    return headroom.left_s == 0 or (headroom.limit_s is not None and headroom.left_s < headroom.limit_s * NEAR_SHARE)


def rough_time(seconds: float) -> str:
    """Return a time in whole units, rounded down, as in 40 s, 12 min, 5 h or 3 d."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
