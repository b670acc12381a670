"""Where groups stand at the source, and what is to be committed for them at the target.

`GroupBook` takes the source's commits in their order and keeps the newest one of each group and partition. `plan` holds
one of them, translated by the map, against what the target has, and says what is to be committed or why nothing is:

- Never in front of what is copied: the map answers with the end of the copy at most.
- Never back, but after the source. That the source went back is seen in the order of its commits: the newest one is
  lower than one before it, or than the last checkpoint of before this process began, whose position the target still
  has. Then the target follows as long as its position is one that the source has been at, and nobody but mirrord
  committed it: a consumer of the target tells the leader epoch of what it has read, and mirrord tells none
  (OffsetAndMetadata; KIP-320).
- Nothing is ever deleted. A position that the source forgets (expired, its topic deleted) stays at the target until the
  target forgets it, too.
- A group with members at the target is left alone.

- Where the source follows the target, too (`mirrord.groups.rules.reverse_plan`), what has moved there alone is left to
  that.

What was decided need not be remembered: source log, checkpoints, target and map tell all of it again after a restart.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from mirrord.config.flow_features import GroupsConfig, GroupsMode
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.groups import CommittedOffset, TopicPartition
from mirrord.model.group_status import GroupState

NO_EPOCH = -1
NAMES_KEPT = 100_000
"""Of groups that were judged once; some clients make a new name at each start."""
EXPIRED_KEPT = 1_000
"""Groups that the source knows no more and that are still told of."""


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
            if len(self._known) >= NAMES_KEPT:
                self._known.clear()
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

    def settled(self, group: str, place: TopicPartition, offset: int) -> None:
        """The target is where the source is, at this offset: how it came there no longer matters."""
        course = self._groups.get(group, {}).get(place)
        if course is not None:
            course.peak = offset

    def forget_expired(self) -> list[str]:
        """Forget the groups, but for the last ones, of which the source knows no position any more."""
        expired = [
            group
            for group, courses in self._groups.items()
            if all(course.newest is None for course in courses.values())
        ]
        gone = expired[: max(0, len(expired) - EXPIRED_KEPT)]
        for group in gone:
            del self._groups[group]
        return gone

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


class Pair(NamedTuple):
    """Positions of a group on both sides that belong together."""

    source: int
    target: int
    seen: bool = False
    """This process has made or found it; otherwise a checkpoint tells."""
    back: bool = False
    """The source was set to where the target was."""


class Past(NamedTuple):
    """What was before, and what else is to be thought of."""

    peak: Callable[[], Mapped]
    """The map's answer for the course's peak."""
    pair: Pair | None = None
    back: Callable[[], Mapped] | None = None
    """Where the target's position is at the source."""
    two_way: bool = False
    """The source follows the target, too."""
    is_own: bool = True
    """The source's position is known not to be one that mirrord has committed."""


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


def plan(course: Course, mapped: Mapped, present: CommittedOffset | None, past: Past, mode: GroupsMode) -> Write | Hold:
    """For one group in one partition. `present` is what the target has."""
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
    if offset == present.offset:
        if present.metadata != newest.metadata and present.leader_epoch == NO_EPOCH and not past.two_way:
            return Write(wanted, "its metadata are others", waits)
        return Hold("waits", waiting_line(mapped)) if waits else Hold("in step")
    left = _left_to_target(newest, offset, present, past)
    if left is not None:
        return left
    if offset > present.offset:
        return Write(wanted, "the source has moved on", waits)
    line = _not_back(course, present, past, mode)
    return Hold("ahead", line) if line else Write(wanted, "the source went back", waits)


def _left_to_target(newest: OffsetValue, offset: int, present: CommittedOffset, past: Past) -> Hold | None:
    """Whether the target's position is one that stays: its own consumers' or the one that the source was set to."""
    pair, by_consumer = past.pair, present.leader_epoch != NO_EPOCH
    if past.two_way and pair is not None and newest.offset == pair.source:
        if present.offset < pair.target or offset < present.offset:
            return Hold("ahead", "it has moved at the target, and the source is to follow")
        if present.offset == pair.target and pair.back:
            return Hold("in step")
    if offset < present.offset:
        return None
    if (past.two_way or by_consumer) and past.back is not None:
        here = past.back()
        # What stands between the two are others' records, which consumers of the target have yet to read.
        if here.offset == newest.offset and not here.missing:
            return Hold("in step")
    is_seen = pair is not None and pair.seen
    if past.two_way and by_consumer and not past.is_own and not is_seen:
        return Hold("unsure", "nobody is known to have read on at the source: the position may be the target's old one")
    return None


def _not_back(course: Course, present: CommittedOffset, past: Past, mode: GroupsMode) -> str:
    """Why the target does not go back; empty when it does."""
    if mode == "forward-only":
        return 'the target is ahead, and groups.mode is "forward-only"'
    newest, pair = course.newest, past.pair
    went_back = newest is not None and pair is not None and newest.offset < pair.source
    if past.two_way and pair is not None and pair.seen and present.offset == pair.target and went_back:
        return ""  # both belonged together, and the source alone has moved since
    is_remembered = (
        newest is not None
        and pair is not None
        and not pair.seen
        and newest.offset < pair.source
        and present.offset == pair.target
    )
    if newest is None or (course.peak <= newest.offset and not is_remembered):
        return "the target is ahead, and the source did not go back"
    if present.leader_epoch != NO_EPOCH:
        return "the source went back, but a consumer has committed at the target"
    if is_remembered:
        return ""
    reached = past.peak().offset
    if reached is None or reached < present.offset:
        return "the source went back, but the target was ahead of it before"
    return ""


def waiting_line(mapped: Mapped) -> str:
    """Why a position is not yet the source's."""
    return mapped.why or f"{mapped.missing} source offsets in front of it are not copied yet"
