"""A batch that is larger than a frame may be: its partition stops, and the others do not."""

from types import SimpleNamespace
from typing import Any

import pytest

from mirrord.kafka.client.receive_buffers import FRAME_LIMIT
from mirrord.kafka.protocol.errors import Malformed, Oversize
from mirrord.replication.host.flow_control import oversized_fetch
from mirrord.replication.host.flow_control.fetch_size import FetchRoom
from mirrord.replication.host.flow_control.memory_budget import MemoryBudget
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.host.partition_fetch import PartitionFetch
from mirrord.replication.lane.signals import FetchFrom
from tests.fixtures.fake_pipe import FakePipe, fetched, until
from tests.fixtures.fetching import RECORDS, TOPIC, Rig, settle

TOO_LARGE = Oversize("a frame of 150000000 bytes, where 134217728 are allowed")


class Broker:
    """Answers every request; some partitions begin with a batch that is too large."""

    def __init__(self, rig: Rig, *large: int) -> None:
        self.rig = rig
        self.large = set(large)
        self.refused: list[set[int]] = []
        """The partitions of each request whose answer was too large."""

    @property
    def asked(self) -> list[tuple[FakePipe, set[int]]]:
        """Requests in flight, and their partitions."""
        return [
            (channel.link.connection.pipe, {tap.partition.partition for tap in channel.taps.values()})  # type: ignore[attr-defined]
            for feed in self.rig.source._feeds.values()
            for channel in feed._channels
            if channel.busy and not channel.connecting
        ]

    def serve(self) -> None:
        for pipe, partitions in self.asked:
            if partitions & self.large:
                self.refused.append(partitions)
                pipe.lose(TOO_LARGE)
            else:
                pipe.answer(fetched(TOPIC, *((partition, 0, 9, RECORDS) for partition in partitions)))

    async def serve_until(self, *partitions: int) -> None:
        """Serve until chunks of these arrive."""

        def came() -> bool:
            self.serve()
            return {partition for partition, _ in self.rig.chunks} >= set(partitions)

        await until(came)


def note(tap: PartitionFetch) -> str:
    hosted: Any = SimpleNamespace(tap=tap, outlet=None, ledger_trouble="")
    return HostedLane.note(hosted, "eu", "us")


async def wanting(rig: Rig, *taps: PartitionFetch, position: int = 5) -> None:
    for tap in taps:
        rig.source.want(tap, FetchFrom(1, 1, position, -1))
    await settle()


async def test_only_the_partition_with_the_batch_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = Rig()
    broker, taps = Broker(rig, 3), [rig.tap(partition) for partition in range(6)]
    await wanting(rig, *taps)
    await broker.serve_until(0, 1, 2, 4, 5)
    await until(lambda: broker.serve() or taps[3].too_large != "")
    assert broker.refused == [{0, 1, 2, 3, 4, 5}, {3}]
    assert [tap.apart for tap in taps] == [False, False, False, True, False, False]
    assert note(taps[0]) == ""
    assert note(taps[3]) == (
        "the batch at offset 5 of eu is too large to be fetched, and the fetch is retried every 30 s: "
        "a frame of 150000000 bytes, where 134217728 are allowed"
    )
    # The others share requests again, and it is not requested meanwhile.
    rig.chunks.clear()
    await wanting(rig, *taps[:3], position=6)
    await until(lambda: [asked for _, asked in broker.asked] == [{0, 1, 2}])
    broker.serve()
    assert {partition for partition, _ in rig.chunks} == {0, 1, 2}
    assert taps[3].timer is not None


async def test_it_is_tried_again_alone_until_it_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oversized_fetch, "RETRY_S", 0.02)
    rig = Rig()
    broker, tap = Broker(rig, 0), rig.tap(0)
    await wanting(rig, tap)
    await until(lambda: broker.serve() or len(broker.refused) > 2)
    assert tap.too_large
    await wanting(rig, rig.tap(1))
    broker.large.clear()
    await until(lambda: any(0 in asked for _, asked in broker.asked))
    assert {0} in [asked for _, asked in broker.asked]
    await broker.serve_until(0, 1)
    assert (tap.apart, tap.too_large) == (False, "")


async def test_a_partition_without_a_backlog_returns_to_the_shared_request() -> None:
    rig = Rig()
    taps = [rig.tap(partition) for partition in range(2)]
    await wanting(rig, *taps)
    rig.hot.lose(TOO_LARGE)
    broker = Broker(rig)
    await until(lambda: len(broker.asked) == 2)
    assert all(tap.apart for tap in taps)
    for pipe, _ in broker.asked:
        pipe.answer(fetched(TOPIC))
    await until(lambda: [asked for _, asked in broker.asked] == [{0, 1}])
    assert not any(tap.apart for tap in taps)


@pytest.mark.parametrize("cause", [None, Malformed("a frame of 2 bytes")])
async def test_a_connection_that_is_lost_for_another_reason_blames_nobody(cause: Exception | None) -> None:
    rig = Rig()
    tap = rig.tap(0)
    await wanting(rig, tap)
    rig.hot.lose(cause)
    assert (tap.apart, tap.too_large, tap.timer) == (False, "", None)


def test_a_request_brings_less_than_a_frame_may_have() -> None:
    """Only a single batch can make an answer too large, however much memory there is."""
    assert FetchRoom(MemoryBudget(1 << 40), [1]).far_bytes <= FRAME_LIMIT // 2
