"""When `__consumer_offsets` is read to its end: also if a compacted partition ends without records."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from mirrord.groups import offsets_topic_reader
from mirrord.groups.empty_tail import empty_until
from mirrord.groups.offsets_topic_reader import GroupLog, _Partition
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.protocol.primitives import uuid_text
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.records.steps import AT_ONCE
from mirrord.model.names import TopicId
from mirrord.replication.lane.signals import Chunk
from tests.fixtures.fake_pipe import FakeView, as_any, fetched, until
from tests.fixtures.fetching import RECORDS, TOPIC
from tests.unit.replication.host.test_batch_rebuild import BASE, batch

PARTITION = PartitionId("__consumer_offsets", TopicId(uuid_text(TOPIC)), 0)


async def _nothing() -> None:
    pass


class Reading:
    """The log of one partition that begins at 10 and ends at 13."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(offsets_topic_reader, "TAIL_S", 0.0)
        monkeypatch.setattr(offsets_topic_reader, "empty_until_of", self._empty_until)
        self.says = -1
        """What the leader says about the tail."""
        self.asked: list[int] = []
        self.while_asking: Callable[[], Awaitable[None]] = _nothing
        source = SimpleNamespace(
            want=lambda _tap, _wish: None, stop=lambda _tap: None, view=SimpleNamespace(alias="eu")
        )
        asks = SimpleNamespace(bounds=lambda _partition, _epoch, answer: answer(0, 13, 10))
        self.log = GroupLog(as_any(source), as_any(asks), lambda _: True, lambda *_: None, lambda _: None)
        self.partition = _Partition(self.log, PARTITION)
        self.log._followed = [self.partition]
        self.partition.start(as_any(source), as_any(asks))

    async def _empty_until(self, _view: Any, _partition: PartitionId, position: int) -> int:
        self.asked.append(position)
        await self.while_asking()
        return self.says

    async def came(self, first: int = 0, last: int = -1) -> None:
        """A chunk: a batch of these offsets without a relevant record, or nothing."""
        data = bytearray()
        if last >= first:
            data += first.to_bytes(8) + (49).to_bytes(4) + bytes(4) + b"\x02" + bytes(4) + b"\x00\x20"
            data += (last - first).to_bytes(4) + bytes(34)
        self.partition._deliver(Chunk(0, 0, 13, 13, 10, (), data, 0, len(data)))
        assert self.partition._reading is not None
        await self.partition._reading

    async def look(self) -> None:
        await self.log.check_tails(as_any(None))


async def test_an_end_without_records_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    await reading.came(10, 11)
    await reading.look()
    assert (reading.asked, reading.log.ready) == ([12], False)
    reading.says = 13
    await reading.look()
    assert reading.log.ready
    await reading.look()
    assert reading.asked == [12, 12]


async def test_an_answer_without_records_alone_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other partitions of the request may have used up its bytes."""
    reading = Reading(monkeypatch)
    for _ in range(10):
        await reading.came()
    assert not reading.log.ready


async def test_what_comes_while_it_is_asked_for_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.says = 13
    reading.while_asking = lambda: reading.came(10, 10)
    await reading.look()
    assert not reading.log.ready


async def test_a_partition_that_brings_something_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    monkeypatch.setattr(offsets_topic_reader, "TAIL_S", 60.0)
    await reading.look()
    assert reading.asked == []


NOTHING = (0, 0, 13, b"")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (fetched(TOPIC, NOTHING, session=0), 13),
        (fetched(TOPIC, (0, 0, 13, RECORDS), session=0), -1),
        (fetched(TOPIC, (0, 6, -1, b""), session=0), -1),
        (fetched(TOPIC, NOTHING, session=0, throttle_ms=100), -1),
        (fetched(TOPIC, NOTHING, session=0, preferred_replica=2), -1),
        (fetched(TOPIC, session=0), -1),
    ],
    ids=["nothing", "records", "another leads", "throttled", "another replica", "no partition"],
)
async def test_the_partition_is_alone_in_the_request(answer: bytes, expected: int) -> None:
    view = FakeView()
    asking = asyncio.create_task(empty_until(as_any(view), PARTITION, 12))
    await until(lambda: bool(view.links) and view.pipe("tail").in_flight == 1)
    (_, body, _) = view.pipe("tail").requests[0]
    # Bytes of the request and of the partition, without a session.
    assert (int.from_bytes(body[8:12]), int.from_bytes(body[13:21], signed=True)) == (1, 0xFFFFFFFF)
    view.pipe("tail").answer(answer)
    assert await asking == expected


def large_chunk() -> Chunk:
    records = [DecodedRecord(BASE + at, 1, None, b"value", ()) for at in range(5 * AT_ONCE)]
    data = batch(records, attributes=0, producer_id=-1)
    return Chunk(0, 0, 1 << 40, 1 << 40, 10, (), data, 0, len(data))


async def test_other_tasks_run_while_a_large_batch_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    reading.partition._deliver(large_chunk())
    task, turns = reading.partition._reading, 0
    assert task is not None
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 5
    assert reading.partition._position == BASE + 5 * AT_ONCE


async def test_a_partition_that_is_no_longer_read_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch)
    wanted: list[object] = []
    source = SimpleNamespace(want=lambda *wish: wanted.append(wish), stop=lambda _tap: None)
    reading.partition._source = as_any(source)
    reading.partition._deliver(large_chunk())
    await asyncio.sleep(0)
    reading.partition.stop(as_any(source))
    task = reading.partition._reading
    assert task is not None
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert wanted == []
