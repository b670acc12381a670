"""How ready a flow is for the loss of its source cluster, in the form that operators and programs receive."""

from typing import Literal

import msgspec

from mirrord.model.group_status import GroupState

Grounds = Literal["daemon", "ledger"]
"""Where the positions of the partitions come from. "daemon": the flow's daemon has reported them. "ledger": no daemon
answers, and they come from the target cluster alone, as last recorded."""
BLOCKERS_SHOWN = 10
"""Maximum number of reasons in the status document."""


class SourceHeadroom(msgspec.Struct, frozen=True, kw_only=True):
    """How far retention on the source is from deleting records of a partition that have not been copied, if nothing
    more is copied."""

    offsets: int | None = None
    """Number of source offsets from the log start offset up to the next offset to be copied, as last seen. Retention
    deletes them first. The number may be lower. It is negative if the source has deleted offsets that were not copied.
    None if it is unknown."""
    left_s: float | None = None
    """`retention.ms` keeps all records that have not been copied for at least this many seconds from `at_ms` of the
    flow. 0 means that it may have deleted some of them. None if it never deletes them, or if this is unknown."""
    limit_s: float | None = None
    """`retention.ms` of the topic, in seconds. None if it is unknown, or if there is no limit."""
    forecast_s: float | None = None
    """Estimated time until the source deletes records that have not been copied, at the pace of the last hour
    (`LaneStatus.retention_left_s`). None if no daemon answers, or if it forecasts no such deletion."""
    is_known: bool = True
    """Whether it is known what `retention.ms` does. If it is, and `left_s` is None, it never deletes a record."""
    by_size: bool = False
    """Whether the topic also has `retention.bytes`, which may delete records earlier."""
    note: str = ""
    """Why something is unknown, or why nothing is ever deleted."""


class TargetHeadroom(msgspec.Struct, frozen=True, kw_only=True):
    """How far retention on the target is from deleting the next record of a consumer group. Of all groups that have not
    read a partition to its end, it is the one with the lowest position."""

    group: str
    target_offset: int
    """The position of the group."""
    offsets: int
    """Number of target offsets from the log start offset up to the position."""
    left_s: float | None = None
    """As in `SourceHeadroom`, for the records from the position on. mirrord only determines whether it is at least a
    half, an eighth or a 64th of `limit_s`; otherwise, it is 0."""
    limit_s: float | None = None
    """As in `SourceHeadroom`, like the following fields."""
    is_known: bool = True
    by_size: bool = False
    note: str = ""


class PartitionReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """What would be lost of one source partition."""

    topic: str
    partition: int
    target_topic: str
    state: str
    """Phase of the lane, as in `mirrord status`; "unknown" if no daemon answers."""
    source_offset: int | None = None
    """The next source offset to be copied: all records before it are safe. None if copying has not begun."""
    target_offset: int | None = None
    """The target offset after the newest copied record."""
    safe_ms: int | None = None
    """Timestamp of the newest copied record in milliseconds, or None if there is none."""
    source_end: int | None = None
    """High watermark of the source partition when it was last seen. None if it was never seen."""
    seen_ms: int | None = None
    """The latest time at which `source_end` is known to have been current."""
    lag_records: int | None = None
    """Number of source offsets that would be lost: those from `source_offset` up to `source_end`."""
    lag_s: float | None = None
    """How old the oldest of these records may be, counted from `seen_ms`. 0 if there are none."""
    source_headroom: SourceHeadroom | None = None
    """None if the partition was never copied."""
    target_headroom: TargetHeadroom | None = None
    """None if no group has unread records in the target partition, or if the target does not show this."""
    note: str = ""
    """Why the partition is not copied, or an empty string."""


class PositionReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a consumer group that needs attention."""

    group: str
    topic: str
    partition: int
    source_offset: int | None = None
    target_offset: int | None = None
    state: GroupState | Literal["removed"]
    """As in `mirrord groups`, or "removed" if retention on the target has deleted the next record."""
    why: str = ""
    is_known: bool
    """Whether it is known exactly which record the group reads next on the target."""


class GroupsReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of the consumer groups on the target."""

    groups: int = 0
    exact: int = 0
    """Number of positions whose next record on the target is known exactly."""
    inexact: int = 0
    seen_ms: int | None = None
    """The latest time up to which the groups' commits on the source are known. None if they were never recorded."""
    positions: tuple[PositionReadiness, ...] = ()
    """The positions that need attention, those that are not known first."""
    note: str = ""
    """Why positions are not synced or not known, or an empty string."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How something on the target compares with the source, as the source was last seen."""

    seen_ms: int | None = None
    """When the source was last seen; None if it never was."""
    differences: tuple[str, ...] = ()
    """One line for each difference."""
    note: str = ""
    """Why nothing was compared, or an empty string."""


class ProofReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """What audits have proven."""

    partitions: int = 0
    """Number of partitions of which an audit has proven a part."""
    unproven_records: int = 0
    """Number of copied records that no audit has proven."""
    oldest_ms: int | None = None
    """The time of the proof of that partition whose proof is the oldest, or None if no audit has proven anything."""


class RetentionReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest headroom of the partitions of a flow. Each of the times is None if it is not known of any
    partition."""

    seen_ms: int | None = None
    """Time at which the configs of the source topics were last read, or None if they never were."""
    source_left_s: float | None = None
    forecast_s: float | None = None
    target_left_s: float | None = None
    source_unknown: int = 0
    """Number of partitions of which it is not known when `retention.ms` deletes records on the source."""
    target_unknown: int = 0
    """The same for the target, of those partitions in which groups have unread records."""


class FlowReadiness(msgspec.Struct, frozen=True, kw_only=True):
    """What would be lost of one flow if its source were gone now."""

    flow: str
    source: str
    target: str
    ready: bool
    at_ms: int
    grounds: Grounds
    blockers: tuple[str, ...] = ()
    """Why the flow is not ready, one line each."""
    remarks: tuple[str, ...] = ()
    partitions: tuple[PartitionReadiness, ...] = ()
    lag_records: int | None = None
    """Sum of the partitions' lags. None if one of them is unknown."""
    lag_s: float | None = None
    """The largest lag of a partition. None if one of them is unknown."""
    seen_ms: int | None = None
    """The earliest of the times up to which the ends of the source partitions are known."""
    groups: GroupsReadiness = GroupsReadiness()
    configs: Comparison = Comparison()
    acls: Comparison = Comparison()
    quotas: Comparison = Comparison()
    proof: ProofReadiness = ProofReadiness()
    retention: RetentionReadiness = RetentionReadiness()


class ReadinessReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `mirrord ready`."""

    version: str
    ready: bool
    """Whether all flows are ready."""
    flows: tuple[FlowReadiness, ...]


class ReadinessStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A summary of `FlowReadiness` for the status document, without options."""

    ready: bool
    at_ms: int
    """Time of the assessment. It is repeated about once a minute."""
    blockers: tuple[str, ...] = ()
    """The first of the reasons why the flow is not ready."""
    omitted: int = 0
    """Number of further reasons."""
    lag_records: int | None = None
    """As in `FlowReadiness`, like the following field."""
    lag_s: float | None = None
    inexact_positions: int | None = None
    """Number of positions of consumer groups whose next record on the target is not known exactly. None if nothing is
    known about positions, or if they are not synced."""
    source_left_s: float | None = None
    """As in `RetentionReadiness`, like the following field."""
    target_left_s: float | None = None

    @staticmethod
    def of(found: FlowReadiness) -> "ReadinessStatus":
        """Return the summary of an answer."""
        return ReadinessStatus(
            ready=found.ready,
            at_ms=found.at_ms,
            blockers=found.blockers[:BLOCKERS_SHOWN],
            omitted=max(0, len(found.blockers) - BLOCKERS_SHOWN),
            lag_records=found.lag_records,
            lag_s=found.lag_s,
            inexact_positions=None if found.groups.seen_ms is None else found.groups.inexact,
            source_left_s=found.retention.source_left_s,
            target_left_s=found.retention.target_left_s,
        )
