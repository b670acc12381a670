"""Where groups stand at the source, and what is to be committed for them at the target.

`GroupBook` takes the source's commits in their order and keeps the newest one of each group and partition. `plan` holds
one of them, translated by the map, against what the target has, and says what is to be committed or why nothing is:

- Never in front of what is copied: the map answers with the end of the copy at most.
- Never back, but after the source. That the source went back is seen in the order of its commits: the newest one is
  lower than one before it. Then the target follows as long as its position is one that the source has been at, and
  nobody but mirrord committed it: a consumer of the target tells the leader epoch of what it has read, and mirrord
  tells none (OffsetAndMetadata; KIP-320).
- Nothing is ever deleted. A position that the source forgets (expired, its topic deleted) stays at the target until the
  target forgets it, too.
- A group with members at the target is left alone.

What was decided need not be remembered: source log, target and map tell all of it again after a restart.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from mirrord.model.config_features import GroupsConfig, GroupsMode
from mirrord.model.groups import GroupState
from mirrord.wire.consumer_offsets import OffsetKey, OffsetValue
from mirrord.wire.groups import CommittedOffset, TopicPartition

NO_EPOCH = -1


class GroupFilter:
    """Which groups are carried over: those whose whole name one pattern matches and no pattern excludes."""

    def __init__(self, config: GroupsConfig) -> None:
        self._match = [re.compile(pattern) for pattern in config.match]
        self._exclude = [re.compile(pattern) for pattern in config.exclude]
        self._known: dict[str, bool] = {}

    def passes(self, group: str) -> bool:
        """Whether this group is."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = any(each.fullmatch(group) for each in self._match) and not any(
                each.fullmatch(group) for each in self._exclude
            )
        return known


class Course(msgspec.Struct):
    """A group's way through one partition, as the source tells it."""

    newest: OffsetValue | None
    """None: the source knows it no more."""
    peak: int
    """The highest offset that it was seen at since the target was last known to be where the source is."""


class GroupBook:
    """The source's newest commits."""

    def __init__(self, passes: Callable[[str], bool]) -> None:
        self._passes = passes
        self._groups: dict[str, dict[TopicPartition, Course]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, key: OffsetKey, value: OffsetValue | None) -> bool:
        """The next record of the source, None when it takes the position away; whether the group is a wanted one."""
        if not self._passes(key.group):
            return False
        courses = self._groups.setdefault(key.group, {})
        course = courses.get((key.topic, key.partition))
        if course is None:
            if value is None:
                return True
            course = courses[key.topic, key.partition] = Course(None, -1)
        course.newest = value
        if value is not None and value.offset > course.peak:
            course.peak = value.offset
        return True

    def replace(self, group: str, offsets: dict[TopicPartition, OffsetValue]) -> bool:
        """All that a group has committed at this moment; whether that is another state than before."""
        changed = False
        known = self._groups.get(group, {})
        for place in known.keys() - offsets.keys():
            if known[place].newest is not None:
                changed = self.take(OffsetKey(group, *place), None)
        for place, value in offsets.items():
            course = known.get(place)
            # When it was committed is not told to who asks.
            if course is None or course.newest is None or not _same(course.newest, value):
                changed = self.take(OffsetKey(group, *place), value) or changed
        return changed

    def settled(self, group: str, place: TopicPartition) -> None:
        """The target is where the source is: how it came there no longer matters."""
        course = self._groups[group][place]
        course.peak = course.newest.offset if course.newest is not None else course.peak

    def groups(self) -> Iterable[str]:
        """The names of all that are known."""
        return self._groups.keys()

    def courses(self, group: str) -> Iterator[tuple[TopicPartition, Course]]:
        """Of one group."""
        yield from self._groups.get(group, {}).items()


def _same(known: OffsetValue, told: OffsetValue) -> bool:
    return (known.offset, known.metadata) == (told.offset, told.metadata)


class Mapped(NamedTuple):
    """The map's answer for the source's position."""

    offset: int | None
    """Next to be read at the target; None: nothing can be said."""
    missing: int = 0
    """So many source offsets in front of it are not copied yet: then `offset` is the end of the copy."""
    why: str = ""
    provisional: bool = False
    """It may turn out to be a little higher, and is to be asked for again."""


class Write(NamedTuple):
    """To be committed."""

    commit: CommittedOffset
    why: str
    waits: bool = False
    """It is the end of what is copied, and the source's position is behind it."""


class Hold(NamedTuple):
    """Nothing is committed."""

    state: GroupState
    why: str = ""


def plan(
    course: Course, mapped: Mapped, present: CommittedOffset | None, peak: Callable[[], Mapped], mode: GroupsMode
) -> Write | Hold:
    """For one group in one partition. `present` is what the target has, and `peak` gives the map's answer for the
    course's peak."""
    newest = course.newest
    if newest is None:
        return Hold("expired", "the source knows this position no more; the target's is left as it is")
    offset = mapped.offset
    if offset is None:
        return Hold("unknown", mapped.why)
    waits = mapped.missing > 0
    wanted = CommittedOffset(offset, NO_EPOCH, newest.metadata)
    if present is None:
        return Write(wanted, "the target has no position", waits)
    if offset > present.offset:
        return Write(wanted, "the source has moved on", waits)
    if offset == present.offset:
        if present.metadata != newest.metadata and present.leader_epoch == NO_EPOCH:
            return Write(wanted, "its metadata are others", waits)
        return Hold("waits", waiting_line(mapped)) if waits else Hold("in step")
    line = _not_back(course, present, peak, mode)
    return Hold("ahead", line) if line else Write(wanted, "the source went back", waits)


def _not_back(course: Course, present: CommittedOffset, peak: Callable[[], Mapped], mode: GroupsMode) -> str:
    """Why the target does not go back; empty when it does."""
    if mode == "forward-only":
        return 'the target is ahead, and groups.mode is "forward-only"'
    if course.newest is None or course.peak <= course.newest.offset:
        return "the target is ahead, and the source did not go back"
    if present.leader_epoch != NO_EPOCH:
        return "the source went back, but a consumer has committed at the target"
    reached = peak().offset
    if reached is None or reached < present.offset:
        return "the source went back, but the target was ahead of it before"
    return ""


def waiting_line(mapped: Mapped) -> str:
    """Why a position is not yet the source's."""
    return f"{mapped.missing} source offsets in front of it are not copied yet"
