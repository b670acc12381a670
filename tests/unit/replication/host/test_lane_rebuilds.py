"""Large batches of a lane are rebuilt while other work continues, and its records stay in order."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, HEAD_OFFSET, HEADER, TRANSACTIONAL, Header
from mirrord.kafka.records.bounded_decompression import ZSTD
from mirrord.kafka.records.record_decoding import decode
from mirrord.kafka.records.steps import AT_ONCE, Steps
from mirrord.replication.host.batch_rebuild import rebuilding
from mirrord.replication.host.lane_rebuilds import TURN_S, LaneRebuilds
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.second_path import PolicyRefused, Postponed, RebuildRequest, RebuiltBatch
from mirrord.replication.lane.signals import (
    Chunk,
    Drain,
    Effect,
    Fenced,
    FetchFrom,
    Halted,
    Input,
    RebuildLater,
    StopFetch,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from tests.unit.replication.host.test_batch_rebuild import batch
from tests.unit.replication.lane.test_answers import copying

MANY = 4 * AT_ONCE
MIB = 1 << 20
APPEND_TIME = 8


def records(first: int, count: int, value: bytes = b"v") -> list[DecodedRecord]:
    return [DecodedRecord(first + at, 1_000, None, b"%s %d" % (value, first + at), ()) for at in range(count)]


def at(first: int, count: int, codec: int = 0, value: bytes = b"v", **header: int) -> bytearray:
    """A batch with records of its own offsets."""
    made = batch([each._replace(offset=each.offset - first + 1_000) for each in records(first, count, value)], codec)
    return batch_at(made, first, **{"attributes": codec, **header})


def batch_at(made: bytearray, first: int, **header: int) -> bytearray:
    fields = Header(*HEADER.unpack_from(made))._replace(base_offset=first, leader_epoch=0, **header)
    HEADER.pack_into(made, 0, *fields)
    HEADER.pack_into(made, 0, *fields._replace(crc=checksum(made[HEAD_OFFSET:])))
    return made


@dataclass
class Shell:
    """What hosts the lane."""

    rebuilds: LaneRebuilds
    lane: Lane = field(default_factory=lambda: copying()[0])
    effects: list[Effect] = field(default_factory=list[Effect])
    tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def __post_init__(self) -> None:
        self.lane.rebuild = self.rebuilds

    def tell(self, signal: Input) -> None:
        for effect in step(self.lane, 0.0, signal):
            self.effects.append(effect)
            if isinstance(effect, RebuildLater):
                self.tasks.append(asyncio.create_task(self.rebuilds.later(effect, self)))
            elif isinstance(effect, StopFetch):
                self.rebuilds.stop()
            elif isinstance(effect, FetchFrom):
                self.rebuilds.new_chunk()

    async def end(self) -> None:
        for task in self.tasks:  # tasks may add others
            await asyncio.gather(task, return_exceptions=True)

    @property
    def copied(self) -> list[int]:
        """The source offsets of the records that are ready, in the order of their ordinals."""
        ready = [*self.lane.in_flight, *self.lane.ready]
        assert [each.first for each in ready] == [
            *(sum(each.count for each in ready[:index]) for index in range(len(ready)))
        ]
        return [
            int((record.value or b"").rsplit(b" ", 1)[1])
            for each in ready
            for record in decode(each.buffer, each.start, each.end)
        ]

    def named(self, kind: type[Effect]) -> int:
        return sum(isinstance(each, kind) for each in self.effects)


def shell(limit: int | None = None, now: Callable[[], float] = lambda: 0.0) -> Shell:
    return Shell(LaneRebuilds(lambda request: rebuilding(request, limit), "eu", now))


def chunk(lane: Lane, batches: Sequence[bytearray], aborted: Sequence[tuple[int, int]] = ()) -> Chunk:
    data = bytearray().join(batches)
    return Chunk(lane.asked, 0, 1 << 40, 1 << 40, 0, aborted, data, 0, len(data))


async def test_records_stay_in_order() -> None:
    own = shell()
    own.tell(chunk(own.lane, [at(0, 2), large_at(2), at(MANY + 2, 3), large_at(MANY + 5), at(2 * MANY + 5, 1)]))
    assert own.copied == [0, 1]
    assert own.named(FetchFrom) == 0
    assert own.lane.position == 2
    await own.end()
    assert own.copied == [*range(2 * MANY + 6)]
    assert own.lane.raw_batches == 3
    assert own.named(RebuildLater) == 2
    assert own.named(FetchFrom) == 1


def large_at(first: int, value: bytes = b"v", count: int = MANY) -> bytearray:
    """A batch that is rebuilt later: it is large, and its timestamps are those of the broker."""
    return at(first, count, ZSTD, value, attributes=ZSTD | APPEND_TIME)


async def test_a_gap_before_a_large_batch_is_skipped_once() -> None:
    own = shell()
    own.tell(chunk(own.lane, [at(0, 2), large_at(7), at(MANY + 7, 1)]))
    await own.end()
    assert own.copied == [0, 1, *range(7, MANY + 8)]
    assert own.lane.skipped == []


async def test_aborted_records_are_skipped_before_and_after_a_large_batch() -> None:
    """Producer 5 aborts a transaction that begins before the large batch, and another one after it."""
    mark: dict[str, Any] = {"producer_id": 5, "producer_epoch": 0}
    marker = bytearray(at(MANY + 4, 1, attributes=TRANSACTIONAL | CONTROL, **mark))
    own = shell()
    parts = [
        at(0, 2, attributes=TRANSACTIONAL, **mark),
        large_at(2),
        at(MANY + 2, 2, attributes=TRANSACTIONAL, **mark),
        marker,
        at(MANY + 5, 1, attributes=TRANSACTIONAL, **mark),
        large_at(MANY + 6),
        at(2 * MANY + 6, 2, attributes=TRANSACTIONAL, **mark),
    ]
    own.tell(chunk(own.lane, parts, [(5, 0), (5, 2 * MANY + 6)]))
    await own.end()
    assert own.copied == [*range(2, MANY + 2), MANY + 5, *range(MANY + 6, 2 * MANY + 6)]


async def test_the_lane_halts_before_a_bomb() -> None:
    own = shell(limit=2 * MIB)
    own.lane.has_policies = True
    bomb = batch_at(batch([DecodedRecord(1_000, 1_000, None, bytes(3 * MIB), ())], ZSTD), 2)
    own.tell(chunk(own.lane, [at(0, 2), bomb]))
    await own.end()
    assert own.copied == [0, 1]
    assert own.lane.blocked is not None
    assert "larger than 2 MiB" in own.lane.blocked[0]
    assert (own.lane.blocked[1:], own.lane.position) == ((2, 3), 2)
    assert own.named(Halted) == 0  # the batch before the bomb has not been answered


@pytest.mark.parametrize("signal", [Drain(), Fenced()], ids=["drained", "withdrawn"])
async def test_nothing_is_written_after_a_lane_has_left(signal: Input) -> None:
    own = shell()
    own.tell(chunk(own.lane, [large_at(0), at(MANY, 2)]))
    await asyncio.sleep(0)  # the work has begun
    own.tell(signal)
    before = list(own.effects)
    await own.end()
    assert own.effects == before
    assert own.copied == []
    assert own.lane.phase in {Phase.DRAINED, Phase.GONE, Phase.DRAINING}


async def test_the_rest_of_a_chunk_that_arrives_late_is_dropped() -> None:
    own = shell()
    own.tell(chunk(own.lane, [large_at(0)]))
    (later,) = [each for each in own.effects if isinstance(each, RebuildLater)]
    own.tell(Fenced())
    own.tell(Chunk(later.question, 0, 1 << 40, 1 << 40, 0, (), later.chunk.buffer, 0, later.chunk.end))
    assert own.copied == []
    await own.end()


async def test_a_batch_in_several_pieces() -> None:
    """The target accepts no batches of the full size, so that one batch becomes several."""
    own = shell()
    own.lane.refusal.largest = 20_000
    own.tell(chunk(own.lane, [at(0, 1), at(1, MANY, 0, b"x" * 30), at(MANY + 1, 1)]))
    await own.end()
    assert own.copied == [*range(MANY + 2)]
    assert max(each.end - each.start for each in (*own.lane.in_flight, *own.lane.ready)) <= 20_000


async def test_many_small_batches_do_not_hold_up_the_loop() -> None:
    """A clock on which each batch takes a whole turn."""
    times = iter(range(1_000))
    own = shell(now=lambda: next(times) * 2 * TURN_S)
    own.tell(chunk(own.lane, [large_at(each, count=1) for each in range(20)]))
    await own.end()
    assert own.copied == [*range(20)]
    assert own.named(RebuildLater) == 19


async def test_other_tasks_run_while_a_bomb_is_rebuilt() -> None:
    own = shell(limit=64 * MIB)
    own.lane.has_policies = True
    own.tell(chunk(own.lane, [large_at(0), large_at(MANY)]))
    running, count = asyncio.create_task(own.end()), 0
    while not running.done():
        await asyncio.sleep(0)
        count += 1
    assert count > 2 * MANY // AT_ONCE
    assert own.copied == [*range(2 * MANY)]


async def test_an_unexpected_error_ends_the_task() -> None:
    """The host then halts the lane."""

    def fails(_: object) -> Any:
        yield None
        raise KeyError("unexpected")

    own = Shell(LaneRebuilds(fails, "eu"))
    own.lane.has_policies = True
    own.tell(chunk(own.lane, [at(0, 1)]))
    with pytest.raises(KeyError, match="unexpected"):
        await own.tasks[0]


def test_a_turn_does_not_end_within_a_batch() -> None:
    """STANDSTILL. Each piece of a batch takes longer than a turn. After each pause, the lane began again with the
    first piece, and never got the second one."""
    times = iter(range(1_000))

    def steps(request: RebuildRequest) -> Steps[RebuiltBatch | None]:
        return RebuiltBatch(bytearray(), ((request.from_offset, 1),), 0)
        yield None

    rebuilds = LaneRebuilds(steps, "eu", now=lambda: next(times) * 2 * TURN_S)
    first = RebuildRequest(bytearray(9), 0, 4, 10, 1, 0, 0)
    for offset in (10, 11, 12):
        assert rebuilds(replace(first, from_offset=offset)) is not None
    with pytest.raises(Postponed):
        rebuilds(replace(first, start=4, end=9, from_offset=13))


async def test_an_error_does_not_keep_the_records_in_memory() -> None:
    held: list[weakref.ref[set[int]]] = []

    def steps(_: RebuildRequest) -> Steps[RebuiltBatch | None]:
        records = {1, 2}
        held.append(weakref.ref(records))
        yield None
        raise PolicyRefused("no", 10)

    rebuilds = LaneRebuilds(steps, "eu")
    request = RebuildRequest(bytearray(9), 0, 4, 10, 1, 0, 0)
    with pytest.raises(Postponed) as postponed:
        rebuilds(request)
    await rebuilds._finish(postponed.value.work)  # type: ignore[arg-type]
    del postponed
    gc.collect()
    assert [each() for each in held] == [None]
    with pytest.raises(PolicyRefused):
        rebuilds(request)
