"""Syncs the positions of consumer groups from the target back to the source. A group that consumes on the target can
then resume on the source.

`mirrord.groups.sync_rounds` calls this module for a flow with `groups.reverse`. The command `mirrord groups --reverse`
uses this module alone. Before each decision, both clusters are asked for the committed offsets. No position is set
beyond the end of the source's log. A position before the log start offset is replaced by the log start offset.
"""

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

import msgspec
import structlog

from mirrord.groups.group_position_translation import NOT_BACK, Atlas, SourcePosition
from mirrord.groups.refusal_reasons import CommitRefusal, kept, left_alone, refusal
from mirrord.groups.rules.commit_plan import NO_EPOCH, Hold, Mapped, Write
from mirrord.groups.rules.reverse_plan import Asked, PositionPairs, plan_back, unexplained_line
from mirrord.kafka.protocol.groups import CommittedOffset, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.state import LaneState
from mirrord.model.errors import MirrordError
from mirrord.model.group_status import GroupState, GroupStatus
from mirrord.model.names import LaneId

log = structlog.get_logger()


class GroupRequests(Protocol):
    """The group requests that can be sent to one cluster. `mirrord.kafka.client.group_admin.GroupAdmin` implements
    them."""

    async def listed(self) -> Mapping[str, ListedGroup]:
        """Return all groups that the cluster lists, by name."""
        ...

    async def offsets(self, wanted: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return the committed offsets of these groups."""
        ...

    async def commit(
        self, commits: Mapping[str, Mapping[TopicAndPartition, CommittedOffset]]
    ) -> Mapping[str, Mapping[TopicAndPartition, int]]:
        """Commit these offsets, by group and partition. Return the error code of each partition; 0 means success."""
        ...


class Bounds(Protocol):
    """Returns the log start offset and high watermark of source partitions. `mirrord.groups.lane_bounds.LaneEnds`
    implements it."""

    async def bounds(self, lanes: Collection[LaneState]) -> Mapping[LaneId, tuple[int, int]]:
        """Return the log start offset and the high watermark of each lane's source partition. Lanes are omitted if no
        answer for their partition arrives in time."""
        ...


class BackWrite(NamedTuple):
    """A planned commit of a group's position on the source."""

    group: str
    place: TopicAndPartition
    lane: LaneState
    newest: CommittedOffset
    """The group's committed offset on the target."""
    write: Write
    mapped: Mapped


Settled = Callable[[str, TopicAndPartition, int, int | None], None]
"""A callback that is called after a commit on the source. Its arguments are the group, the source partition, the offset
committed on the source, and the offset committed on the target. The last argument is None if the two committed offsets
do not match yet."""


class GroupBack:
    """Syncs the positions of one flow's groups from the target back to the source."""

    def __init__(self, source: GroupRequests, bounds: Bounds, pairs: PositionPairs, asked: Asked) -> None:
        self.statuses: dict[str, dict[TopicAndPartition, GroupStatus]] = {}
        """Statuses by group and source partition, as of the last time that the group was examined."""
        self.waiting: set[str] = set()
        """Groups with a position on the target that cannot be translated yet, or that can be translated only up to an
        earlier position."""
        self.without_log_ends: set[str] = set()
        """Groups with a planned commit that was dropped because the source did not report the end of the partition."""
        self._source = source
        self._bounds = bounds
        self._pairs = pairs
        self._asked = asked
        self._members: dict[str, ListedGroup] = {}
        self._writes: list[BackWrite] = []
        self._due: set[str] = set()
        """Groups that must be examined again, because the source did not answer a commit, or may accept it later."""

    @property
    def has_writes(self) -> bool:
        """Whether any commits on the source are planned."""
        return bool(self._writes)

    def sorted_statuses(self) -> list[GroupStatus]:
        """Return all statuses, sorted by group, topic and partition."""
        return [each for group in sorted(self.statuses) for _, each in sorted(self.statuses[group].items())]

    def take_due(self) -> set[str]:
        """Return the groups that must be examined again, because the source did not answer a commit, or may accept it
        later. The next call does not return these groups."""
        due, self._due = self._due, set()
        return due

    async def read_members(self) -> set[str]:
        """Ask the source which groups must not be changed: groups with members, and share groups. Return the groups
        that were added to or removed from this set since the previous call.

        Raises EnvironmentFault or WireError.
        """
        before = self._members
        listed = await self._source.listed()
        self._members = kept(listed)
        return {group for group in before.keys() ^ self._members.keys() if group in self.statuses}

    async def offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return the offsets that these groups have committed on the source. Raises EnvironmentFault."""
        return await self._source.offsets(groups)

    def begin(self) -> None:
        """Discard the planned commits. Must be called before groups are examined again."""
        self._writes = []

    def decide(
        self, group: str, there: GroupOffsets, here: GroupOffsets, atlas: Atlas, moves: Collection[TopicAndPartition]
    ) -> None:
        """Plan the commits of one group on the source, and update its statuses.

        `there` holds the offsets committed on the target, and `here` holds the offsets committed on the source. `moves`
        are the partitions in which the target is about to be set to the source's position. In these partitions, nothing
        is synced back.
        """
        self.waiting.discard(group)
        self.without_log_ends.discard(group)
        statuses = self.statuses[group] = {}
        for copy, newest in there.offsets.items():
            place = atlas.copies.get(copy)
            lane = atlas.lane(place) if place is not None else None
            if place is None or lane is None:
                continue
            present = here.offsets.get(place)
            mapped = atlas.back(place, newest.offset)
            if here.error:
                step = Hold("refused", f"the source's position is not known: {refusal(here.error, 'source').name}")
            elif place in moves:
                step = Hold("ahead", "the source has moved, and the target will follow")
            else:
                step = self._step(group, place, newest, mapped, present, atlas)
            if isinstance(step, Write):
                self._writes.append(BackWrite(group, place, lane, newest, step, mapped))
                statuses[place] = _status(group, place, lane, newest, mapped, present, Hold("behind", step.why))
                continue
            statuses[place] = _status(group, place, lane, newest, mapped, present, step)
            if step.state in {"in step", "waits"} and present is not None:
                # In the state "waits", the source was set to the last position that the offset map can translate.
                self._pairs.met(group, place, present.offset, newest.offset, back=step.state == "waits")
            if step.state == "unsure" and present is not None:
                self._pairs.unsure(group, place, present.offset, newest.offset)
            if mapped.missing or step.why == NOT_BACK:
                self.waiting.add(group)

    def _step(
        self,
        group: str,
        place: TopicAndPartition,
        newest: CommittedOffset,
        mapped: Mapped,
        present: CommittedOffset | None,
        atlas: Atlas,
    ) -> Write | Hold:
        def forth() -> Mapped:
            return atlas.mapped(place, SourcePosition(present.offset)) if present is not None else Mapped(None)

        is_own = newest.leader_epoch != NO_EPOCH or self._pairs.has_moved(group, place, target=newest.offset)
        step = plan_back(newest, mapped, present, forth, self._pairs.of(group, place), self._asked, is_own=is_own)
        if isinstance(step, Write) and group in self._members:
            return Hold(*left_alone(self._members[group], "source"))
        return step

    async def weigh(self) -> None:
        """Check each planned commit against the log start offset and the high watermark of its source partition. An
        offset below the log start offset is raised to the log start offset. A commit beyond the high watermark is
        dropped. A commit is also dropped if the high watermark is unknown."""
        if not self._writes:
            return
        lanes = {each.lane.key.id: each.lane for each in self._writes}
        bounds = await self._bounds.bounds(lanes.values())
        kept: list[BackWrite] = []
        for each in self._writes:
            start, end = bounds.get(each.lane.key.id, (0, -1))
            wanted = each.write.commit.offset
            if wanted <= end:
                commit = msgspec.structs.replace(each.write.commit, offset=max(wanted, start))
                kept.append(each._replace(write=each.write._replace(commit=commit)))
                continue
            why = "the source does not report where its partition ends"
            if end >= 0:
                why = f"the source ends at {end}, before this position"
            else:
                self.without_log_ends.add(each.group)
            self._replace(each, state="unknown", why=why)
        self._writes = kept

    async def commit(self, settled: Settled) -> None:
        """Commit the planned offsets on the source. `settled` is called for each commit that the source accepts. Raises
        EnvironmentFault."""
        writes, self._writes = self._writes, []
        if not writes:
            return
        commits: dict[str, dict[TopicAndPartition, CommittedOffset]] = {}
        for each in writes:
            commits.setdefault(each.group, {})[each.place] = each.write.commit
        try:
            answers = await self._source.commit(commits)
        except MirrordError:
            self._due |= commits.keys()
            raise
        for each in writes:
            self._answered(each, answers[each.group][each.place], settled)

    def _answered(self, each: BackWrite, error: int, settled: Settled) -> None:
        refused = refusal(error, "source")
        offset = each.write.commit.offset
        if refused.is_later:
            self._due.add(each.group)
        elif error:
            self._refused(each, refused)
        else:
            self._pairs.met(each.group, each.place, offset, each.newest.offset, back=True)
            settled(each.group, each.place, offset, None if each.write.waits else each.newest.offset)
            if each.write.why == "the target went back":
                log.info("group_went_back_at_source", group=each.group, topic=each.place[0], partition=each.place[1])
            if each.write.waits:
                self.waiting.add(each.group)
                self._replace(each, state="waits", why=unexplained_line(each.mapped), source_offset=offset)
            else:
                self._replace(each, state="in step", why=each.mapped.why, source_offset=offset)

    def followed(self, group: str, place: TopicAndPartition, source: int, target: int) -> None:
        """Update the status of a group's position after mirrord has committed the offset `target` on the target.
        `source` is the matching offset on the source."""
        known = self.statuses.get(group, {}).get(place)
        if known is not None and known.state == "ahead":
            self.statuses[group][place] = msgspec.structs.replace(
                known, state="in step", why="", source_offset=source, target_offset=target, translated=source
            )

    def _refused(self, each: BackWrite, refused: CommitRefusal) -> None:
        if refused.has_members:
            self._members.setdefault(each.group, ListedGroup(each.group, "", "active"))
        else:
            log.warning("group_not_committed", group=each.group, topic=each.place[0], reason=refused.name, at="source")
        self._replace(each, state=refused.state, why=refused.why)

    def _replace(self, each: BackWrite, *, state: GroupState, why: str, source_offset: int | None = None) -> None:
        statuses = self.statuses[each.group]
        known = statuses[each.place]
        new_offset = known.source_offset if source_offset is None else source_offset
        statuses[each.place] = msgspec.structs.replace(known, state=state, why=why, source_offset=new_offset)


def _status(
    group: str,
    place: TopicAndPartition,
    lane: LaneState,
    newest: CommittedOffset,
    mapped: Mapped,
    present: CommittedOffset | None,
    hold: Hold,
) -> GroupStatus:
    return GroupStatus(
        group=group,
        topic=place[0],
        partition=place[1],
        target_topic=lane.target_topic,
        source_offset=present.offset if present is not None else None,
        target_offset=newest.offset,
        translated=mapped.offset,
        state=hold.state,
        why=hold.why or mapped.why,
    )
