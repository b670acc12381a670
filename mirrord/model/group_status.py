"""The positions of consumer groups on both sides of a flow, in the form that operators and programs receive."""

from typing import Literal

import msgspec

GroupState = Literal[
    "in step", "waits", "active", "ahead", "expired", "not copied", "unknown", "unsure", "refused", "behind"
]
"""State of a consumer group's position in one partition.

mirrord reads the group's position on one side, translates it, and commits it on the other side. By default, it reads
the position on the source and commits it on the target. In a `reverse` report, it reads the position on the target and
commits it on the source.

- "in step": the positions on both sides match.
- "waits": the offset map does not yet contain all records before the position. mirrord has committed the last position
  that it can translate.
- "active": nothing is committed, because the group has members on the side where its position would be committed.
- "ahead": nothing is committed, because the position on the other side must be kept: it is higher, or the group itself
  has moved it. `GroupStatus.why` says which case applies.
- "expired": nothing is committed, because the source no longer has a committed offset for the group.
- "not copied": the topic is not copied.
- "unknown": the position cannot be translated. `GroupStatus.why` says why.
- "unsure": nothing is committed, because mirrord cannot determine on which side the group last read records.
- "refused": a broker refuses the commit, or does not return the committed offset.
- "behind": the position on the other side is out of date. mirrord commits the translated position next, unless
  `groups.mode` is "off".
"""
CommitSource = Literal["log", "polling", "starting"]
"""How mirrord learns of the commits of consumer groups on the side from which it syncs their positions. "log": it reads
`__consumer_offsets`. "polling": it requests the committed offsets of the groups at fixed intervals. "starting": it has
not begun to do either."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group's position in one partition."""

    group: str
    topic: str
    partition: int
    target_topic: str
    """Name of the target topic, or an empty string if the topic is not copied."""
    source_offset: int | None
    """Committed offset on the source, or None if there is none."""
    committed_ms: int | None = None
    """Time at which the source's broker accepted the commit, according to the broker's clock. None if the time is
    unknown."""
    target_offset: int | None = None
    """Committed offset on the target, or None if there is none."""
    translated: int | None = None
    """The offset to which mirrord has translated the group's position. It is an offset on the target, or an offset on
    the source in a `reverse` report. None if the position cannot be translated."""
    lag_records: int | None = None
    """Number of offsets between the group's position on the target and the end of the target partition. None if the
    number is unknown."""
    lag_s: float | None = None
    """Age in seconds of the next record that the group would read on the target. 0 if there is no such record. None if
    the age is unknown."""
    state: GroupState
    why: str = ""
    """The reason for the state, if the state is not "in step"."""


class GroupsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of all consumer groups that one flow syncs."""

    flow: str
    at_ms: int
    reverse: bool = False
    """Whether the report is about the sync of positions from the target to the source (`groups.reverse`). Such a report
    contains no lags. If false, the report is about the sync from the source to the target."""
    source: CommitSource
    note: str = ""
    """One line for operators that says why mirrord cannot read or sync the positions of some or all groups, for example
    because it lacks a permission. Empty if there is no such failure."""
    skipped: int = 0
    """Number of records in `__consumer_offsets` that could not be decoded."""
    is_current: bool = True
    """Whether all positions were examined after the last commit that mirrord has seen."""
    groups: tuple[GroupStatus, ...] = ()


class TranslatedPosition(msgspec.Struct, frozen=True, array_like=True):
    """A group's position on the source in one partition, and the matching position on the target. The position on the
    target may not have been committed yet."""

    group: str
    topic: str
    target_topic: str
    partition: int
    upstream: int
    """Next offset to read on the source."""
    downstream: int
    """Next offset to read on the target. It is at most the end of the copied records."""
    metadata: str


class GroupsNews(msgspec.Struct, frozen=True):
    """What a group follower reports to the supervisor: the positions that have changed since the previous report, and
    the current failure, if any."""

    note: str = ""
    """One line for operators that says why mirrord cannot read or sync the positions of some or all groups, for example
    because it lacks a permission. Empty if there is no such failure."""
    translated: tuple[TranslatedPosition, ...] = ()
    """The latest translated position of each group and partition whose position has changed since the previous
    report."""
    states: dict[str, int] | None = None
    """Number of positions in each `GroupState`. None if the positions have not been counted since the previous
    report."""
