"""Remember which positions of a group match on both sides, and plan what is committed back to the source.

While a flow also syncs groups from the target to the source, each side follows the other. A position that one direction
has committed must not come back as if a consumer had moved there. The two matching positions of a group are therefore
remembered as a `PositionPair`, and a side counts as moved only when its position differs from the pair's:

- moved on one side only: the other side follows, also backwards.
- moved on both sides: the lower position is raised to the higher one. Neither side is set back.
- moved on neither side: nothing is done.

A pair that this process has made or found itself is `seen`. A pair known only from a checkpoint is as old as that
checkpoint. That is enough to leave a side alone, but not enough to set one back. In that case a position also counts as
a consumer's own only if it has the leader epoch of the record read (mirrord commits none), or if it was committed while
this process was watching.
"""

from collections.abc import Callable
from typing import NamedTuple

from mirrord.groups.rules.commit_plan import NO_EPOCH, Hold, Mapped, PositionPair, Write
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.kafka.protocol.primitives import TopicAndPartition


class PositionPairs:
    """The pairs of one flow's groups, by group and source partition."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, TopicAndPartition], PositionPair] = {}
        self._unsure: dict[tuple[str, TopicAndPartition], PositionPair] = {}
        """Both positions at the time when it first became unclear which side had moved."""

    def of(self, group: str, place: TopicAndPartition) -> PositionPair | None:
        """Return the newest pair."""
        return self._known.get((group, place))

    def learn(self, group: str, place: TopicAndPartition, source: int, target: int) -> None:
        """Take in a pair from a checkpoint. The last checkpoint replaces earlier ones, but a pair that was seen takes
        precedence."""
        known = self.of(group, place)
        if known is None or not known.seen:
            self._known[group, place] = PositionPair(source, target)

    def met(self, group: str, place: TopicAndPartition, source: int, target: int, *, back: bool = False) -> None:
        """Record that these positions match now. `back` means that the source was set to the target's position."""
        known = self.of(group, place)
        if known is None or not known.seen or (known.source, known.target) != (source, target) or back:
            self._known[group, place] = PositionPair(source, target, seen=True, back=back)
        self._unsure.pop((group, place), None)

    def unsure(self, group: str, place: TopicAndPartition, source: int, target: int) -> None:
        """Record the current positions of both sides when it is not known which of them moved last."""
        self._unsure.setdefault((group, place), PositionPair(source, target))

    def has_moved(
        self, group: str, place: TopicAndPartition, *, source: int | None = None, target: int | None = None
    ) -> bool:
        """Whether that side has moved since it became unclear which side had moved last."""
        known = self._unsure.get((group, place))
        return known is not None and (
            (source is not None and source != known.source) or (target is not None and target != known.target)
        )

    def forget(self, group: str, place: TopicAndPartition) -> None:
        """Forget a pair that no longer matters."""
        self._known.pop((group, place), None)


class Asked(NamedTuple):
    """An operator's request for a single sync. Both fields are False for the continuous sync."""

    once: bool = False
    force: bool = False
    """Whether the target's position is also used where the source is ahead, or where it is unknown which side moved
    last."""


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
    """Plan what to commit at the source for one group in one partition.

    `newest` is the target's position, `mapped` is the same position at the source, `present` is the source's position,
    and `forth` translates the latter to the target. `is_own` means that the target's position is known not to be one
    that mirrord committed.
    """
    offset = mapped.offset
    if offset is None:
        return Hold("unknown", mapped.why)
    waits = mapped.missing > 0
    wanted = CommittedOffset(offset, NO_EPOCH, newest.metadata)
    if present is None:
        if not is_own and not asked.once:
            return Hold("expired", "the source no longer has it, and no client is known to have read on at the target")
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
    """Return why the source is not moved forward to the target's position, or None if it is."""
    is_seen = pair is not None and pair.seen
    if pair is not None and newest.offset == pair.target:
        if present.offset < pair.source:
            return Hold("ahead", "the source has moved, and the target will follow")
        # The target's position is further even though the source has also moved on. This happens where each side has
        # records that the other one read elsewhere.
        if present.offset == pair.source and is_seen and not pair.back:
            return Hold("in step")
    if not is_seen and not is_own:
        return Hold(
            "unsure", ("no client is known to have read on at the target: the position may be the source's old one")
        )
    return None


def _not_back(newest: CommittedOffset, present: CommittedOffset, pair: PositionPair | None) -> Hold | None:
    """Return why the source is not moved back to the target's position, or None if it is."""
    if pair is None or not pair.seen or present.offset != pair.source:
        return Hold("ahead", "the source is further, and the target is not known to have gone back")
    if newest.offset < pair.target:
        return None
    if newest.offset > pair.target:
        return Hold("ahead", "the source is further, and the target did not go back")
    return Hold("in step") if pair.back else Hold("ahead", "the source is further, and no side has moved")


def unexplained_line(mapped: Mapped) -> str:
    """Return why a position does not match the target's yet."""
    return (
        mapped.why
        or f"{mapped.missing} target offsets before it are not in the map yet: just copied, or written by others"
    )
