"""Tracks the positions of groups on the source, and plans what to commit for these groups on the target.

`GroupBook` takes the source's commits in order, and keeps the newest commit of each group and partition. The caller
translates that commit with the offset map. `plan` compares the translated position with the group's position on the
target. It then decides what to commit, or why nothing is committed:

- The target's position is never moved past the copied records: a translated position is at most the end of the copied
  records.
- The target's position is never moved back to an earlier offset unless the group moved back on the source. This is the
  case if the group's newest commit on the source is lower than one of its earlier commits.
- A group may also have moved back on the source before this process started. mirrord detects this with checkpoints,
  which are records on the target that `mirrord.groups.checkpoint_memory` reads. A checkpoint holds a group's position
  on the source and the matching position on the target. The group moved back if two conditions are met. Its newest
  commit on the source is lower than the source position in its latest checkpoint. Its position on the target is still
  the target position in this checkpoint.
- If the group moved back on the source, the target's position is moved back only under two conditions. An earlier
  position of the group on the source must have matched or passed the target's position, and the target's position must
  not have been committed by a consumer. A consumer commits the leader epoch of the record that it has read, whereas
  mirrord commits no leader epoch (see OffsetAndMetadata and KIP-320). With `groups.reverse`, these conditions do not
  apply if the two positions matched while this process was running and only the one on the source has moved since.
- mirrord never deletes a committed offset. If an offset expires on the source, or if the source deletes its topic, the
  offset on the target remains until the target deletes it as well.
- Nothing is committed for a group that has members on the target.
- With `groups.reverse`, `mirrord.groups.rules.reverse_plan` decides what happens to a position that has moved only on
  the target.

Decisions need not be stored. After a restart, the source's commits, the checkpoints, the target's offsets and the
offset map lead to the same decisions.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import msgspec

from mirrord.config.flow_features import GroupsConfig, GroupsMode
from mirrord.config.regex_cost import LONGEST_NAME, is_fast
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.model.group_status import GroupState
from mirrord.model.shown_text import printable

NO_EPOCH = -1
LONGEST_ID = 32_767
"""Maximum length of the name of a group, whose length is an int16 in the offsets topic."""
NAMES_KEPT = 100_000
"""Maximum number of group names for which the result of `passes` is cached. Some clients create a new group name each
time they start."""
SHOWN = 100
"""Number of characters that are shown of a name that is too long."""
EXPIRED_KEPT = 1_000
"""Maximum number of groups that are still reported after all their committed offsets on the source have expired. Also
the maximum number of partitions of one group that are still reported after its committed offset has expired, or was
deleted with the topic."""


class GroupFilter:
    """Selects the groups to sync. A group is selected if its whole name matches one of the patterns in `groups.match`
    and none of the patterns in `groups.exclude`.

    Kafka does not limit the length of names. A group is not followed if its name is so long that a pattern could take
    too long. `remark` reports such groups.
    """

    def __init__(self, config: GroupsConfig) -> None:
        self._match = [re.compile(pattern) for pattern in config.match]
        self._exclude = [re.compile(pattern) for pattern in config.exclude]
        self._is_fast = all(is_fast(each, LONGEST_ID) for each in (*config.match, *config.exclude))
        self._known: dict[str, bool] = {}
        self._left_out: set[int] = set()
        """Hashes of the names of groups that are not followed. The names themselves may take much memory."""
        self._first_left_out = ""

    @property
    def left_out(self) -> int:
        """The number of groups that are not followed because of their long names, up to `NAMES_KEPT`."""
        return len(self._left_out)

    @property
    def remark(self) -> str:
        """One line for operators about the groups that are not followed; empty if there are none."""
        if not self._left_out:
            return ""
        least = "at least " if len(self._left_out) >= NAMES_KEPT else ""
        groups = "1 group is" if len(self._left_out) == 1 else f"{least}{len(self._left_out)} groups are"
        return (
            f"{groups} left out, because names of more than {LONGEST_NAME} characters could take too long with "
            f'groups.match and groups.exclude; the first one: "{self._first_left_out}..."'
        )

    def passes(self, group: str) -> bool:
        """Return whether the configuration selects this group."""
        if len(group) > LONGEST_NAME:
            # Long names are not cached, because they could take much memory.
            return self._selects(group) if self._is_fast else self._leave_out(group)
        known = self._known.get(group)
        if known is None:
            if len(self._known) >= NAMES_KEPT:
                self._known.clear()
            known = self._known[group] = self._selects(group)
        return known

    def _selects(self, group: str) -> bool:
        selected = any(each.fullmatch(group) for each in self._match)
        return selected and not any(each.fullmatch(group) for each in self._exclude)

    def _leave_out(self, group: str) -> bool:
        self._first_left_out = self._first_left_out or printable(group, SHOWN)
        if len(self._left_out) < NAMES_KEPT:
            self._left_out.add(hash(group))
        return False


class Course(msgspec.Struct):
    """A summary of a group's commits in one partition on the source."""

    newest: OffsetValue | None
    """The newest commit, or None if the committed offset was deleted."""
    peak: int
    """The highest offset that has been committed since the group's position on the target last matched its position on
    the source."""


class GroupBook:
    """Keeps the newest commit of each group and partition on the source. Also keeps the highest offset that has been
    committed since the position on the target last matched the one on the source."""

    def __init__(self, passes: Callable[[str], bool]) -> None:
        self._passes = passes
        self._groups: dict[str, dict[TopicAndPartition, Course]] = {}

    def __len__(self) -> int:
        return len(self._groups)

    def take(self, key: OffsetKey, value: OffsetValue | None) -> bool:
        """Add the next commit on the source. `value` is None if the committed offset was deleted.

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
        """Replace all commits of a group with its current offsets. Return whether any of them has changed."""
        changed = False
        known = self._groups.get(group, {})
        for place in known.keys() - offsets.keys():
            if known[place].newest is not None:
                changed = self.take(OffsetKey(group, *place), None)
        for place, value in offsets.items():
            course = known.get(place)
            # The commit time is not compared, because a polled group's offsets do not include it.
            if course is None or course.newest is None or not _same(course.newest, value):
                changed = self.take(OffsetKey(group, *place), value) or changed
        return changed

    def settled(self, group: str, place: TopicAndPartition, offset: int) -> None:
        """Record that the group's position on the target matches this offset on the source. Higher offsets from earlier
        commits are then ignored."""
        course = self._groups.get(group, {}).get(place)
        if course is not None:
            course.peak = offset

    def forget_expired(self) -> list[str]:
        """Forget groups that no longer have any committed offsets on the source, and return their names. The
        `EXPIRED_KEPT` newest of these groups are not forgotten."""
        expired = [
            group
            for group, courses in self._groups.items()
            if all(course.newest is None for course in courses.values())
        ]
        gone = expired[: max(0, len(expired) - EXPIRED_KEPT)]
        for group in gone:
            del self._groups[group]
        return gone

    def forget_expired_places(self) -> list[tuple[str, TopicAndPartition]]:
        """Forget partitions in which a group no longer has a committed offset on the source, and return them with the
        group's name. A group that reads many short-lived topics has many of them. The `EXPIRED_KEPT` newest ones of
        each group are not forgotten."""
        gone: list[tuple[str, TopicAndPartition]] = []
        for group, courses in self._groups.items():
            if len(courses) > EXPIRED_KEPT:
                expired = [place for place, course in courses.items() if course.newest is None]
                for place in expired[: max(0, len(expired) - EXPIRED_KEPT)]:
                    del courses[place]
                    gone.append((group, place))
        return gone

    def groups(self) -> Iterable[str]:
        """Return the names of all known groups."""
        return self._groups.keys()

    def courses(self, group: str) -> Iterator[tuple[TopicAndPartition, Course]]:
        """Yield each partition of one group, with a summary of the group's commits in the partition."""
        yield from self._groups.get(group, {}).items()


def _same(known: OffsetValue, new: OffsetValue) -> bool:
    return (known.offset, known.metadata) == (new.offset, new.metadata)


class Mapped(NamedTuple):
    """The translation of a group's position on one cluster into the position at which the group resumes on the other
    cluster."""

    offset: int | None
    """The next offset to read on the other cluster, or None if it is unknown."""
    missing: int = 0
    """Number of offsets that are below the group's position and that the offset map does not contain yet. If the number
    is not 0, `offset` is the last position that can be translated."""
    why: str = ""
    provisional: bool = False
    """Whether the true position may be slightly higher. In that case, the position must be translated again later."""


class PositionPair(NamedTuple):
    """A group's position on the source and the matching position on the target, in one partition."""

    source: int
    target: int
    seen: bool = False
    """Whether this process has observed that both positions match, or has committed one of them to match the other.
    False if the pair comes from a checkpoint that an earlier process wrote."""
    back: bool = False
    """Whether mirrord set the source to the target's position. Otherwise, the target was set to the source's
    position."""


class Past(NamedTuple):
    """What `plan` needs to know about a group's history in one partition, in addition to the group's current
    positions."""

    peak: Callable[[], Mapped]
    """Returns the target position that matches `Course.peak`, the group's highest earlier position on the source."""
    pair: PositionPair | None = None
    back: Callable[[], Mapped] | None = None
    """Returns the source position that matches the group's position on the target."""
    two_way: bool = False
    """Whether positions are also synced from the target to the source."""
    is_own: bool = True
    """Whether the position on the source is known to come from a client. If not, mirrord may have committed it."""


class Write(NamedTuple):
    """The decision to commit a position."""

    commit: CommittedOffset
    why: str
    waits: bool = False
    """Whether the offset map cannot translate the group's exact position on the other cluster yet. The committed
    position is then the last earlier position that the offset map can translate."""


class Hold(NamedTuple):
    """The decision to commit nothing. Contains the state that is reported for the position, and the reason."""

    state: GroupState
    why: str = ""


def plan(course: Course, mapped: Mapped, present: CommittedOffset | None, past: Past, mode: GroupsMode) -> Write | Hold:
    """Decide what to commit on the target for one group in one partition.

    `course` is the summary of the group's commits on the source. `mapped` is the group's newest position on the source,
    translated to the target. `present` is the group's current position on the target.
    """
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
    """Return the decision to keep the target's position, or None if this function finds no reason to keep it.

    There are four reasons. The group has moved only on the target. The source was set to the target's position. Only
    records of other writers lie between the two positions. It is not known on which side the group moved last.
    """
    pair, by_consumer = past.pair, present.leader_epoch != NO_EPOCH
    if past.two_way and pair is not None and newest.offset == pair.source:
        if present.offset < pair.target or offset < present.offset:
            return Hold("ahead", "it has moved on the target, and the source will follow")
        if present.offset == pair.target and pair.back:
            return Hold("in step")
    if offset < present.offset:
        return None
    if (past.two_way or by_consumer) and past.back is not None:
        here = past.back()
        # The only records between the two positions are from other writers, and the group on the target has not read
        # them yet.
        if here.offset == newest.offset and not here.missing:
            return Hold("in step")
    is_seen = pair is not None and pair.seen
    if past.two_way and by_consumer and not past.is_own and not is_seen:
        return Hold(
            "unsure",
            "no client is known to have continued reading on the source: the position may be the target's old one",
        )
    return None


def _not_back(course: Course, present: CommittedOffset, past: Past, mode: GroupsMode) -> str:
    """Return why the target is not moved back to the source's position. Return an empty string if it is moved back."""
    if mode == "forward-only":
        return 'the target is ahead, and groups.mode is "forward-only"'
    newest, pair = course.newest, past.pair
    went_back = newest is not None and pair is not None and newest.offset < pair.source
    if past.two_way and pair is not None and pair.seen and present.offset == pair.target and went_back:
        return ""  # source and target have matched, and only the source has moved since then
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
        return "the source went back, but a consumer has committed on the target"
    if is_remembered:
        return ""
    reached = past.peak().offset
    if reached is None or reached < present.offset:
        return "the source went back, but the target was ahead of it before"
    return ""


def waiting_line(mapped: Mapped) -> str:
    """Return why a group's position on the target does not yet match its position on the source."""
    return mapped.why or f"{mapped.missing} source offsets before it have not been copied yet"
