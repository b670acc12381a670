"""Whatever happens to a group on both sides, with the source synchronized, too: no position is carried back and forth,
set before its data, or moved without cause.

Source offset o is 2 * o on the target; foreign records have the odd offsets.
"""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mirrord.groups.group_position_translation import Atlas
from mirrord.groups.reverse_sync import GroupBack
from mirrord.groups.rules.commit_plan import NO_EPOCH, GroupBook
from mirrord.groups.rules.reverse_plan import Asked, PositionPairs
from mirrord.groups.sync_rounds import GroupRounds
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import CommittedOffset, GroupOffsets, ListedGroup
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import LaneState
from mirrord.model.names import LaneId, LaneKey, TopicId

KEY = LaneKey(TopicId("A" * 22), 0, TopicId("B" * 21 + "A"))
HERE, THERE = ("orders", 0), ("eu.orders", 0)
GROUP = "billing"
END = 40


def lane() -> LaneState:
    made = LaneState(KEY, "orders", "eu.orders", 1, 0, "", "sequence", grant=1)
    made.source_runs.add(0, 0)
    for ordinal in range(END + 1):
        made.target_runs.add(ordinal, 2 * ordinal)
    return made


LANE = lane()


@dataclass
class Side:
    """One cluster's positions of the group."""

    place: TopicAndPartition
    position: CommittedOffset | None = None
    members: bool = False
    log: list[CommittedOffset | None] = field(default_factory=list[CommittedOffset | None])
    writes: list[int] = field(default_factory=list[int])
    """What mirrord has committed."""

    def set(self, position: CommittedOffset | None) -> None:
        self.position = position
        self.log.append(position)

    async def listed(self) -> Mapping[str, ListedGroup]:
        return {GROUP: ListedGroup(GROUP, "consumer", "Stable" if self.members else "Empty")}

    async def offsets(self, wanted: Collection[str]) -> Mapping[str, GroupOffsets]:
        found = {} if self.position is None else {self.place: self.position}
        return {group: GroupOffsets(0, dict(found)) for group in wanted}

    async def commit(
        self, commits: Mapping[str, Mapping[TopicAndPartition, CommittedOffset]]
    ) -> Mapping[str, Mapping[TopicAndPartition, int]]:
        commit = commits[GROUP][self.place]
        if self.members:
            return {GROUP: {self.place: int(ErrorCode.UNKNOWN_MEMBER_ID)}}
        self.writes.append(commit.offset)
        self.set(commit)
        return {GROUP: {self.place: 0}}


class World:
    def __init__(self) -> None:
        self.source, self.target = Side(HERE), Side(THERE)
        self.copied = 0
        self.checkpoint: tuple[int, int] | None = None
        self.restart()

    def restart(self) -> None:
        """A new process: it reads the source's log from its start, and the checkpoints."""
        self.pairs = PositionPairs()
        if self.checkpoint is not None:
            self.pairs.learn(GROUP, HERE, *self.checkpoint)
        self.book = GroupBook(lambda _: True)
        self.read = 0
        self.deliver()
        self.back = back = GroupBack(self.source, self, self.pairs, Asked())
        self.rounds = GroupRounds(self.book, self.target, "follow", self._chart, lambda: True, self.pairs, back)

    def deliver(self, records: int = 1 << 30) -> None:
        """The follower of the source's log continues to read."""
        for position in self.source.log[self.read : self.read + records]:
            value = None
            if position is not None:
                value = OffsetValue(position.offset, position.leader_epoch, position.metadata, 0)
            self.book.take(OffsetKey(GROUP, *HERE), value)
            self.read += 1

    async def bounds(self, lanes: Collection[LaneState]) -> Mapping[LaneId, tuple[int, int]]:
        return {each.key.id: (0, END) for each in lanes}

    async def _chart(self, _: Mapping[TopicAndPartition, int]) -> Atlas:
        at = self.copied
        progress = Progress(KEY.id, 1, 1, at, 2 * at - 1 if at else 0, 0, at, at, 0, 0, True, "copying")
        return Atlas({HERE: LANE}, {KEY.id: progress})

    def round(self) -> tuple[int | None, int | None]:
        """One round; what it has committed at source and target."""
        before = len(self.source.writes), len(self.target.writes)
        self.rounds.want([GROUP])
        asyncio.run(self._round())
        for translated in self.rounds.take_translated():
            self.checkpoint = (translated.upstream, translated.downstream)
        made = [side.writes[at:] for side, at in zip((self.source, self.target), before, strict=True)]
        assert all(len(each) <= 1 for each in made)
        here, there = (each[0] if each else None for each in made)
        assert here is None or here <= self.copied, "in front of what the source is known to hold"
        assert there is None or there <= 2 * self.copied, "in front of its data"
        if made[0] or made[1]:
            reports = (self.rounds.statuses, self.back.statuses)
            states = {report[GROUP][HERE].state for report in reports if HERE in report.get(GROUP, {})}
            assert states != {"in step", "ahead"}, "one report says that the other side has yet to follow"
        return here, there

    async def _round(self) -> None:
        await self.rounds.read_members()
        await self.rounds.round()

    def settle(self) -> None:
        """Rounds until nothing more is done."""
        self.deliver()
        for _ in range(4):
            if self.round() == (None, None):
                return
            self.deliver()
        raise AssertionError("it goes back and forth")

    def offsets(self) -> tuple[int | None, int | None]:
        return tuple(side.position.offset if side.position else None for side in (self.source, self.target))  # type: ignore[return-value]


def consumed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 3, "")


def reset(offset: int) -> CommittedOffset:
    """As kafka-consumer-groups does: it states no epoch."""
    return CommittedOffset(offset, NO_EPOCH, "")


ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["consume here", "reset here"]), st.integers(0, END)),
    st.tuples(st.sampled_from(["consume there", "reset there"]), st.integers(0, 2 * END)),
    st.tuples(st.just("copy"), st.integers(1, 20)),
    st.tuples(st.just("deliver"), st.integers(1, 3)),
    st.tuples(
        st.sampled_from(["round", "restart", "join here", "leave here", "join there", "leave there", "expire here"]),
        st.just(0),
    ),
    st.tuples(st.just("expire there"), st.just(0)),
)


def play(world: World, actions: list[tuple[str, int]]) -> None:
    for name, number in actions:
        side = world.source if name.endswith("here") and not name.endswith("there") else world.target
        match name.split()[0]:
            case "consume":
                limit = END if side is world.source else 2 * world.copied
                side.set(consumed(min(number, limit)))
            case "reset" if not side.members:
                limit = END if side is world.source else 2 * world.copied
                side.set(reset(min(number, limit)))
            case "copy":
                world.copied = min(END, world.copied + number)
            case "deliver":
                world.deliver(number)
            case "round":
                world.round()
            case "restart":
                world.restart()
            case "join":
                side.members = True
            case "leave":
                side.members = False
            case "expire" if not side.members:
                side.set(None)
            case _:
                pass


@given(st.lists(ACTIONS, max_size=30))
def test_it_comes_to_rest(actions: list[tuple[str, int]]) -> None:
    world = World()
    play(world, actions)
    world.settle()
    stands = world.offsets()
    world.restart()
    world.settle()
    assert world.offsets() == stands or None in stands, "a restart moves what was at rest"


def in_step(world: World) -> None:
    """Both sides correspond."""
    here, there = world.offsets()
    assert here is not None
    assert there is not None
    assert there == 2 * here or here == (there + 1) // 2


@given(st.lists(ACTIONS, max_size=20), st.lists(st.tuples(st.booleans(), st.integers(0, END - 1)), max_size=6))
def test_the_side_that_moved_counts(actions: list[tuple[str, int]], moves: list[tuple[bool, int]]) -> None:
    """Once both are in step, a side that moves (on or back, by consumer or admin) is followed, and stays there."""
    world = World()
    play(world, actions)
    world.source.members = world.target.members = False
    world.copied = END
    world.source.set(consumed(END))
    world.target.set(consumed(2 * END))
    world.settle()
    in_step(world)
    for is_here, offset in moves:
        side, other = (world.source, world.target) if is_here else (world.target, world.source)
        wanted = offset if is_here else 2 * offset
        side.set(consumed(wanted) if offset % 2 else reset(wanted))
        written = len(side.writes)
        world.settle()
        assert len(side.writes) == written, "its own move came back"
        assert side.position is not None
        assert side.position.offset == wanted
        assert other.position is not None
        assert other.position.offset == (2 * offset if is_here else offset)


@given(st.integers(0, END), st.integers(0, 2 * END), st.booleans())
def test_a_consumer_at_the_target_reads_on_among_records_of_others(here: int, there: int, restart: bool) -> None:
    world = World()
    world.copied = END
    world.source.set(consumed(here))
    world.settle()
    world.target.set(consumed(there))
    world.settle()
    if restart:
        world.restart()
        world.settle()
    assert world.target.position == consumed(there), "others' records were skipped"
    assert world.source.position is not None
    assert world.source.position.offset == (there + 1) // 2


@given(st.lists(st.tuples(st.booleans(), st.integers(0, END - 1)), min_size=1, max_size=6))
def test_consumers_that_read_on_are_followed_over_restarts(moves: list[tuple[bool, int]]) -> None:
    world = World()
    world.copied = END
    world.source.set(consumed(0))
    world.settle()
    for is_here, step in moves:
        here, _ = world.offsets()
        assert here is not None
        wanted = min(END - 1, here + step)
        side, other = (world.source, world.target) if is_here else (world.target, world.source)
        side.set(consumed(wanted if is_here else 2 * wanted))
        world.restart()
        world.settle()
        assert other.position is not None
        assert other.position.offset == (2 * wanted if is_here else wanted)


@given(st.integers(1, END - 1), st.data())
def test_a_rewind_that_nobody_saw_is_followed_by_the_checkpoint(reached: int, data: st.DataObject) -> None:
    """The source's log was cleaned meanwhile, so that it shows only the newest commit."""
    world = World()
    world.copied = END
    world.source.set(consumed(reached))
    world.settle()
    back = data.draw(st.integers(0, reached - 1))
    world.source.log = []
    world.source.set(consumed(back))
    is_touched = data.draw(st.booleans())
    if is_touched:
        world.target.set(consumed(2 * reached))
    world.restart()
    world.settle()
    assert world.target.position is not None
    assert (world.target.position.offset == 2 * back) == (not is_touched)


def test_what_a_rewind_left_at_the_target_is_not_carried_back() -> None:
    """The daemon died before it wrote a checkpoint, and the group was reset on the source before the next one began."""
    world = World()
    world.copied = END
    world.source.set(consumed(10))
    world.settle()
    checkpoint = world.checkpoint
    world.source.set(consumed(30))
    world.settle()
    world.checkpoint = checkpoint
    world.source.log = []
    world.source.set(consumed(5))
    world.restart()
    world.settle()
    assert world.source.position == consumed(5)
    (status,) = world.back.sorted_statuses()
    assert status.state == "unsure"


def test_what_was_unsure_is_known_when_it_moves_again() -> None:
    """Clients that state no leader epoch, and a restart without checkpoints."""
    for is_here in (True, False):
        world = World()
        world.copied = END
        world.source.set(reset(10) if is_here else consumed(10))
        world.target.set(consumed(20) if is_here else reset(20))
        world.settle()
        side, other = (world.source, world.target) if is_here else (world.target, world.source)
        scale = 1 if is_here else 2
        side.set(reset(15 * scale))
        world.checkpoint = None
        world.restart()
        world.settle()
        assert other.position == consumed(20 if is_here else 10)
        side.set(reset(16 * scale))
        world.settle()
        assert other.position is not None
        assert other.position.offset == (32 if is_here else 16)
