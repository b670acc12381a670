"""Where consumer groups stand on both sides of a flow, as it is told to people and programs."""

from typing import Literal

import msgspec

GroupState = Literal[
    "in step", "waits", "active", "ahead", "expired", "not copied", "unknown", "unsure", "refused", "behind"
]
"""One partition of a group, on its way from one side, where it is followed, to the other one, where it is committed: by
default from the source to the target, in a `reverse` report from the target to the source.

in step: both positions are the same. waits: the same, as far as records are copied. active: the group has members where
it would be committed, which are left alone. ahead: there it is further, or has moved by itself, and not because it went
back where it is followed. expired: it is not known any more where it is followed, and is left. not copied: the topic is
not. unknown: the position has no counterpart, and the reason says why. unsure: it is not known on which side it moved
last. refused: the broker does not take the commit. behind: it will be committed next.
"""
Source = Literal["log", "polling", "starting"]
"""How commits are learnt of, at the source or with `reverse` at the target: from `__consumer_offsets`, by asking for
them, not yet."""


class GroupStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One group in one partition."""

    group: str
    topic: str
    partition: int
    target_topic: str
    """Empty where the topic is not copied."""
    source_offset: int | None
    """Next to be read at the source; None where the source knows it no more."""
    committed_ms: int | None = None
    """When the source took that commit, by its clock; None where nobody told."""
    target_offset: int | None = None
    """Next to be read at the target; None: nothing is committed there."""
    translated: int | None = None
    """What the source's position is at the target, or with `reverse` the target's at the source; None where it has no
    counterpart."""
    lag_records: int | None = None
    """Records at the target that the target's position has not read."""
    lag_s: float | None = None
    """Age of the first of them; 0 when there is none."""
    state: GroupState
    why: str = ""
    """Why it is not "in step"."""


class GroupsReport(msgspec.Struct, frozen=True, kw_only=True):
    """All groups of one flow."""

    flow: str
    at_ms: int
    reverse: bool = False
    """From the target back to the source; then no lags are told."""
    source: Source
    note: str = ""
    """One line for people: why groups are not followed, or not fully."""
    skipped: int = 0
    """Records of `__consumer_offsets` that could not be read."""
    groups: tuple[GroupStatus, ...] = ()


class Translated(msgspec.Struct, frozen=True, array_like=True):
    """A group's position, on both sides: whether it was committed or not."""

    group: str
    topic: str
    target_topic: str
    partition: int
    upstream: int
    """Next to be read at the source."""
    downstream: int
    """Next to be read at the target; never in front of what is copied."""
    metadata: str


class GroupsNews(msgspec.Struct, frozen=True):
    """What a follower of groups has to say since it was last asked."""

    note: str = ""
    """One line for people, or empty: why groups are not followed, or not fully."""
    translated: tuple[Translated, ...] = ()
    """The newest of each group and partition."""
    states: dict[str, int] | None = None
    """How many positions are in which state; None: as it was told last."""
