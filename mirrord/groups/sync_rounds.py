"""Syncs the changed groups of one flow: translates their source positions, compares the results with the target's
committed offsets, and commits the new offsets on the target.

The target's committed offsets are read right before each commit, and the broker refuses a commit for a group with
members. Therefore, mirrord overwrites another client's commit only if this commit arrives in the few milliseconds
between the read and mirrord's own commit. With `groups.reverse`, the source's committed offsets are read in the same
way, and `mirrord.groups.reverse_sync` syncs back the positions that have moved only on the target.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.flow_features import GroupsMode
from mirrord.groups.group_position_translation import NOT_COPIED, NOT_YET, Atlas, SourcePosition
from mirrord.groups.refusal_reasons import kept, left_alone, refusal
from mirrord.groups.reverse_sync import GroupBack, GroupRequests
from mirrord.groups.rules.commit_plan import NO_EPOCH, Course, GroupBook, Hold, Mapped, Past, Write, plan, waiting_line
from mirrord.groups.rules.reverse_plan import PositionPairs
from mirrord.kafka.client.group_admin import LATER
from mirrord.kafka.protocol.consumer_offsets import OffsetValue
from mirrord.kafka.protocol.groups import CommittedOffset, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import GroupStatus, TranslatedPosition

log = structlog.get_logger()


class _Planned(NamedTuple):
    """A planned commit of a group's position on the target."""

    place: TopicAndPartition
    """The source partition."""
    value: OffsetValue
    write: Write
    mapped: Mapped


class GroupRounds:
    """Syncs the groups of one flow. The caller keeps `book` up to date, and passes the names of changed groups to
    `want`."""

    def __init__(
        self,
        book: GroupBook,
        target: GroupRequests,
        mode: GroupsMode,
        chart: Callable[[Mapping[TopicAndPartition, int]], Awaitable[Atlas]],
        may_write: Callable[[], bool],
        pairs: PositionPairs | None = None,
        back: GroupBack | None = None,
    ) -> None:
        """`chart` returns the offset maps as of the time of the call. Its argument contains, for each source partition,
        the highest position that will be translated.

        If `back` is given, positions are also synced from the target to the source. `back` must have been created with
        the same `PositionPairs` object that is passed here as `pairs`.
        """
        self.statuses: dict[str, dict[TopicAndPartition, GroupStatus]] = {}
        """Statuses by group and source partition, as of the last time that the group was examined."""
        self._translated: dict[tuple[str, TopicAndPartition], TranslatedPosition] = {}
        """The newest translation for each group and partition, until `take_translated` returns it."""
        self._book = book
        self._target = target
        self._mode: GroupsMode = mode
        self._chart = chart
        self._may_write = may_write
        self._pairs = pairs or PositionPairs()
        self._back = back
        self._due: set[str] = set()
        self._waiting: set[str] = set()
        self.unanswered: set[str] = set()
        """Groups that a broker could not answer for when they were last examined. Their statuses are out of date."""
        self._has_progressed = False
        """Whether records have been copied since the current round began. The round may have seen the state before."""
        self._members: dict[str, ListedGroup] = {}
        """The groups on the target for which nothing may be committed: groups with members, and share groups."""

    @property
    def due(self) -> bool:
        """Whether any group must be examined."""
        return bool(self._due)

    def sorted_statuses(self) -> list[GroupStatus]:
        """Return all statuses, sorted by group, topic and partition."""
        return [each for group in sorted(self.statuses) for _, each in sorted(self.statuses[group].items())]

    def states(self) -> dict[str, int]:
        """Return the number of positions in each state. The result is empty if `groups.mode` is "off", because mirrord
        then commits nothing."""
        if self._mode == "off":
            return {}
        return Counter(each.state for places in self.statuses.values() for each in places.values())

    def want(self, groups: Iterable[str]) -> None:
        """Register these groups to be examined by the next call to `round`."""
        self._due.update(groups)

    def want_all(self) -> None:
        """Register all groups to be examined by the next call to `round`."""
        self._due.update(self._book.groups())
        if self._back is not None:
            self._due.update(self._back.statuses)

    def forget_expired(self) -> None:
        """Forget groups that no longer have any committed offsets on the source, and partitions in which a group no
        longer has one. The newest `EXPIRED_KEPT` of them are kept (see `mirrord.groups.rules.commit_plan`)."""
        groups, places = frozenset(self._book.forget_expired()), self._book.forget_expired_places()
        for group in groups:
            self.statuses.pop(group, None)
            self._due.discard(group)
            self._waiting.discard(group)
            self.unanswered.discard(group)
        for group, place in places:
            self.statuses.get(group, {}).pop(place, None)
        self._pairs.forget_all(groups, places)

    def want_waiting(self) -> None:
        """Register the groups that are waiting for records to be copied, to be examined by the next call to `round`.
        Must be called after records have been copied."""
        self._has_progressed = True
        self._due |= self._waiting
        if self._back is not None:
            self._due |= self._back.waiting

    async def read_members(self) -> None:
        """Ask the target which groups must not be changed: groups with members, and share groups. Raises
        EnvironmentFault or WireError."""
        listed = await self._target.listed()
        before = self._members
        self._members = kept(listed)
        self._due |= {group for group in before.keys() ^ self._members.keys() if group in self.statuses}
        if self._back is not None:
            self._due |= self._back.without_log_ends | await self._back.read_members()

    async def round(self) -> None:
        """Examine all groups that are due, and commit their translated positions.

        Raises EnvironmentFault or WireError. After any error, the same groups are still due.
        """
        groups, self._due = self._due, set()
        self._has_progressed = False
        try:
            atlas, planned = await self._plan(groups)
            if (planned or (self._back is not None and self._back.has_writes)) and not self._may_write():
                raise EnvironmentFault("the lease currently does not allow commits")
            if planned:
                await self._commit(planned, atlas)
            if self._back is not None:
                await self._back.commit(self._settled_back)
                self._due |= self._back.take_due()
        except BaseException:
            self._due |= groups
            raise
        if self._has_progressed:
            self.want_waiting()

    def _settled_back(self, group: str, place: TopicAndPartition, source: int, target: int | None) -> None:
        """Record that mirrord has committed the offset `source` on the source. `target` is the matching position on the
        target, or None if the two positions do not match yet."""
        self._book.settled(group, place, source)
        known = self.statuses.get(group, {}).get(place)
        if target is not None and known is not None and known.state == "ahead":
            self.statuses[group][place] = msgspec.structs.replace(
                known, state="in step", why="", source_offset=source, target_offset=target, translated=target
            )

    async def survey(self) -> None:
        """Examine all groups that are due, without committing anything. Raises EnvironmentFault or WireError."""
        groups, self._due = self._due, set()
        await self._plan(groups)

    async def _plan(self, groups: Collection[str]) -> tuple[Atlas, dict[str, list[_Planned]]]:
        furthest: dict[TopicAndPartition, int] = {}
        for group in groups:
            for place, course in self._book.courses(group):
                if course.newest is not None:
                    furthest[place] = max(furthest.get(place, 0), course.newest.offset)
        atlas = await self._chart(furthest)
        if self._back is None:
            there = await self._target.offsets(groups)
            planned = {group: self._decide(group, there[group], atlas) for group in groups}
        else:
            self._back.begin()
            there, here = await asyncio.gather(self._target.offsets(groups), self._back.offsets(groups))
            planned = {group: self._both(self._back, group, there[group], here[group], atlas) for group in groups}
            await self._back.weigh()
        return atlas, {group: writes for group, writes in planned.items() if writes}

    def _both(
        self, back: GroupBack, group: str, there: GroupOffsets, here: GroupOffsets, atlas: Atlas
    ) -> list[_Planned]:
        if here.error in LATER or there.error in LATER:
            self._put_off(group)
            return []
        writes = self._decide(group, there, atlas, None if here.error else here.offsets)
        if not there.error:
            back.decide(group, there, here, atlas, {each.place for each in writes})
        return writes

    def _decide(
        self,
        group: str,
        there: GroupOffsets,
        atlas: Atlas,
        asked: Mapping[TopicAndPartition, CommittedOffset] | None = None,
    ) -> list[_Planned]:
        """Return the commits to make on the target for one group, and update the group's statuses.

        `there` holds the offsets committed on the target. `asked` holds the offsets committed on the source, if they
        were requested from a broker. Otherwise, it is None, and only the commits in `GroupBook` count.
        """
        self._waiting.discard(group)
        self.unanswered.discard(group)
        if there.error in LATER:
            self._put_off(group)
            return []
        writes: list[_Planned] = []
        statuses = self.statuses[group] = {}
        for place, known_course in self._book.courses(group):
            course = known_course if asked is None else _as_asked(known_course, asked.get(place))
            lane = atlas.lane(place)
            if lane is None:
                if course.newest is not None:
                    statuses[place] = _status(group, place, "", course, None, None, Hold("not copied", NOT_COPIED))
                continue
            mapped = _mapped(atlas, place, course)
            self._record_translated(group, place, lane.target_topic, course, mapped)
            present = there.offsets.get((lane.target_topic, place[1]))
            if there.error:
                hold = Hold("refused", f"the target's position is not known: {refusal(there.error, 'target').name}")
                statuses[place] = _status(group, place, lane.target_topic, course, mapped, present, hold)
                continue
            step = self._step(group, place, course, mapped, present, atlas)
            if isinstance(step, Write) and course.newest is not None:
                writes.append(_Planned(place, course.newest, step, mapped))
                hold = Hold("behind", step.why)
            else:
                assert isinstance(step, Hold)  # noqa: S101 -- without a newest commit, nothing is written
                hold = step
            statuses[place] = _status(group, place, lane.target_topic, course, mapped, present, hold)
            if hold.state == "unsure" and course.newest is not None and present is not None:
                self._pairs.unsure(group, place, course.newest.offset, present.offset)
            if hold.state in {"in step", "waits"} and course.newest is not None and present is not None:
                self._met(group, place, course.newest.offset, present.offset, settled=hold.state == "in step")
            if mapped.missing or mapped.provisional or hold.why in NOT_YET:
                self._waiting.add(group)
        return writes

    def _put_off(self, group: str) -> None:
        self._due.add(group)
        self.unanswered.add(group)

    def _step(
        self,
        group: str,
        place: TopicAndPartition,
        course: Course,
        mapped: Mapped,
        present: CommittedOffset | None,
        atlas: Atlas,
    ) -> Write | Hold:
        past = Past(
            lambda: atlas.mapped(place, SourcePosition(course.peak)),
            self._pairs.of(group, place),
            lambda: atlas.back(place, present.offset) if present is not None else Mapped(None),
            two_way=self._back is not None,
            is_own=self._is_own(group, place, course.newest),
        )
        step = plan(course, mapped, present, past, self._mode)
        if isinstance(step, Write) and self._mode == "off":
            return Hold("behind", 'groups.mode is "off": nothing is committed')
        if isinstance(step, Write) and group in self._members:
            return Hold(*left_alone(self._members[group], "target"))
        return step

    def _is_own(self, group: str, place: TopicAndPartition, newest: OffsetValue | None) -> bool:
        if newest is None:
            return False
        return newest.leader_epoch != NO_EPOCH or self._pairs.has_moved(group, place, source=newest.offset)

    def _met(self, group: str, place: TopicAndPartition, source: int, target: int, *, settled: bool) -> None:
        if settled:
            self._book.settled(group, place, source)
        if self._back is not None:
            self._pairs.met(group, place, source, target)
        elif settled:
            self._pairs.forget(group, place)

    def _record_translated(
        self, group: str, place: TopicAndPartition, target: str, course: Course, mapped: Mapped
    ) -> None:
        if course.newest is None or mapped.offset is None:
            return
        topic, partition = place
        positions = (course.newest.offset, mapped.offset)
        self._translated[group, place] = TranslatedPosition(
            group, topic, target, partition, *positions, course.newest.metadata
        )

    def take_translated(self) -> list[TranslatedPosition]:
        """Return the translated positions that have changed since the last call."""
        taken, self._translated = self._translated, {}
        return list(taken.values())

    async def _commit(self, planned: Mapping[str, list[_Planned]], atlas: Atlas) -> None:
        commits: dict[str, dict[TopicAndPartition, CommittedOffset]] = {}
        for group, writes in planned.items():
            for each in writes:
                lane = atlas.lane(each.place)
                if lane is not None:
                    commits.setdefault(group, {})[lane.target_topic, each.place[1]] = each.write.commit
        answers = await self._target.commit(commits)
        for group, writes in planned.items():
            for each in writes:
                status = self.statuses[group][each.place]
                error = answers[group][status.target_topic, each.place[1]]
                self.statuses[group][each.place] = self._answered(group, each, status, error)

    def _answered(self, group: str, planned: _Planned, status: GroupStatus, error: int) -> GroupStatus:
        replace = msgspec.structs.replace
        if error:
            refused = refusal(error, "target")
            if refused.is_later:
                self._put_off(group)
                return status
            if refused.has_members:
                self._members.setdefault(group, ListedGroup(group, "", "active"))
            else:
                log.warning("group_not_committed", group=group, topic=status.target_topic, reason=refused.name)
            return replace(status, state=refused.state, why=refused.why)
        offset = planned.write.commit.offset
        if planned.write.why == "the source went back":
            log.info("group_went_back", group=group, topic=status.target_topic, partition=planned.place[1], to=offset)
        if planned.write.waits or planned.mapped.provisional:
            self._waiting.add(group)
        # If the group has committed again on the source in the meantime, the group is already due again. The next call
        # to `round` then compares the newer commit with this one.
        is_newest = any(
            place == planned.place and course.newest is not None and course.newest.offset == planned.value.offset
            for place, course in self._book.courses(group)
        )
        settled = is_newest and not planned.write.waits
        self._met(group, planned.place, planned.value.offset, offset, settled=settled)
        if planned.write.waits:
            return replace(status, state="waits", target_offset=offset, why=waiting_line(planned.mapped))
        if self._back is not None:
            self._back.followed(group, planned.place, planned.value.offset, offset)
        return replace(status, state="in step", target_offset=offset, why=planned.mapped.why)


def _as_asked(course: Course, commit: CommittedOffset | None) -> Course:
    """Return `course` with `commit` as the newest commit. `commit` is the group's committed offset, as the source has
    just returned it, or None if there is none. `GroupBook`, which returned `course`, may not contain it yet."""
    if commit is None:
        return Course(None, course.peak)
    known = course.newest
    if known is not None and (known.offset, known.metadata) == (commit.offset, commit.metadata):
        return course
    return Course(OffsetValue(commit.offset, commit.leader_epoch, commit.metadata, 0), max(course.peak, commit.offset))


def _mapped(atlas: Atlas, place: TopicAndPartition, course: Course) -> Mapped:
    newest = course.newest
    return Mapped(None) if newest is None else atlas.mapped(place, SourcePosition(newest.offset, newest.topic_id))


def _status(
    group: str,
    place: TopicAndPartition,
    target: str,
    course: Course,
    mapped: Mapped | None,
    present: CommittedOffset | None,
    hold: Hold,
) -> GroupStatus:
    newest = course.newest
    why = hold.why or (mapped.why if mapped is not None else "")
    return GroupStatus(
        group=group,
        topic=place[0],
        partition=place[1],
        target_topic=target,
        source_offset=newest.offset if newest is not None else None,
        committed_ms=newest.commit_ms or None if newest is not None else None,
        target_offset=present.offset if present is not None else None,
        translated=mapped.offset if mapped is not None else None,
        state=hold.state,
        why=why,
    )
