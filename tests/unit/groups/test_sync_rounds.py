"""Rounds of groups without Kafka: what is requested, committed and reported."""

from collections.abc import Collection, Mapping

import msgspec
import pytest

from mirrord.config.flow_features import GroupsConfig, GroupsMode
from mirrord.groups.group_position_translation import Atlas, ahead_of
from mirrord.groups.rules.commit_plan import GroupBook, GroupFilter
from mirrord.groups.sync_rounds import GroupRounds
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import CommittedOffset, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import GroupStatus, TranslatedPosition
from mirrord.model.names import LaneKey, TopicId

ID, OTHER_ID = TopicId("A" * 22), TopicId("B" * 21 + "A")
KEY = LaneKey(ID, 0, OTHER_ID)


def atlas(copied: int, end: int | None = None, in_flight: int = 0) -> Atlas:
    """Source offset o of orders-0 is at o + 5; this many are copied, and further ones are sent but not acknowledged."""
    lane = LaneState(KEY, "orders", "eu.orders", 1, 0, "", "sequence", grant=1)
    lane.source_runs.add(0, 0)
    lane.target_runs.add(0, 5)
    position = copied + in_flight
    mark = Progress(
        KEY.id, 1, 1, copied, copied + 5, 0, position, position, 0, 0, True, "copying", settled=in_flight == 0
    )
    return Atlas({("orders", 0): lane}, {KEY.id: mark}, {} if end is None else {KEY.id: end})


class FakeTarget:
    """A target that accepts everything it is not told to refuse."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[TopicAndPartition, CommittedOffset]] = {}
        self.members: dict[str, str] = {}
        self.errors: dict[str, int] = {}
        self.commits: list[list[str]] = []

    async def listed(self) -> Mapping[str, ListedGroup]:
        return {name: ListedGroup(name, "consumer", state) for name, state in self.members.items()}

    async def offsets(self, wanted: Collection[str]) -> Mapping[str, GroupOffsets]:
        return {group: GroupOffsets(0, dict(self.groups.get(group, {}))) for group in wanted}

    async def commit(
        self, commits: Mapping[str, Mapping[TopicAndPartition, CommittedOffset]]
    ) -> Mapping[str, Mapping[TopicAndPartition, int]]:
        self.commits.append(sorted(commits))
        answers: dict[str, dict[TopicAndPartition, int]] = {}
        for group, offsets in commits.items():
            active = self.members.get(group, "Empty") != "Empty"
            error = int(ErrorCode.UNKNOWN_MEMBER_ID) if active else self.errors.get(group, 0)
            if not error:
                self.groups.setdefault(group, {}).update(offsets)
            answers[group] = dict.fromkeys(offsets, error)
        return answers


class World:
    def __init__(self, copied: int = 100, mode: GroupsMode = "follow") -> None:
        self.copied = copied
        self.in_flight = 0
        self.end: int | None = None
        """The target's end, if it was requested."""
        self.target = FakeTarget()
        self.book = GroupBook(lambda _: True)
        self.may_write = True
        self.rounds = GroupRounds(self.book, self.target, mode, self._chart, lambda: self.may_write)

    async def _chart(self, furthest: Mapping[TopicAndPartition, int]) -> Atlas:
        self.furthest = furthest
        return atlas(self.copied, self.end, self.in_flight)

    def commit(self, group: str, offset: int | None, topic: str = "orders", topic_id: str | None = None) -> None:
        value = None if offset is None else OffsetValue(offset, 2, "note", 1_000, topic_id)
        self.book.take(OffsetKey(group, topic, 0), value)
        self.rounds.want([group])

    def status(self, group: str, topic: str = "orders") -> GroupStatus:
        return self.rounds.statuses[group][topic, 0]


def test_the_end_of_the_target_is_wanted_for_positions_beyond_unacknowledged_records() -> None:
    lane = LaneState(KEY, "orders", "eu.orders", 1, 0, "", "sequence", grant=1)
    lane.source_runs.add(0, 0)
    mark = Progress(KEY.id, 1, 1, 40, 45, 0, 50, 50, 0, 0, True, "copying")
    place = ("orders", 0)
    for position, settled, expected in ((45, False, [lane]), (45, True, []), (55, True, [lane]), (40, False, [])):
        progress = {KEY.id: msgspec.structs.replace(mark, settled=settled)}
        assert ahead_of({place: lane}, progress, {place: position}) == expected


async def test_records_that_are_copied_during_a_round_are_not_missed() -> None:
    """The round translates with an older state, and no further record about the lane's progress may follow."""
    world = World(copied=40)
    world.commit("readers", 50)
    chart = world._chart  # pyright: ignore[reportPrivateUsage]

    async def older(furthest: Mapping[TopicAndPartition, int]) -> Atlas:
        found = await chart(furthest)
        if world.copied == 40:
            world.copied = 50
            world.rounds.want_waiting()
        return found

    world.rounds._chart = older  # pyright: ignore[reportPrivateUsage]
    await world.rounds.round()
    assert world.status("readers").state == "waits"
    assert world.rounds.due
    await world.rounds.round()
    assert world.target.groups["readers"]["eu.orders", 0].offset == 55
    assert not world.rounds.due


async def test_a_position_beyond_records_in_flight_waits_for_them() -> None:
    """The lane has read these records, and its target log does not hold them yet."""
    world = World(copied=40)
    world.in_flight = 10
    world.commit("readers", 50)
    await world.rounds.round()
    assert world.target.groups["readers"]["eu.orders", 0].offset == 45
    assert world.status("readers").state == "waits"
    world.copied, world.in_flight = 50, 0
    world.rounds.want_waiting()
    await world.rounds.round()
    assert world.target.groups["readers"]["eu.orders", 0].offset == 55
    assert world.status("readers").state == "in step"


async def test_many_groups_share_a_round() -> None:
    world = World()
    for group in ("a", "b", "c"):
        world.commit(group, 10)
    await world.rounds.round()
    assert world.target.commits == [["a", "b", "c"]]
    assert world.target.groups["a"] == {("eu.orders", 0): CommittedOffset(15, -1, "note")}
    status = world.status("a")
    assert (status.state, status.source_offset, status.target_offset, status.translated) == ("in step", 10, 15, 15)
    translated = world.rounds.take_translated()
    assert sorted(each.group for each in translated) == ["a", "b", "c"]
    assert min(translated, key=lambda each: each.group) == TranslatedPosition(
        "a", "orders", "eu.orders", 0, 10, 15, "note"
    )
    assert world.rounds.take_translated() == []
    assert not world.rounds.due


async def test_it_waits_for_data_and_continues_when_that_comes() -> None:
    world = World(copied=20)
    world.commit("a", 50)
    await world.rounds.round()
    assert world.target.groups["a"]["eu.orders", 0].offset == 25
    assert (world.status("a").state, world.status("a").why) == (
        "waits",
        "30 source offsets before it have not been copied yet",
    )
    assert not world.rounds.due
    world.copied = 60
    world.rounds.want_waiting()
    await world.rounds.round()
    assert (world.status("a").state, world.status("a").target_offset) == ("in step", 55)
    world.rounds.want_waiting()
    assert not world.rounds.due


@pytest.mark.parametrize("position", [40, 50])
async def test_the_end_of_the_target_shows_more_than_a_resume_position(position: int) -> None:
    world = World(copied=20)
    world.end = 55
    world.commit("a", position)
    await world.rounds.round()
    assert (world.status("a").state, world.status("a").target_offset) == ("in step", position + 5)
    assert world.furthest == {("orders", 0): position}
    # Until a mark confirms it: other clients may have written to the target as well.
    world.rounds.want_waiting()
    assert world.rounds.due
    world.copied, world.end = 60, None
    await world.rounds.round()
    assert world.status("a").state == "in step"
    assert not world.rounds.due
    world.rounds.want_waiting()
    assert not world.rounds.due


async def test_members_at_the_target_are_reported_and_waited_for() -> None:
    world = World()
    world.target.members = {"a": "Stable"}
    world.commit("a", 10)
    await world.rounds.round()
    assert (world.status("a").state, "a" in world.target.groups) == ("active", False)
    await world.rounds.read_members()
    assert not world.rounds.due, "the same was known before"
    world.target.members = {"a": "Empty"}
    await world.rounds.read_members()
    assert world.rounds.due
    await world.rounds.round()
    assert world.status("a").state == "in step"


async def test_members_that_are_known_are_not_even_tried() -> None:
    world = World()
    world.target.members = {"a": "PreparingRebalance"}
    await world.rounds.read_members()
    world.commit("a", 10)
    await world.rounds.round()
    assert world.target.commits == []
    assert world.status("a").why == "the group is PreparingRebalance on the target, and is left unchanged"


async def test_what_is_refused_is_reported_and_what_is_only_late_is_tried_again() -> None:
    world = World()
    world.target.errors = {"a": int(ErrorCode.GROUP_AUTHORIZATION_FAILED), "b": int(ErrorCode.NOT_COORDINATOR)}
    world.commit("a", 10)
    world.commit("b", 10)
    await world.rounds.round()
    assert world.status("a").state == "refused"
    assert world.status("a").why.endswith("GROUP_AUTHORIZATION_FAILED; READ on the group or its topic is missing")
    assert world.rounds.due
    world.target.errors = {}
    await world.rounds.round()
    assert world.status("b").state == "in step"


async def test_topics_that_are_not_copied_or_were_recreated() -> None:
    world = World()
    world.commit("a", 10, topic="other")
    world.commit("b", 10, topic_id=OTHER_ID)
    world.commit("c", 10, topic_id=ID)
    await world.rounds.round()
    assert world.status("a", "other").state == "not copied"
    assert world.status("b").state == "unknown"
    assert "a different topic orders" in world.status("b").why
    assert world.status("c").state == "in step"


async def test_nothing_is_written_without_the_lease() -> None:
    world = World()
    world.may_write = False
    world.commit("a", 10)
    with pytest.raises(EnvironmentFault, match="the lease currently does not allow"):
        await world.rounds.round()
    assert world.target.groups == {}
    assert world.rounds.due


async def test_off_translates_and_commits_nothing() -> None:
    world = World(mode="off")
    world.commit("a", 10)
    await world.rounds.round()
    assert world.target.commits == []
    assert (world.status("a").state, world.status("a").translated) == ("behind", 15)
    assert len(world.rounds.take_translated()) == 1


async def test_a_rewind_is_followed_once() -> None:
    world = World()
    for offset in (80, 30):
        world.commit("a", offset)
        await world.rounds.round()
    assert world.status("a").target_offset == 35
    # From here on another client commits: an old one on the target, which states no epoch.
    world.target.groups["a"]["eu.orders", 0] = CommittedOffset(60, -1, "")
    world.rounds.want_all()
    await world.rounds.round()
    assert (world.status("a").state, world.status("a").target_offset) == ("ahead", 60)


async def test_the_source_forgets() -> None:
    world = World()
    world.commit("a", 80)
    await world.rounds.round()
    world.commit("a", None)
    await world.rounds.round()
    assert (world.status("a").state, world.status("a").target_offset) == ("expired", 85)


def test_groups_are_filtered_by_whole_names() -> None:
    passes = GroupFilter(GroupsConfig(match=("billing.*", "audit"))).passes
    assert [passes(name) for name in ("billing-1", "audit", "audit-2", "my-billing")] == [True, True, False, False]
    by_default = GroupFilter(GroupsConfig()).passes
    assert [by_default(name) for name in ("anything", "connect-sink", "__x", "console-consumer-1")] == [
        True,
        False,
        False,
        False,
    ]
