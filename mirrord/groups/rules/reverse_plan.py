"""Where groups stood on both sides at once, and what is carried from the target back to the source.

While a flow keeps the source in step, too, each side follows the other. What one direction has written must not come
back as if somebody had moved there. So the two positions of a group that belong together are remembered as a `Pair`,
and a side counts as moved only when its position is not the pair's any more:

- moved at one side alone: the other one follows, also back.
- moved at both: the one that is further counts. Neither is set back.
- moved at none: nothing is done.

A pair that this process has made or found is `seen`. One that only a checkpoint tells is as old as that checkpoint:
enough to leave a side alone, not enough to set one back. Then, too, a position counts as somebody's own only when it
tells the leader epoch of what was read (mirrord tells none), or when it came while this process was looking.
"""

from collections.abc import Callable
from typing import NamedTuple

from mirrord.groups.rules.commit_plan import NO_EPOCH, Hold, Mapped, Pair, Write
from mirrord.kafka.protocol.groups import CommittedOffset, TopicPartition


class Pairs:
    """The pairs of one flow's groups, by group and partition of the source."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, TopicPartition], Pair] = {}
        self._unsure: dict[tuple[str, TopicPartition], Pair] = {}
        """Where both sides stood when it was first not known which of them had moved."""

    def of(self, group: str, place: TopicPartition) -> Pair | None:
        """The newest one."""
        return self._known.get((group, place))

    def learn(self, group: str, place: TopicPartition, source: int, target: int) -> None:
        """A checkpoint tells so; the last one counts, and what was seen counts more."""
        known = self.of(group, place)
        if known is None or not known.seen:
            self._known[group, place] = Pair(source, target)

    def met(self, group: str, place: TopicPartition, source: int, target: int, *, back: bool = False) -> None:
        """Both sides stand there now; `back`: the source was set to where the target is."""
        known = self.of(group, place)
        if known is None or not known.seen or (known.source, known.target) != (source, target) or back:
            self._known[group, place] = Pair(source, target, seen=True, back=back)
        self._unsure.pop((group, place), None)

    def unsure(self, group: str, place: TopicPartition, source: int, target: int) -> None:
        """Both sides stand there now, and it is not known which of them has moved last."""
        self._unsure.setdefault((group, place), Pair(source, target))

    def has_moved(
        self, group: str, place: TopicPartition, *, source: int | None = None, target: int | None = None
    ) -> bool:
        """Whether that side stands elsewhere than when it was not known: somebody has moved it since."""
        known = self._unsure.get((group, place))
        return known is not None and (
            (source is not None and source != known.source) or (target is not None and target != known.target)
        )

    def forget(self, group: str, place: TopicPartition) -> None:
        """It no longer matters."""
        self._known.pop((group, place), None)


class Asked(NamedTuple):
    """What a person has asked for, who looks at it and decides; False: it is done all the time, by itself."""

    once: bool = False
    force: bool = False
    """Also where the source is further, or it is not known which side has moved last."""


def plan_back(
    newest: CommittedOffset,
    mapped: Mapped,
    present: CommittedOffset | None,
    forth: Callable[[], Mapped],
    pair: Pair | None,
    asked: Asked,
    *,
    is_own: bool,
) -> Write | Hold:
    """For one group in one partition. `newest` is what the target has, `mapped` the same at the source, `present` what
    the source has, and `forth` tells where that is at the target; `is_own`: the target's is known not to be
    mirrord's."""
    offset = mapped.offset
    if offset is None:
        return Hold("unknown", mapped.why)
    waits = mapped.missing > 0
    wanted = CommittedOffset(offset, NO_EPOCH, newest.metadata)
    if present is None:
        if not is_own and not asked.once:
            return Hold("expired", "the source knows it no more, and nobody is known to have read on at the target")
        return Write(wanted, "the source has no position", waits)
    if offset == present.offset:
        return Hold("waits", unexplained_line(mapped)) if waits else Hold("in step")
    there = forth()
    if there.offset == newest.offset and not there.missing:
        return Hold("in step")
    if asked.force:
        return Write(wanted, "the target is to count", waits)
    if offset > present.offset:
        return _not_on(newest, present, pair, is_own=is_own) or Write(wanted, "the target has moved on", waits)
    return _not_back(newest, present, pair) or Write(wanted, "the target went back", waits)


def _not_on(newest: CommittedOffset, present: CommittedOffset, pair: Pair | None, *, is_own: bool) -> Hold | None:
    """Why the source does not go on to where the target is."""
    is_seen = pair is not None and pair.seen
    if pair is not None and newest.offset == pair.target:
        if present.offset < pair.source:
            return Hold("ahead", "the source has moved, and the target is to follow")
        # Further than a source that has moved on, too: so it is where each side has records that the other one read
        # elsewhere.
        if present.offset == pair.source and is_seen and not pair.back:
            return Hold("in step")
    if not is_seen and not is_own:
        return Hold("unsure", "nobody is known to have read on at the target: the position may be the source's old one")
    return None


def _not_back(newest: CommittedOffset, present: CommittedOffset, pair: Pair | None) -> Hold | None:
    """Why the source does not go back to where the target is."""
    if pair is None or not pair.seen or present.offset != pair.source:
        return Hold("ahead", "the source is further, and the target is not known to have gone back")
    if newest.offset < pair.target:
        return None
    if newest.offset > pair.target:
        return Hold("ahead", "the source is further, and the target did not go back")
    return Hold("in step") if pair.back else Hold("ahead", "the source is further, and nobody has moved")


def unexplained_line(mapped: Mapped) -> str:
    """Why a position is not yet the target's."""
    return (
        mapped.why
        or f"{mapped.missing} target offsets in front of it are not in the map yet: just copied, or written by others"
    )
