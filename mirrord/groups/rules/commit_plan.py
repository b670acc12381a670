"""Track the positions of groups at the source, and plan what to commit for them at the target.

`GroupBook` takes the source's commits in order and keeps the newest one of each group and partition. `plan` compares
one of them, translated by the map, with the target's position, and decides what to commit or why to commit nothing:

- Never past the copied records: the map answers at most with the end of the copy.
- Never back, unless the source went back. The order of the source's commits shows that: the newest one is lower than an
  earlier one, or lower than the last checkpoint from before this process began, whose position the target still has.
  Then the target follows, provided that its position is one that the source has been at and that only mirrord can have
  committed. A consumer at the target commits the leader epoch of the record it has read; mirrord commits none
  (OffsetAndMetadata; KIP-320).
- Nothing is ever deleted. A position that the source forgets (expired, or its topic deleted) stays at the target until
  the target forgets it, too.
- A group with members at the target is left alone.
- Where the source follows the target as well, `mirrord.groups.rules.reverse_plan` decides about a position that has
  moved only at the target.

Decisions need not be remembered: source log, checkpoints, target and map give all of them again after a restart.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from mirrord.config.flow_features import GroupsConfig, GroupsMode
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.model.group_status import GroupState

NO_EPOCH = -1
NAMES_KEPT = 100_000
"""Maximum number of group names whose match is remembered. Some clients make a new name at each start."""
EXPIRED_KEPT = 1_000
"""Number of groups without a position at the source that are still reported."""


class GroupFilter:
    """The selection of groups to sync: the whole name matches one of the patterns and none of the exclusions."""

    def __init__(self, config: GroupsConfig) -> None:
        self._match = [re.compile(pattern) for pattern in config.match]
        self._exclude = [re.compile(pattern) for pattern in config.exclude]
        self._known: dict[str, bool] = {}

    def passes(self, group: str) -> bool:
        """Whether this group is synced."""
        known = self._known.get(group)
        if known is None:
            if len(self._known) >= NAMES_KEPT:
                self._known.clear()
            known = self._known[group] = any(each.fullmatch(group) for each in self._match) and not any(
                each.fullmatch(group) for each in self._exclude
            )
        return known


class Course(msgspec.Struct):
    """A group's history in one partition, as the source reports it."""

    newest: OffsetValue | None
    """The newest commit, or None if the source no longer has one."""
    peak: int
    """The highest offset seen since the target was last known to match the source."""


class GroupBook:
    """The newest commits of the source."""

    def __init__(self, passes: Callable[[str], bool]) -> None:
        self._passes = passes
        self._groups: dict[str, dict[TopicAndPartition, Course]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, key: OffsetKey, value: OffsetValue | None) -> bool:
        """Take in the source's next record, with None where it deletes the position.

        Return whether the group is selected.
        """
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

    def replace(self, group: str, offsets: dict[TopicAndPartition, OffsetValue]) -> bool:
        """Take in all current commits of a group. Return whether they differ from the ones known before."""
        changed = False
        known = self._groups.get(group, {})
        for place in known.keys() - offsets.keys():
            if known[place].newest is not None:
                changed = self.take(OffsetKey(group, *place), None)
        for place, value in offsets.items():
            course = known.get(place)
            # The answer to such a request does not say when a position was committed.
            if course is None or course.newest is None or not _same(course.newest, value):
                changed = self.take(OffsetKey(group, *place), value) or changed
        return changed

    def settled(self, group: str, place: TopicAndPartition, offset: int) -> None:
        """Record that the target matches the source at this offset. The earlier history no longer matters."""
        course = self._groups.get(group, {}).get(place)
        if course is not None:
            course.peak = offset

    def forget_expired(self) -> list[str]:
        """Forget the groups for which the source has no position any more, except for the most recent of them."""
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
        """Return the names of all known groups."""
        return self._groups.keys()

    def courses(self, group: str) -> Iterator[tuple[TopicAndPartition, Course]]:
        """Yield the partitions of one group and its history in each."""
        yield from self._groups.get(group, {}).items()


def _same(known: OffsetValue, new: OffsetValue) -> bool:
    return (known.offset, known.metadata) == (new.offset, new.metadata)


class Mapped(NamedTuple):
    """The map's translation of the source's position."""

    offset: int | None
    """Next offset to read at the target, or None if nothing can be said."""
    missing: int = 0
    """Number of source offsets before the position that are not copied yet. If it is not 0, `offset` is the end of the
    copy.
    """
    why: str = ""
    provisional: bool = False
    """Whether the answer may turn out to be slightly higher and must be asked for again."""


class PositionPair(NamedTuple):
    """Positions of a group on both sides that match."""

    source: int
    target: int
    seen: bool = False
    """Whether this process has made or found the pair; otherwise it comes from a checkpoint."""
    back: bool = False
    """Whether the source was set to the target's position."""


class Past(NamedTuple):
    """Earlier positions of the group, and the rest of the context that a decision needs."""

    peak: Callable[[], Mapped]
    """Returns the map's translation of the highest offset in the group's history."""
    pair: PositionPair | None = None
    back: Callable[[], Mapped] | None = None
    """Translates the target's position to the source."""
    two_way: bool = False
    """Whether the source also follows the target."""
    is_own: bool = True
    """Whether the source's position is known not to be one that mirrord committed."""


class Write(NamedTuple):
    """A position to commit."""

    commit: CommittedOffset
    why: str
    waits: bool = False
    """Whether this is the end of the copied records, while the source's position is still ahead of it."""


class Hold(NamedTuple):
    """The decision to commit nothing."""

    state: GroupState
    why: str = ""


def plan(course: Course, mapped: Mapped, present: CommittedOffset | None, past: Past, mode: GroupsMode) -> Write | Hold:
    """Decide what to commit for one group in one partition. `present` is the target's position."""
    newest = course.newest
    if newest is None:
        return Hold("expired", "the source no longer has this position; the target's is left as it is")
    offset = mapped.offset
    if offset is None:
        return Hold("unknown", mapped.why)
    waits = mapped.missing > 0
    wanted = CommittedOffset(offset, NO_EPOCH, newest.metadata)
    if present is None:
        return Write(wanted, "the target has no position", waits)
    if offset == present.offset:
        if present.metadata != newest.metadata and present.leader_epoch == NO_EPOCH and not past.two_way:
            return Write(wanted, "its metadata is different", waits)
        return Hold("waits", waiting_line(mapped)) if waits else Hold("in step")
    left = _left_to_target(newest, offset, present, past)
    if left is not None:
        return left
    if offset > present.offset:
        return Write(wanted, "the source has moved on", waits)
    line = _not_back(course, present, past, mode)
    return Hold("ahead", line) if line else Write(wanted, "the source went back", waits)


def _left_to_target(newest: OffsetValue, offset: int, present: CommittedOffset, past: Past) -> Hold | None:
    """Return why the target's position is kept: it is its consumers' own, or the one that the source was set to."""
    pair, by_consumer = past.pair, present.leader_epoch != NO_EPOCH
    if past.two_way and pair is not None and newest.offset == pair.source:
        if present.offset < pair.target or offset < present.offset:
            return Hold("ahead", "it has moved at the target, and the source will follow")
        if present.offset == pair.target and pair.back:
            return Hold("in step")
    if offset < present.offset:
        return None
    if (past.two_way or by_consumer) and past.back is not None:
        here = past.back()
        # Only records of other writers lie between the two positions, and consumers of the target have yet to read
        # them.
        if here.offset == newest.offset and not here.missing:
            return Hold("in step")
    is_seen = pair is not None and pair.seen
    if past.two_way and by_consumer and not past.is_own and not is_seen:
        return Hold(
            "unsure", ("no client is known to have read on at the source: the position may be the target's old one")
        )
    return None


def _not_back(course: Course, present: CommittedOffset, past: Past, mode: GroupsMode) -> str:
    """Return why the target is not moved back, or an empty string if it is."""
    if mode == "forward-only":
        return 'the target is ahead, and groups.mode is "forward-only"'
    newest, pair = course.newest, past.pair
    went_back = newest is not None and pair is not None and newest.offset < pair.source
    if past.two_way and pair is not None and pair.seen and present.offset == pair.target and went_back:
        return ""  # both positions matched, and only the source has moved since
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
    """Return why a position does not match the source's yet."""
    return mapped.why or f"{mapped.missing} source offsets before it are not copied yet"
