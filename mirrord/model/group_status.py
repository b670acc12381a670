"""The positions of consumer groups on both sides of a flow, as reported to people and programs."""

from typing import Literal

import msgspec

GroupState = Literal[
    "in step", "waits", "active", "ahead", "expired", "not copied", "unknown", "unsure", "refused", "behind"
]
"""State of a consumer group's position in one partition. A position is followed on one side and committed on the other
side. By default it is followed at the source and committed at the target. In a `reverse` report it is followed at the
target and committed at the source.

"in step": the positions on both sides match. "waits": the position was committed up to the end of the copied records,
because records before the followed position are not copied yet. "active": nothing is committed, because the group has
members on the side where its position would be committed. "ahead": nothing is committed, because the position on that
side is higher or was changed there by a consumer, and the position on the followed side did not go back. "expired": the
followed side no longer has the position, and the other side is left unchanged. "not copied": the topic is not copied.
"unknown": the position has no counterpart on the other side, for the reason given. "unsure": it is not known on which
side the position moved last. "refused": the broker does not accept the commit. "behind": the position will be committed
next.
"""
CommitSource = Literal["log", "polling", "starting"]
"""How mirrord learns of commits on the followed side. "log": it reads `__consumer_offsets`. "polling": it requests the
offsets of the groups regularly. "starting": it has not begun yet.
"""


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
    """Time at which the source's broker accepted the commit, by its own clock. None if it is unknown."""
    target_offset: int | None = None
    """Committed offset at the target, or None if there is none."""
    translated: int | None = None
    """The position on the followed side, translated to an offset on the other side. None if it has no counterpart
    there.
    """
    lag_records: int | None = None
    """Number of offsets between the position at the target and the end of the target partition."""
    lag_s: float | None = None
    """Age in seconds of the first record after the position at the target. 0 if there is no such record."""
    state: GroupState
    why: str = ""
    """Why the state is not "in step"."""


class GroupsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of all consumer groups of one flow."""

    flow: str
    at_ms: int
    reverse: bool = False
    """Whether the report is about positions that are synced from the target back to the source.

    In that case no lags are reported.
    """
    source: CommitSource
    note: str = ""
    """One line for people that says why groups are not followed, or only partly. Empty if they are followed."""
    skipped: int = 0
    """Number of records of `__consumer_offsets` that could not be decoded."""
    groups: tuple[GroupStatus, ...] = ()


class TranslatedPosition(msgspec.Struct, frozen=True, array_like=True):
    """A group's position at the source and the matching position at the target, whether or not the latter was
    committed."""

    group: str
    topic: str
    target_topic: str
    partition: int
    upstream: int
    """Next offset to read at the source."""
    downstream: int
    """Next offset to read at the target. It is never after the end of the copied records."""
    metadata: str


class GroupsNews(msgspec.Struct, frozen=True):
    """What has changed since the supervisor last asked a group follower."""

    note: str = ""
    """One line for people that says why groups are not followed, or only partly. Empty if they are followed."""
    translated: tuple[TranslatedPosition, ...] = ()
    """The newest translated position of each group and partition that has changed."""
    states: dict[str, int] | None = None
    """Number of positions in each `GroupState`, or None if they were not counted again since the last answer."""
