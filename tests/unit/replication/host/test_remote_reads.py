"""Partitions in remote storage are fetched separately, and nothing changes for the others."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Any

import pytest

from mirrord.kafka.client import range_reader
from mirrord.kafka.client.cluster_metadata import Leader, PartitionId
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.range_reader import ReadBatch, ReadFailed, Stretches
from mirrord.kafka.protocol.api_versions import LIST_LOCAL_OFFSETS, choose
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchedPartition, FetchLimits, FetchPosition
from mirrord.model.names import TopicId
from mirrord.replication.host.fetcher import HOT_WAIT_MS
from mirrord.replication.host.flow_control import remote_reads
from mirrord.replication.host.partition_fetch import PartitionFetch
from mirrord.replication.lane.signals import FetchFrom
from tests.fixtures.fake_pipe import FakePipe, FakeView, as_any, fetched, until
from tests.fixtures.fetching import RECORDS, TOPIC, Rig, settle

UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


def remote(rig: Rig, number: int = 0) -> FakePipe:
    return rig.view.pipe(f"fetch-remote-{number}")


def remote_requests(rig: Rig) -> int:
    return sum(link.connection.pipe.in_flight for (_, name), link in rig.view.links.items() if "remote" in name)


async def test_remote_records_are_fetched_apart_with_a_long_wait(rig: Rig) -> None:
    rig.asks.local_answer = (0, 100)
    await rig.want(rig.tap(0), 5)
    await rig.want(rig.tap(1), 100)
    assert (rig.hot.in_flight, remote(rig).in_flight) == (1, 1)
    assert (rig.wait_ms(rig.hot), rig.wait_ms(remote(rig))) == (HOT_WAIT_MS, rig.view.longest_wait_ms)
    remote(rig).answer(fetched(TOPIC, (0, 0, 200, RECORDS)))
    assert [partition for partition, _ in rig.chunks] == [0]


async def test_each_remote_request_has_one_partition_and_a_few_run_in_parallel(rig: Rig) -> None:
    rig.asks.local_answer = (0, 100)
    taps = [rig.tap(partition) for partition in range(6)]
    for tap in taps:
        rig.source.want(tap, FetchFrom(1, 1, 0, -1))
    await settle()
    await settle()
    assert remote_requests(rig) == remote_reads.CONNECTIONS
    assert rig.hot.in_flight == 0
    for partition in (0, remote_reads.CONNECTIONS):
        remote(rig).answer(fetched(TOPIC, (partition, 0, 200, RECORDS)))
        await settle()
    assert [partition for partition, _ in rig.chunks] == [0, 4]
    assert remote_requests(rig) == remote_reads.CONNECTIONS


async def test_one_remote_partition_opens_one_connection(rig: Rig) -> None:
    rig.asks.local_answer = (0, 100)
    await rig.want(rig.tap(0), 5)
    await rig.want(rig.tap(1), 500)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    assert [name for _, name in rig.view.links if "remote" in name] == ["fetch-remote-0"]


async def test_the_broker_is_asked_again_where_the_local_part_began(rig: Rig) -> None:
    """Local retention has moved on while the remote part was copied."""
    tap = rig.tap(0)
    rig.asks.local_answer = (0, 100)
    await rig.want(tap, 50)
    remote(rig).answer(fetched(TOPIC, (0, 0, 400, RECORDS)))
    rig.asks.local_answer = (0, 300)
    await rig.want(tap, 100)
    assert remote(rig).in_flight == 1
    remote(rig).answer(fetched(TOPIC, (0, 0, 400, RECORDS)))
    await rig.want(tap, 300)
    assert (rig.hot.in_flight, remote(rig).in_flight) == (1, 0)
    assert rig.asks.looked == [0, 0, 0]


async def test_a_remote_read_that_comes_empty_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_reads, "EMPTY_PAUSE_S", 0.0)
    rig.asks.local_answer = (0, 100)
    await rig.want(rig.tap(0), 5)
    for _ in range(3):
        remote(rig).answer(fetched(TOPIC))
        await until(lambda: remote(rig).in_flight == 1)
    remote(rig).answer(fetched(TOPIC, (0, 0, 200, RECORDS)))
    assert len(rig.chunks) == 1


async def test_a_lost_connection_loses_no_remote_wish(rig: Rig) -> None:
    rig.asks.local_answer = (0, 100)
    await rig.want(rig.tap(0), 5)
    remote(rig).lose()
    await until(lambda: remote_requests(rig) == 1)


async def test_a_remote_wish_follows_the_leader(rig: Rig) -> None:
    rig.asks.local_answer = (0, 100)
    taps = [rig.tap(partition) for partition in range(remote_reads.CONNECTIONS + 1)]
    for tap in taps:
        await rig.want(tap, 5)
    rig.view.leaders[remote_reads.CONNECTIONS] = Leader(2, 1)
    for changed in rig.view.on_change:
        changed()
    await settle()
    assert rig.view.pipe("fetch-remote-0", 2).in_flight == 1


@pytest.mark.parametrize("stopped_first", [True, False])
async def test_a_stopped_partition_is_not_fetched_from_remote_storage(rig: Rig, *, stopped_first: bool) -> None:
    rig.asks.local_answer = (0, 100)
    await rig.want(rig.tap(1), 5)
    remote(rig).answer(fetched(TOPIC, (1, 0, 200, RECORDS)))
    rig.chunks.clear()
    if stopped_first:
        rig.asks.local_answer = None
    tap = rig.tap(0)
    await rig.want(tap, 5)
    rig.source.stop(tap)
    if not stopped_first:
        remote(rig).answer(fetched(TOPIC, (0, 0, 200, RECORDS)))
    await settle()
    assert rig.chunks == []
    assert remote_requests(rig) == 0


async def fall_behind(rig: Rig, tap: PartitionFetch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records came from the local part; then retention overtakes the lane."""
    monkeypatch.setattr(remote_reads, "LOOK_S", 0.0)
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 200, RECORDS)))
    tap.hot_until = 0.0
    await rig.want(tap, 6)


async def test_a_lane_that_falls_behind_into_remote_storage_is_noticed_by_empty_answers(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = rig.tap(0)
    await fall_behind(rig, tap, monkeypatch)
    rig.asks.local_answer = (0, 100)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    assert (remote(rig).in_flight, rig.idle.in_flight) == (1, 0)


async def test_a_lane_that_falls_behind_into_remote_storage_is_noticed_by_a_late_answer(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = rig.tap(0)
    await fall_behind(rig, tap, monkeypatch)
    monkeypatch.setattr("mirrord.replication.host.fetcher.SLOW_S", -1.0)
    rig.asks.local_answer = (0, 100)
    rig.hot.answer(fetched(TOPIC, (0, 0, 200, RECORDS)))
    await rig.want(tap, 7)
    assert (remote(rig).in_flight, rig.hot.in_flight) == (1, 0)


async def test_a_broker_that_does_not_report_its_local_start_gets_one_long_request_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    tap = rig.tap(0)
    rig.asks.local_answer = (UNSUPPORTED, -1)
    await fall_behind(rig, tap, monkeypatch)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    assert remote(rig).in_flight == 1
    remote(rig).answer(fetched(TOPIC, (0, 0, 200, RECORDS)))
    await rig.want(tap, 7)
    assert rig.hot.in_flight == 1


async def test_a_fetch_does_not_wait_for_the_local_start_before_a_remote_partition_is_found(rig: Rig) -> None:
    rig.asks.local_answer = None
    await rig.want(rig.tap(0), 5)
    assert (rig.hot.in_flight, rig.asks.looked) == (1, [0])


async def test_a_fetch_does_not_wait_long_for_the_local_start(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.asks.local_answer = (0, 100)
    await rig.want(rig.tap(0), 5)
    monkeypatch.setattr(remote_reads, "LOOK_PATIENCE_S", 0.05)
    rig.asks.local_answer = None
    await rig.want(rig.tap(1), 5)
    assert rig.hot.in_flight == 0
    await until(lambda: rig.hot.in_flight == 1)


async def test_partitions_without_remote_storage_are_asked_about_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_reads, "LOOK_S", 0.0)
    tap = rig.tap(0)
    for position in range(5):
        await rig.want(tap, position)
        rig.hot.answer(fetched(TOPIC, (0, 0, 5, RECORDS)))
    await rig.want(tap, 5)
    tap.hot_until = 0.0
    rig.hot.answer(fetched(TOPIC))
    await settle()
    for _ in range(3):
        await until(lambda: rig.idle.in_flight == 1)
        rig.idle.answer(fetched(TOPIC))
        await settle()
    assert rig.asks.looked == [0]
    assert all("remote" not in name for _, name in rig.view.links)


async def test_a_broker_that_is_too_old_for_the_question_is_not_asked_again() -> None:
    view = FakeView()
    asks = Asks(as_any(view), read_committed=True)
    as_any(view.link(1, "ask").connection).version = partial(choose, broker_versions={LIST_LOCAL_OFFSETS.key: (0, 7)})
    answers: list[tuple[int, int]] = []
    asks.local_start(PartitionId("t", TopicId("id"), 0), lambda *answer: answers.append(answer))
    await settle()
    assert answers == [(UNSUPPORTED, -1)]
    assert view.refreshes == 0


# Stretches


class Log:
    """Ten offsets, one in each fetch. Those below `local` come only to a request that waits for `needs_ms`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, local: int, needs_ms: int, end: int = 10) -> None:
        self.asked: list[tuple[int, int, str]] = []
        self.local: int = local
        self._needs_ms = needs_ms
        self._end = end
        view = FakeView()
        self.stretches: Any = Stretches(as_any(view), 0.2)
        self.stretches._fetch = self._fetch
        monkeypatch.setattr(range_reader, "local_start", self._local_start)
        monkeypatch.setattr(range_reader, "_scan", self._scan)

    async def _local_start(self, _view: object, _partition: PartitionId, _leader_epoch: int) -> int:
        return self.local

    async def _fetch(
        self, _partition: PartitionId, position: FetchPosition, limits: FetchLimits, link: str = "read"
    ) -> range_reader._Response:
        await asyncio.sleep(0.01)
        self.asked.append((position.offset, limits.max_wait_ms, link))
        comes = position.offset < self._end and (position.offset >= self.local or limits.max_wait_ms >= self._needs_ms)
        visible = max(self._end, position.offset)
        return range_reader._Response(b"", FetchedPartition("t", 0, 0, visible, visible, 0, 0, int(comes), []), 0)

    def _scan(self, _buffer: bytes, answer: FetchedPartition, position: int) -> Sequence[Any]:
        header = (position, 0, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
        return [(0, 0, position, position, 0, 0, header)] if answer.records_end else []

    async def read(self) -> list[int]:
        stretch: AsyncGenerator[ReadBatch, None] = self.stretches.read(PartitionId("t", TopicId("id"), 0), 0, 10)
        return [batch.header.base_offset async for batch in stretch]


async def test_a_stretch_waits_longer_for_remote_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, local=6, needs_ms=2_000)
    assert await log.read() == list(range(10))
    waits = [(wait_ms, link) for offset, wait_ms, link in log.asked if offset == 0]
    assert waits == [(100, "read"), (500, "read-remote-3"), (2_500, "read-remote-3")]
    assert {link for offset, _, link in log.asked if 0 < offset < 6} == {"read-remote-3"}
    assert {(wait_ms, link) for offset, wait_ms, link in log.asked if offset >= 6} == {(100, "read")}


async def test_a_stretch_has_more_patience_with_remote_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, local=6, needs_ms=60_000)
    began = asyncio.get_running_loop().time()
    with pytest.raises(ReadFailed) as failed:
        await log.read()
    assert failed.value.error == ErrorCode.KAFKA_STORAGE_ERROR
    assert asyncio.get_running_loop().time() - began > 0.2 * range_reader.REMOTE_PATIENCE


async def test_a_stretch_without_its_end_fails_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(monkeypatch, local=0, needs_ms=0, end=8)
    with pytest.raises(ReadFailed) as failed:
        await log.read()
    assert failed.value.error == ErrorCode.REQUEST_TIMED_OUT
    assert {(wait_ms, link) for _, wait_ms, link in log.asked} == {(100, "read")}


async def test_a_stretch_of_a_broker_that_does_not_report_its_local_start_waits_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(monkeypatch, local=6, needs_ms=2_000)

    async def nothing(_view: object, _partition: PartitionId, _leader_epoch: int) -> int:
        return -1

    monkeypatch.setattr(range_reader, "local_start", nothing)
    assert await log.read() == list(range(10))
