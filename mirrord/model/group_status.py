"""The positions of consumer groups on both sides of a flow, as reported to people and programs."""

from typing import Literal

import msgspec

GroupState = Literal[
    "in step", "waits", "active", "ahead", "expired", "not copied", "unknown", "unsure", "refused", "behind"
]
"""State of one partition of a group. A position is followed on one side and committed on the other: by default it is
followed at the source and committed at the target; in a `reverse` report it is the other way round.

"in step": both positions match. "waits": they match up to the end of the copied records. "active": the group has
members on the side where its position would be committed, and these are left alone. "ahead": the position on that side
is further, or has moved there by itself, and the followed side did not go back. "expired": the followed side no longer
has the position, and the other side is left unchanged. "not copied": the topic is not copied. "unknown": the position
has no counterpart, and the reason says why. "unsure": it is not known on which side the position moved last. "refused":
the broker does not accept the commit. "behind": the position will be committed next.
"""
CommitSource = Literal["log", "polling", "starting"]
"""How commits are observed, at the source or with `reverse` at the target. "log": from `__consumer_offsets`. "polling":
by requests. "starting": not yet.
"""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One group in one partition."""

    group: str
    topic: str
    partition: int
    target_topic: str
    """Name of the target topic, or an empty string if the topic is not copied."""
    source_offset: int | None
    """Next offset to read at the source, or None if the source no longer has a position."""
    committed_ms: int | None = None
    """Time at which the source accepted the commit, by its clock. None if it is not known."""
    target_offset: int | None = None
    """Next offset to read at the target, or None if nothing is committed there."""
    translated: int | None = None
    """The source's position translated to the target, or with `reverse` the target's translated to the source. None if
    it has no counterpart.
    """
    lag_records: int | None = None
    """Number of records at the target that are after the target's position."""
    lag_s: float | None = None
    """Age of the first of these records, or 0 if there is none."""
    state: GroupState
    why: str = ""
    """Why the state is not "in step"."""


class GroupsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of one flow."""

    flow: str
    at_ms: int
    reverse: bool = False
    """Whether the report is about the direction from the target back to the source.

    In that case no lags are reported.
    """
    source: CommitSource
    note: str = ""
    """One line for people that says why groups are not followed, or not fully."""
    skipped: int = 0
    """Number of records of `__consumer_offsets` that could not be read."""
    groups: tuple[GroupStatus, ...] = ()


class TranslatedPosition(msgspec.Struct, frozen=True, array_like=True):
    """A group's position on both sides, whether or not it was committed."""

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
    """The changes that a follower of groups reports since it was last asked."""

    note: str = ""
    """One line for people that says why groups are not followed, or not fully. Empty if there is nothing to say."""
    translated: tuple[TranslatedPosition, ...] = ()
    """The newest position of each group and partition."""
    states: dict[str, int] | None = None
    """Number of positions in each state, or None if it is unchanged since the last report."""
