"""Large batches are decoded in steps: other tasks run in between, and one batch at a time is in memory."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records import record_decoding
from mirrord.kafka.records.bounded_decompression import AT_ONCE_BYTES, GZIP, SNAPPY, ZSTD, TooLarge
from mirrord.kafka.records.large_batches import decoded, large_batches, run
from mirrord.kafka.records.record_decoding import decode, reading
from mirrord.kafka.records.steps import AT_ONCE, Begun, Steps, begin, finish
from tests.unit.replication.host.test_batch_rebuild import BASE, batch

SEVERAL = 10
MANY = SEVERAL * AT_ONCE
MIB = 1 << 20


def records(count: int, value: bytes = b"value") -> list[DecodedRecord]:
    return [DecodedRecord(BASE + at, 1_000 + at, b"%d" % at, value, (("h", b"x"),)) for at in range(count)]


async def turns(during: asyncio.Task[object]) -> int:
    """How often other tasks run until a task ends."""
    count = 0
    while not during.done():
        count += 1
        await asyncio.sleep(0)
    return count


@pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, ZSTD])
async def test_other_tasks_run_while_a_large_batch_is_decoded(codec: int) -> None:
    data = batch(records(MANY), codec)
    decoding = asyncio.create_task(decoded(data, 0, len(data)))
    assert await turns(decoding) >= SEVERAL
    assert [each.offset for each in decoding.result()] == [BASE + at for at in range(MANY)]
    assert decoding.result() == decode(data, 0, len(data))


def test_a_small_batch_is_decoded_in_one_step() -> None:
    for codec in (0, GZIP, SNAPPY, ZSTD):
        for each in (records(1), records(AT_ONCE - 1), records(1, bytes(AT_ONCE_BYTES - 100))):
            data = batch(each, codec)
            assert not isinstance(begin(reading(data, 0, len(data))), Begun) or len(data) > AT_ONCE_BYTES


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, ZSTD])
def test_what_decompresses_to_more_is_decompressed_elsewhere(codec: int) -> None:
    data = batch(records(1, bytes(AT_ONCE_BYTES + 1)), codec)
    begun = begin(reading(data, 0, len(data)))
    assert isinstance(begun, Begun)
    assert begun.first is not None


async def test_a_bomb_is_refused_with_its_reason() -> None:
    data = batch(records(1, bytes(3 * MIB)), ZSTD)
    with pytest.raises(TooLarge, match=r"larger than 2 MiB .*, the limit of limits\.rebuild_bytes"):
        await decoded(data, 0, len(data), 2 * MIB)


class Memory:
    """Counts what is in memory at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

    def work(self, name: str, function: Callable[[], object] = object) -> Steps[str]:
        """Work that takes memory from its second step on."""
        yield None
        self.now += 1
        self.most = max(self.most, self.now)
        self.order.append(name)
        try:
            yield function
            yield None
        finally:
            self.now -= 1
        return name


async def test_one_large_batch_at_a_time_is_in_memory() -> None:
    memory = Memory()
    names = ["a", "b", "c", "d"]
    assert await asyncio.gather(*(run(memory.work(name), "eu") for name in names)) == names
    assert (memory.most, memory.now, memory.order) == (1, 0, names)


async def test_clusters_take_turns() -> None:
    memory = Memory()
    wanted = [("bomb 1", "x"), ("bomb 2", "x"), ("bomb 3", "x"), ("healthy", "eu"), ("other", "us")]
    await asyncio.gather(*(run(memory.work(name), cluster) for name, cluster in wanted))
    assert memory.order == ["bomb 1", "bomb 2", "healthy", "other", "bomb 3"]


async def test_the_work_of_a_cancelled_task_ends_before_other_work_begins() -> None:
    memory = Memory()
    running, may_end, ended = threading.Event(), threading.Event(), threading.Event()
    ended_first: list[bool] = []

    def long() -> None:
        running.set()
        may_end.wait()
        ended.set()

    first = asyncio.create_task(run(memory.work("first", long), "eu"))
    waiting = asyncio.create_task(run(memory.work("waiting"), "eu"))
    second = asyncio.create_task(run(memory.work("second", lambda: ended_first.append(ended.is_set())), "eu"))
    await asyncio.to_thread(running.wait)
    first.cancel()
    waiting.cancel()
    await asyncio.gather(first, waiting, return_exceptions=True)
    may_end.set()
    assert await second == "second"
    assert (memory.order, ended_first) == (["first", "second"], [True])
    assert await run(memory.work("later"), "eu") == "later"


async def test_a_task_that_is_cancelled_when_its_turn_comes_passes_it_on() -> None:
    memory = Memory()
    tasks = [asyncio.create_task(run(memory.work(name), "eu")) for name in "abc"]
    tasks[0].add_done_callback(lambda _: tasks[1].cancel())
    assert await tasks[2] == "c"


def raised() -> Steps[str]:
    try:
        yield _fail
    except KeyError as error:
        return f"noticed {error}"
    return "not noticed"


def _fail() -> None:
    raise KeyError("lost")


async def test_an_error_of_a_function_is_raised_where_the_work_is_done() -> None:
    assert finish(raised()) == "noticed 'lost'"
    assert await run(raised(), "eu") == "noticed 'lost'"


async def test_an_error_ends_the_turn() -> None:
    def fails() -> Steps[None]:
        yield None
        raise ValueError("unreadable")

    for _ in range(2):
        with pytest.raises(ValueError, match="unreadable"):
            await run(fails(), "eu")


async def test_an_event_loop_has_one_object() -> None:
    assert large_batches() is large_batches()


@pytest.mark.parametrize("fault", [MemoryError(), OSError(12, "Cannot allocate memory")])
def test_a_lack_of_memory_is_not_the_fault_of_a_batch(monkeypatch: pytest.MonkeyPatch, fault: Exception) -> None:
    """LOSS. It counted as a batch that cannot be read, which `on_reject` may skip."""

    def decompress(*_: object) -> memoryview:
        raise fault

    monkeypatch.setattr(record_decoding, "decompress", decompress)
    data = batch(records(3), ZSTD)
    with pytest.raises(type(fault)):
        decode(data, 0, len(data))
