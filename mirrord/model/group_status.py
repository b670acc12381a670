"""The positions of consumer groups on both sides of a flow, in the form that operators and programs receive."""

from typing import Literal

import msgspec

GroupState = Literal[
    "in step", "waits", "active", "ahead", "expired", "not copied", "unknown", "unsure", "refused", "behind"
]
"""State of a consumer group's position in one partition.

A position is followed on one side and committed on the other side. By default, it is followed at the source and
committed at the target. In a `reverse` report, it is followed at the target and committed at the source.

- "in step": the positions on both sides match.
- "waits": records before the followed position are not copied yet. The position was committed up to the end of the
  copied records.
- "active": nothing is committed, because the group has members on the side where its position would be committed.
- "ahead": nothing is committed, because the committed position is higher, or because a consumer has changed it. The
  followed position did not go back.
- "expired": the followed side no longer has the position. The other side is left unchanged.
- "not copied": the topic is not copied.
- "unknown": the position cannot be translated, for the given reason.
- "unsure": it is unknown on which side the position moved last.
- "refused": the broker does not accept the commit.
- "behind": mirrord will commit the position next.
"""
CommitSource = Literal["log", "polling", "starting"]
"""How mirrord tracks commits on the followed side. "log": it reads `__consumer_offsets`. "polling": it requests the
offsets of the groups regularly. "starting": it does neither yet."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A consumer group's position in one partition."""

    group: str
    topic: str
    partition: int
    target_topic: str
    """Name of the target topic, or an empty string if the topic is not copied."""
    source_offset: int | None
    """Committed offset at the source, or None if there is none."""
    committed_ms: int | None = None
    """Time at which the source's broker accepted the commit, by the broker's clock. None if the time is unknown."""
    target_offset: int | None = None
    """Committed offset at the target, or None if there is none."""
    translated: int | None = None
    """The position on the followed side, translated to an offset on the other side. None if it cannot be translated."""
    lag_records: int | None = None
    """Number of offsets between the position at the target and the end of the target partition. None if the number is
    unknown."""
    lag_s: float | None = None
    """Age in seconds of the first record after the position at the target. 0 if there is no such record. None if the
    age is unknown."""
    state: GroupState
    why: str = ""
    """The reason for the state, if the state is not "in step"."""


class GroupsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of all consumer groups of one flow."""

    flow: str
    at_ms: int
    reverse: bool = False
    """Whether the report is about positions that are synced from the target back to the source. Such a report contains
    no lags."""
    source: CommitSource
    note: str = ""
    """One line for operators that says why the groups, or some of them, are not followed. Empty if all groups are
    followed."""
    skipped: int = 0
    """Number of records of `__consumer_offsets` that could not be decoded."""
    groups: tuple[GroupStatus, ...] = ()


class TranslatedPosition(msgspec.Struct, frozen=True, array_like=True):
    """A group's position at the source, and the matching position at the target. The target position may or may not be
    committed."""

    group: str
    topic: str
    target_topic: str
    partition: int
    upstream: int
    """Next offset to read at the source."""
    downstream: int
    """Next offset to read at the target. It is at most the end of the copied records."""
    metadata: str


class GroupsNews(msgspec.Struct, frozen=True):
    """The changes since the supervisor last asked a group follower for news."""

    note: str = ""
    """One line for operators that says why the groups, or some of them, are not followed. Empty if all groups are
    followed."""
    translated: tuple[TranslatedPosition, ...] = ()
    """The newest translated position of each group and partition for which the position has changed."""
    states: dict[str, int] | None = None
    """Number of positions in each `GroupState`. None if they were not counted again since the last answer."""
