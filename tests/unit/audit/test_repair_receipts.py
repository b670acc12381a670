"""A repair and what it writes to the ledger, with a ledger in memory and a topic that is a list."""

from collections.abc import Iterable

import pytest

from mirrord.audit import repair as repair_module
from mirrord.audit import repair_receipts
from mirrord.audit.repair import Damage, Repair
from mirrord.config.loader import load_text
from mirrord.config.schema import FlowConfig
from mirrord.ledger.codec import encode_entry
from mirrord.ledger.facts.audit import RangeRepaired
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneTaken, LeaseReleased, LeaseTaken, SourceRun
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.model.runs import Run
from mirrord.replication.dead_letters.records import LetterPlace
from mirrord.replication.dead_letters.topic import Lying
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
TOPIC = "mirrord.eu-us.repair"
ADA, BOB = Origin("ada@host", "", 1_700_000_000_000), Origin("bob@host", "", 1_700_000_001_000)
CONF = """
[clusters.eu]
bootstrap = "127.0.0.1:1"
[clusters.us]
bootstrap = "127.0.0.1:1"
[[flows]]
name = "eu-us"
from = "eu"
to = "us"
topics = [".*"]
"""


class Topic:
    """The repair topic, and the source that feeds it: record by record, each once."""

    topic = TOPIC

    def __init__(self) -> None:
        self.lies: list[int] = []
        """Source offsets, by their offset in the topic."""
        self.reads = 0
        self.compacted: set[int] = set()
        self.full_at = 1_000

    async def lying(self, place: LetterPlace, end: int, *, compared: bool = False) -> Lying:
        self.reads += 1
        there = [at for at, offset in enumerate(self.lies) if place.offset <= offset < end]
        lacking = set(range(place.offset, end)) - self.compacted - set(self.lies) if compared and there else set[int]()
        return Lying(len(there), min(there, default=-1), lacks=min(lacking, default=-1))

    async def park(self, place: LetterPlace, end: int, origin: Origin) -> Lying:
        assert origin.reason in {"missing", "altered"}
        self.reads += 1
        offsets = [offset for offset in range(place.offset, end) if offset not in self.compacted]
        for offset in offsets:
            if offset >= self.full_at:
                raise EnvironmentFault("the target is full")
            if offset not in self.lies:
                self.lies.append(offset)
        return Lying(len(offsets), min(map(self.lies.index, offsets), default=-1), tuple(offsets))


class World:
    """A flow that has run, and is not running."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        run = (opened(0), LaneTaken(LANE, 1, "r"), SourceRun(LANE, 1, (Run(0, 0),)))
        entries = (entry(FLOW, epoch=0), entry(LeaseTaken(1, HOLDER, 6000)), entry(*run), entry(LeaseReleased(1)))
        self.memory = MemoryLedger(entries=[encode_entry(each) for each in entries])
        self.topic = Topic()
        self.source_start = 0
        monkeypatch.setattr(repair_module, "ClusterAccess", lambda *_: self)
        monkeypatch.setattr(repair_receipts, "ClusterAccess", lambda *_: self)
        monkeypatch.setattr(repair_module, "log_offsets", self.starts)
        monkeypatch.setattr(repair_module, "DeadLetters", lambda *_: self.topic)

    def ledger(self, flow: FlowConfig) -> LedgerStore:
        assert flow.name == "eu-us"
        return LedgerStore(MemoryLog(self.memory), SystemClock(), deadline_seconds=0.3)

    async def starts(self, _: object, places: Iterable[TopicPartition], which: str) -> dict[TopicPartition, int]:
        assert which == "start"
        return dict.fromkeys(places, self.source_start)

    async def repair(self, origin: Origin | None, *found: Damage) -> tuple[list[Repair], list[str]]:
        return await repair_module.repair(load_text(CONF, "conf.toml"), found, origin)

    async def recorded(self) -> tuple[RangeRepaired, ...]:
        return (await self.lane()).repaired

    async def lane(self) -> LaneState:
        store = self.ledger(load_text(CONF, "conf.toml").flows[0])
        await store.open(read_only=True)
        await store.close()
        return store.state.lanes[LANE]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def damage(start: int, end: int) -> Damage:
    return Damage("eu-us", LANE, start, end, "missing")


def repair_of(start: int, end: int, at: int, origin: Origin = ADA) -> RangeRepaired:
    return RangeRepaired(LANE, start, end, "missing", TOPIC, at, origin)


async def test_the_repair_is_recorded_once_and_the_ledger_answers_without_the_topic(world: World) -> None:
    (shown,), _ = await world.repair(None, damage(3, 6))
    assert (shown.records, shown.at, shown.by, await world.recorded()) == (0, None, "", ())
    assert (await world.repair(ADA, damage(3, 6)))[1] == []
    assert await world.recorded() == (repair_of(3, 6, 0),)
    entries = world.memory.end
    await world.repair(BOB, damage(3, 6))
    assert (world.memory.end, world.topic.lies) == (entries, [3, 4, 5])
    world.topic.reads = 0
    (shown,), _ = await world.repair(None, damage(4, 6))
    assert (shown.records, shown.at, shown.by, shown.at_ms) == (2, 0, ADA.by, ADA.at_ms)
    assert world.topic.reads == 0
    # A range that is only partly repaired is looked up.
    (shown,), _ = await world.repair(None, damage(4, 8))
    assert (shown.records, shown.lacks, shown.by, world.topic.reads) == (2, 6, "", 1)


async def test_after_a_crash_past_the_records_the_repair_is_recorded(world: World) -> None:
    world.topic.lies = [9, 3, 4, 5]
    (shown,), _ = await world.repair(None, damage(3, 6))
    assert (shown.records, shown.at, shown.by) == (3, 1, "")
    await world.repair(BOB, damage(3, 6))
    assert await world.recorded() == (repair_of(3, 6, 1, BOB),)
    assert world.topic.lies == [9, 3, 4, 5]


async def test_what_is_stored_is_recorded_even_if_the_next_range_is_refused(world: World) -> None:
    world.topic.full_at = 20
    with pytest.raises(EnvironmentFault, match="full"):
        await world.repair(ADA, damage(3, 6), damage(19, 22))
    assert await world.recorded() == (repair_of(3, 6, 0),)
    world.topic.full_at = 1_000
    await world.repair(BOB, damage(3, 6), damage(19, 22))
    assert await world.recorded() == (repair_of(3, 6, 0), repair_of(19, 22, 3, BOB))
    assert world.topic.lies == [3, 4, 5, 19, 20, 21]


async def test_only_offsets_with_a_record_are_recorded(world: World) -> None:
    world.topic.compacted = {4}
    (made,), _ = await world.repair(ADA, damage(3, 6))
    assert made.records == 2
    (shown,), _ = await world.repair(None, damage(3, 6))
    assert (shown.records, shown.lacks) == (2, None)
    assert await world.recorded() == (repair_of(3, 4, 0), repair_of(5, 6, 0))
    world.topic.compacted = {7}
    (made,), _ = await world.repair(ADA, damage(7, 8))
    assert (made.records, len(await world.recorded())) == (0, 2)


async def test_what_the_source_has_deleted_since_is_no_problem_once_it_is_recorded(world: World) -> None:
    await world.repair(ADA, damage(3, 6))
    world.source_start = 50
    for origin in (None, BOB):
        (known, gone), _ = await world.repair(origin, damage(3, 6), damage(9, 10))
        assert (known.records, known.trouble) == (3, "")
        assert (gone.records, gone.trouble) == (0, "the source now begins at 50")


async def test_a_recreated_topic_is_published_again(world: World) -> None:
    world.topic.lies = [90, 91]
    await world.repair(ADA, damage(3, 6))
    world.topic.lies = []
    await world.repair(BOB, damage(3, 6))
    assert await world.recorded() == (repair_of(3, 6, 0, BOB),)


async def test_a_ledger_that_takes_nothing_is_a_line(world: World) -> None:
    async def refuse(*_: object) -> None:
        raise EnvironmentFault("it may not be written")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LedgerStore, "append", refuse)
        (made,), (line,) = await world.repair(ADA, damage(3, 6))
    assert made.records == 3
    assert line.startswith("the repair of eu-us is not recorded in its ledger")
    assert line.endswith("it may not be written")
    await world.repair(BOB, damage(3, 6))
    assert await world.recorded() == (repair_of(3, 6, 0, BOB),)
