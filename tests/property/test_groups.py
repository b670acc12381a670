"""Whatever source, target topic, target and restarts do: no group is set before its data, reset without the source, or
moved while it has members."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.flow_features import GroupsMode
from mirrord.groups.rules.commit_plan import GroupBook, Hold, Mapped, Past, Write, plan
from mirrord.kafka.protocol.consumer_offsets import OffsetKey, OffsetValue
from mirrord.kafka.protocol.groups import CommittedOffset

KEY = OffsetKey("billing", "orders", 0)
PLACE = (KEY.topic, KEY.partition)


@dataclass
class World:
    """One group in one partition of a source whose offset o is 2 * o on the target."""

    mode: GroupsMode = "follow"
    source: list[int | None] = field(default_factory=list[int | None])
    """All commits of the source; None: it forgot the group."""
    copied: int = 0
    present: CommittedOffset | None = None
    members: bool = False
    book: GroupBook = field(default_factory=lambda: GroupBook(lambda _: True))
    writes: list[tuple[int, int | None]] = field(default_factory=list[tuple[int, int | None]])
    """What was written, and the former value."""

    def commit(self, offset: int | None) -> None:
        self.source.append(offset)
        self.book.take(KEY, None if offset is None else OffsetValue(offset, 3, "", 0))

    def restart(self, cleaned: int) -> None:
        """The log is read again; its cleaner has removed all but the newest of the first records."""
        self.book = GroupBook(lambda _: True)
        for offset in self.source[min(cleaned, max(len(self.source) - 1, 0)) :]:
            self.book.take(KEY, None if offset is None else OffsetValue(offset, 3, "", 0))

    def translate(self, offset: int) -> Mapped:
        return Mapped(2 * min(offset, self.copied), max(0, offset - self.copied))

    def round(self) -> Write | Hold | None:
        for place, course in self.book.courses(KEY.group):
            if self.members:
                return Hold("active")
            newest = course.newest
            mapped = self.translate(newest.offset) if newest else Mapped(None)
            past = Past(lambda course=course: self.translate(course.peak))
            step = plan(course, mapped, self.present, past, self.mode)
            if isinstance(step, Write):
                self.writes.append((step.commit.offset, self.present.offset if self.present else None))
                self.present = step.commit
            if (isinstance(step, Write) and not step.waits) or (isinstance(step, Hold) and step.state == "in step"):
                self.book.settled(KEY.group, place, newest.offset if newest else -1)
            return step
        return None


ACTIONS = st.one_of(
    st.tuples(st.just("commit"), st.integers(0, 30)),
    st.tuples(st.just("expire"), st.just(0)),
    st.tuples(st.just("copy"), st.integers(1, 20)),
    st.tuples(st.just("round"), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 10)),
    st.tuples(st.just("consume"), st.integers(0, 10)),
    st.tuples(st.just("join"), st.just(0)),
    st.tuples(st.just("leave"), st.just(0)),
)


def play(world: World, actions: list[tuple[str, int]]) -> None:
    for name, number in actions:
        match name:
            case "commit":
                world.commit(number)
            case "expire" if world.source:
                world.commit(None)
            case "copy":
                world.copied += number
            case "round":
                before = world.present
                world.round()
                check(world, before)
            case "restart":
                world.restart(number)
            case "consume" if world.members:
                at = min(2 * world.copied, (world.present.offset if world.present else 0) + number)
                world.present = CommittedOffset(max(at, world.present.offset if world.present else 0), 5, "")
            case "join":
                world.members = True
            case "leave":
                world.members = False
            case _:
                pass


def check(world: World, before: CommittedOffset | None) -> None:
    after = world.present
    if after is before:
        return
    assert not world.members, "a group with members was touched"
    assert after is not None, "a position was taken away"
    newest = world.source[-1]
    assert newest is not None, "a forgotten position was written"
    assert after.offset == world.translate(newest).offset, "something else than the source's position"
    assert after.offset <= 2 * world.copied, "in front of its data"
    if before is not None and after.offset < before.offset:
        offsets = [offset for offset in world.source if offset is not None]
        assert any(later < earlier for earlier, later in itertools.pairwise(offsets))
        assert world.mode == "follow"
        assert before.leader_epoch == -1, "what a consumer of the target committed was taken back"
        assert before.offset <= 2 * max(offsets), "the target had been where the source never was"


@given(st.sampled_from(["follow", "forward-only"]), st.lists(ACTIONS, max_size=40))
def test_no_position_is_wrong(mode: GroupsMode, actions: list[tuple[str, int]]) -> None:
    play(World(mode), actions)


@given(st.lists(st.one_of(ACTIONS.filter(lambda each: each[0] not in {"join", "expire"})), max_size=40), st.data())
def test_in_the_end_the_target_is_where_the_source_is(actions: list[tuple[str, int]], data: st.DataObject) -> None:
    """As long as no client consumes on the target, and each rewind is seen before the log's cleaner removes it."""
    world = World()
    play(world, [each if each[0] != "restart" else ("restart", 0) for each in actions])
    world.commit(data.draw(st.integers(0, 30)))
    world.copied = max(world.copied, 30)
    world.round()
    newest = world.source[-1]
    assert newest is not None
    assert world.present == CommittedOffset(2 * newest, -1, "")
    assert world.round() == Hold("in step")


@given(st.lists(st.integers(0, 30), min_size=1, max_size=20))
def test_forward_only_never_goes_back(offsets: list[int]) -> None:
    world = World("forward-only", copied=30)
    for offset in offsets:
        world.commit(offset)
        world.round()
    assert world.present is not None
    assert world.present.offset == 2 * max(offsets)


@given(st.dictionaries(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), st.integers(0, 9)), st.data())
def test_asking_gives_what_the_log_would(offsets: dict[tuple[str, int], int], data: st.DataObject) -> None:
    book = GroupBook(lambda _: True)
    values = {place: OffsetValue(offset, -1, "", 0) for place, offset in offsets.items()}
    assert book.replace("g", values) == bool(values)
    assert not book.replace("g", values)
    kept = {place: value for place, value in values.items() if data.draw(st.booleans())}
    assert book.replace("g", kept) == (kept.keys() != values.keys())
    assert {place: course.newest for place, course in book.courses("g") if course.newest} == kept
