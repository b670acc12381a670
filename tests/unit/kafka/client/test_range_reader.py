"""A read ends where the log has no more batches, and in no other case in which a broker returns nothing."""

import asyncio
import struct
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

import pytest

from mirrord.kafka.client import range_reader
from mirrord.kafka.client.cluster_metadata import Leader, PartitionId
from mirrord.kafka.client.range_reader import LogDiverged, ReadFailed, Stretches
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.list_offsets import EARLIEST_LOCAL
from mirrord.kafka.protocol.primitives import uuid_bytes
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.model.names import TopicId
from tests.fixtures.fake_pipe import FakePipe, FakeView, as_any
from tests.unit.replication.host.test_batch_rebuild import batch

PARTITION = PartitionId("orders", TopicId("S" * 22), 0)
PATIENCE_S = 0.3
END = 1000
_ASKED = struct.Struct(">iiqiqib")


class Answer(NamedTuple):
    """The response to a fetch."""

    visible: int = END
    stable: int | None = None
    """If None, the last stable offset is the high watermark."""
    throttle_ms: int = 0
    preferred_replica: int = -1
    diverging: bool = False
    records: bytes = b""
    is_withheld: bool = False
    """Whether the response contains no partition. Kafka responds so to each fetch that it throttles."""

    def body(self) -> bytes:
        if self.is_withheld:
            return struct.pack(">ihi", self.throttle_ms, 0, 0) + b"\x01\x00"
        stable = self.visible if self.stable is None else self.stable
        tags = b"\x01\x00\x0d" + struct.pack(">iq", 1, 5) + b"\x00" if self.diverging else b"\x00"
        return (
            struct.pack(">ihi", self.throttle_ms, 0, 0)
            + b"\x02"
            + uuid_bytes(PARTITION.topic_id)
            + b"\x02"
            + struct.pack(">ihqqq", 0, 0, self.visible, stable, 0)
            + b"\x01"
            + struct.pack(">i", self.preferred_replica)
            + bytes([len(self.records) + 1])
            + self.records
            + tags
            + b"\x00\x00"
        )


NOTHING = Answer()


class Broker:
    """Answers the requests to a leader with what the test decides."""

    def __init__(self) -> None:
        self.view = FakeView()
        self.view.longest_wait_ms = 50
        self.stretches = Stretches(as_any(self.view), PATIENCE_S)
        self.fetch: Callable[[int], Answer] = lambda _: NOTHING
        self.local: tuple[int, int] = (0, 0)
        """Error code and offset: where the local part of the log begins."""
        self.asked: list[tuple[str, int]] = []
        """The requests: the purpose of the connection, and the leader epoch in the request."""
        self.fetches: list[tuple[int, int]] = []
        """The leader epoch in each fetch request, and the epoch of the batch before the position."""

    async def serve(self) -> None:
        while True:
            await asyncio.sleep(0.001)
            for (_, purpose), link in list(self.view.links.items()):
                self._answer(purpose, link.connection.pipe)

    def _answer(self, purpose: str, pipe: FakePipe) -> None:
        if not pipe.requests:
            return
        api, body, _ = pipe.requests[0]
        if api == "Fetch":
            _, epoch, offset, last_epoch, *_ = _ASKED.unpack(body[-4 - _ASKED.size : -4])
            self.asked.append((purpose, epoch))
            self.fetches.append((epoch, last_epoch))
            pipe.answer(self.fetch(offset).body())
            return
        _, epoch, time_ms, _ = struct.unpack(">iiqb", body[-19:-2])
        assert time_ms == EARLIEST_LOCAL
        self.asked.append((purpose, epoch))
        found = struct.pack(">ihqqi", 0, self.local[0], -1, self.local[1], 0)
        pipe.answer(b"\x00" * 4 + b"\x02\x07orders\x02" + found + b"\x00\x00\x00")

    async def read(self, start: int = 900, *, committed: bool = False) -> list[int]:
        reading = self.stretches.read(PARTITION, start, END, committed=committed)
        return [each.header.base_offset async for each in reading]

    async def fails(self, error: ErrorCode = ErrorCode.REQUEST_TIMED_OUT, *, committed: bool = False) -> None:
        with pytest.raises(ReadFailed) as failure:
            await self.read(committed=committed)
        assert failure.value.error == error


@pytest.fixture
async def broker() -> AsyncGenerator[Broker]:
    found = Broker()
    serving = asyncio.create_task(found.serve())
    yield found
    serving.cancel()


def records(base: int, leader_epoch: int = 0) -> bytes:
    rows = [DecodedRecord(50, 1, b"k", b"v", ())]
    return bytes(batch(rows, base_offset=base, last_offset_delta=0, leader_epoch=leader_epoch))


async def test_a_read_ends_if_the_cleaner_has_removed_the_last_batches(broker: Broker) -> None:
    broker.fetch = lambda offset: Answer(records=records(900)) if offset == 900 else NOTHING
    assert await broker.read() == [900]
    assert broker.asked == [("read", 0), ("read", 0), ("ask", 0), ("read-remote-3", 0)]


async def test_a_later_batch_may_arrive_before_the_end_is_confirmed(broker: Broker) -> None:
    answers = iter([NOTHING, Answer(END + 1, records=records(END - 1))])
    broker.fetch = lambda _: next(answers, NOTHING)
    assert await broker.read() == [END - 1]


@pytest.mark.parametrize(
    "answer",
    [
        Answer(visible=END - 1),
        Answer(throttle_ms=1),
        Answer(preferred_replica=2),
        Answer(visible=900),
    ],
)
async def test_a_response_without_records_may_have_other_reasons(broker: Broker, answer: Answer) -> None:
    broker.fetch = lambda _: answer
    await broker.fails()


async def test_records_above_the_last_stable_offset_are_not_missing(broker: Broker) -> None:
    broker.fetch = lambda _: Answer(stable=END - 1)
    await broker.fails(committed=True)
    assert await broker.read() == []


async def test_records_in_remote_storage_are_not_missing(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "REMOTE_PATIENCE", 1)
    broker.local = (0, 901)
    await broker.fails(ErrorCode.KAFKA_STORAGE_ERROR)


async def test_nothing_is_missing_if_the_start_of_the_local_part_is_not_known(broker: Broker) -> None:
    broker.local = (int(ErrorCode.UNSUPPORTED_VERSION), -1)
    await broker.fails()


async def test_a_follower_does_not_know_the_end(broker: Broker) -> None:
    broker.view.leaders[0] = Leader(1, -1)
    await broker.fails()


async def test_the_start_of_the_local_part_is_known_in_the_same_epoch(broker: Broker) -> None:
    broker.local = (int(ErrorCode.FENCED_LEADER_EPOCH), -1)
    await broker.fails(ErrorCode.FENCED_LEADER_EPOCH)


async def test_a_new_leader_has_to_confirm_the_end_itself(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "AGAIN_S", 0.0)

    def fetch(_: int) -> Answer:
        broker.view.leaders[0] = Leader(1, 1)
        return NOTHING

    broker.fetch = fetch
    assert await broker.read() == []
    assert broker.asked == [("read", 0), ("ask", 0), ("read-remote-3", 1), ("ask", 1), ("read-remote-3", 1)]


async def test_one_response_without_records_is_not_enough(broker: Broker) -> None:
    """Another response comes between two of them."""
    answers = iter([NOTHING, Answer(visible=END - 1), NOTHING])
    broker.fetch = lambda _: next(answers, Answer(records=records(END - 1)))
    assert await broker.read() == [END - 1]


async def test_a_read_survives_throttle_times_that_exceed_its_patience(broker: Broker) -> None:
    times: list[float] = []
    answers = iter([Answer(throttle_ms=600, is_withheld=True)] * 2)

    def fetch(offset: int) -> Answer:
        times.append(asyncio.get_running_loop().time())
        return next(answers, NOTHING if len(times) == 3 else Answer(END + 1, records=records(offset)))

    broker.fetch = fetch
    began = asyncio.get_running_loop().time()
    assert await broker.read(END - 1) == [END - 1]
    assert min(times[1] - times[0], times[2] - times[1]) >= 0.6 > PATIENCE_S
    assert broker.view.pipe("read").throttled_s == 0.6
    assert asyncio.get_running_loop().time() - began < 2


async def test_a_throttled_read_does_not_delay_reads_from_other_brokers(broker: Broker) -> None:
    """Even if there are more throttled reads than the reader sends fetches at the same time."""
    broker.view.leaders[1] = Leader(2, 0)
    broker.fetch = lambda _: Answer(throttle_ms=60_000, is_withheld=True)
    waiting = [asyncio.create_task(broker.read()) for _ in range(6)]
    await asyncio.sleep(0.05)
    assert len(broker.asked) <= 4
    broker.fetch = lambda offset: Answer(END + 1, records=records(offset))
    async with asyncio.timeout(1):
        reading = broker.stretches.read(PartitionId("orders", PARTITION.topic_id, 1), END - 1, END)
        assert [each.header.base_offset async for each in reading] == [END - 1]
    for task in waiting:
        task.cancel()


async def test_a_divergence_is_asked_for_again_after_the_throttle_time(broker: Broker) -> None:
    answers = iter([Answer(throttle_ms=20, is_withheld=True)])
    broker.fetch = lambda _: next(answers, Answer(diverging=True))
    assert await broker.stretches.parting(PARTITION, 900, 1) == (1, 5, 0)


async def test_a_response_without_partitions_that_is_not_throttled_is_an_error(broker: Broker) -> None:
    broker.fetch = lambda _: Answer(is_withheld=True)
    await broker.fails(ErrorCode.UNKNOWN_SERVER_ERROR)


async def test_a_new_leader_must_have_what_was_read(broker: Broker) -> None:
    """It may have lost the batch at 901, and have other batches there and above."""

    def fetch(offset: int) -> Answer:
        if offset == 901:
            broker.view.leaders[0] = Leader(1, 8)
        return Answer(diverging=True) if broker.fetches[-1] == (8, 3) else Answer(END + 1, records=records(offset, 3))

    broker.view.leaders[0] = Leader(1, 7)
    broker.fetch = fetch
    reading = broker.stretches.read(PARTITION, 900, END)
    assert [(await anext(reading)).header.base_offset for _ in range(2)] == [900, 901]
    with pytest.raises(LogDiverged):
        await anext(reading)
    assert broker.fetches == [(7, -1), (7, -1), (8, 3)]


async def test_a_read_continues_a_former_one(broker: Broker) -> None:
    broker.fetch = lambda offset: Answer(END + 1, records=records(offset))
    reading = broker.stretches.read(PARTITION, END - 1, END, last_epoch=3)
    assert [each.header.base_offset async for each in reading] == [END - 1]
    assert broker.fetches == [(0, 3)]
