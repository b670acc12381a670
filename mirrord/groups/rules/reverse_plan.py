"""Remembers which source and target positions of a group match, and plans what to commit on the source.

With `groups.reverse`, positions are synced from the source to the target and from the target to the source. A position
that mirrord has committed in one direction must not be synced back as if a consumer had moved to it. Therefore, mirrord
remembers the two matching positions of a group as a `PositionPair`. A group has moved on one side if its position on
that side differs from the pair. The decision depends on where the group has moved:

- on one side only: the position on the other side is set to match, even if this moves it back to an earlier offset.
- on both sides: the lower position is set to match the higher one. Neither side is moved back.
- on neither side: nothing is committed.

A pair is `seen` if this process has committed one of its positions, or has observed that both positions match. Other
pairs come from checkpoints that an earlier process wrote to the target. `mirrord.groups.checkpoint_memory` reads these
checkpoints. Pairs from checkpoints may be outdated. They can be a reason to commit nothing, but never a reason to move
the source back.

Without a `seen` pair, mirrord may have committed a group's current position itself. The position counts as committed by
a consumer in two cases: it has a leader epoch (mirrord commits none), or it changed while this process was running.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from mirrord.groups.rules.commit_plan import NO_EPOCH, Hold, Mapped, PositionPair, Write
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.kafka.protocol.primitives import TopicAndPartition


class PositionPairs:
    """The matching positions of one flow's groups, by group and source partition."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, TopicAndPartition], PositionPair] = {}
        self._unsure: dict[tuple[str, TopicAndPartition], PositionPair] = {}
        """The groups for which it is unclear on which side they moved last, with their positions on both sides at the
        time when this became unclear."""

    def of(self, group: str, place: TopicAndPartition) -> PositionPair | None:
        """Return the newest pair of matching positions of this group and partition, or None if there is none."""
        return self._known.get((group, place))

    def learn(self, group: str, place: TopicAndPartition, source: int, target: int) -> None:
        """Add a pair of matching positions from a checkpoint, which an earlier process wrote to the target. This pair
        replaces a pair from an earlier checkpoint, but not a pair that this process has observed or committed."""
        known = self.of(group, place)
        if known is None or not known.seen:
            self._known[group, place] = PositionPair(source, target)

    def met(self, group: str, place: TopicAndPartition, source: int, target: int, *, back: bool = False) -> None:
        """Record that these positions on the source and on the target now match. `back` is true if mirrord set the
        source to the target's position."""
        known = self.of(group, place)
        if known is None or not known.seen or (known.source, known.target) != (source, target) or back:
            self._known[group, place] = PositionPair(source, target, seen=True, back=back)
        self._unsure.pop((group, place), None)

    def unsure(self, group: str, place: TopicAndPartition, source: int, target: int) -> None:
        """Record the current positions on both sides, because it is unclear on which side the group moved last."""
        self._unsure.setdefault((group, place), PositionPair(source, target))

    def has_moved(
        self, group: str, place: TopicAndPartition, *, source: int | None = None, target: int | None = None
    ) -> bool:
        """Return whether the group has moved on one side since `unsure` recorded its positions. Exactly one of `source`
        and `target` is given: the group's current position on that side."""
        known = self._unsure.get((group, place))
        return known is not None and (
            (source is not None and source != known.source) or (target is not None and target != known.target)
        )

    def forget(self, group: str, place: TopicAndPartition) -> None:
        """Forget the pair of matching positions of this group and partition."""
        self._known.pop((group, place), None)

    def forget_all(self, groups: Collection[str], places: Iterable[tuple[str, TopicAndPartition]]) -> None:
        """Forget everything about these groups, and about these partitions of other groups."""
        gone = {*places, *(key for known in (self._known, self._unsure) for key in known if key[0] in groups)}
        for known in (self._known, self._unsure):
            for key in gone & known.keys():
                del known[key]


class Asked(NamedTuple):
    """Options of `mirrord groups --reverse`. All of them are False when a group follower syncs positions
    continuously."""

    once: bool = False
    force: bool = False
    """Whether the source is also set to the target's position if the source is ahead, or if it is unknown on which side
    the group moved last."""


def plan_back(
    newest: CommittedOffset,
    mapped: Mapped,
    present: CommittedOffset | None,
    forth: Callable[[], Mapped],
    pair: PositionPair | None,
    asked: Asked,
    *,
    is_own: bool,
) -> Write | Hold:
    """Decide what to commit on the source for one group in one partition.

    `newest` is the group's position on the target, and `mapped` is the matching position on the source. `present` is
    the group's current position on the source, and `forth` returns the matching position on the target. `is_own` is
    true if the position on the target is known to come from a client. If it is false, mirrord may have committed that
    position.
    """
    offset = mapped.offset
    if offset is None:
        return Hold("unknown", mapped.why)
    waits = mapped.missing > 0
    wanted = CommittedOffset(offset, NO_EPOCH, newest.metadata)
    if present is None:
        if not is_own and not asked.once:
            return Hold(
                "expired", "the source no longer has it, and no client is known to have continued reading on the target"
            )
        return Write(wanted, "the source has no position", waits)
    if offset == present.offset:
        return Hold("waits", unexplained_line(mapped)) if waits else Hold("in step")
    there = forth()
    if there.offset == newest.offset and not there.missing:
        return Hold("in step")
    if asked.force:
        return Write(wanted, "the target's position counts", waits)
    if offset > present.offset:
        return _not_on(newest, present, pair, is_own=is_own) or Write(wanted, "the target has moved on", waits)
    return _not_back(newest, present, pair) or Write(wanted, "the target went back", waits)


def _not_on(
    newest: CommittedOffset, present: CommittedOffset, pair: PositionPair | None, *, is_own: bool
) -> Hold | None:
    """Return why the group's position on the source is not moved forward to match its position on the target. Return
    None if it is moved forward."""
    is_seen = pair is not None and pair.seen
    if pair is not None and newest.offset == pair.target:
        if present.offset < pair.source:
            return Hold("ahead", "the source has moved, and the target will follow")
        # Neither position has moved since the pair was recorded, when the target was set to the source's position. The
        # target's position can nevertheless translate to a higher offset on the source if the two logs contain the same
        # records in a different order.
        if present.offset == pair.source and is_seen and not pair.back:
            return Hold("in step")
    if not is_seen and not is_own:
        return Hold(
            "unsure",
            "no client is known to have continued reading on the target: the position may be the source's old one",
        )
    return None


def _not_back(newest: CommittedOffset, present: CommittedOffset, pair: PositionPair | None) -> Hold | None:
    """Return why the group's position on the source is not moved back to match its position on the target. Return None
    if it is moved back."""
    if pair is None or not pair.seen or present.offset != pair.source:
        return Hold("ahead", "the source is further ahead, and the target is not known to have gone back")
    if newest.offset < pair.target:
        return None
    if newest.offset > pair.target:
        return Hold("ahead", "the source is further ahead, and the target did not go back")
    return Hold("in step") if pair.back else Hold("ahead", "the source is further ahead, and no side has moved")


def unexplained_line(mapped: Mapped) -> str:
    """Return why a group's position on the source does not yet match its position on the target."""
    return (
        mapped.why
        or f"{mapped.missing} target offsets before it are not in the map yet: just copied, or written by others"
    )
