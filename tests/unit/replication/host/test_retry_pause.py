"""Connections whose requests fail: each of them pauses, and the pauses become longer."""

import asyncio

import pytest

from mirrord.kafka.client.reconnecting_link import Backoff
from mirrord.kafka.protocol.errors import Malformed, Oversize
from mirrord.replication.lane.signals import FetchFrom
from tests.fixtures.fake_pipe import FakePipe, fetched, until
from tests.fixtures.fetching import RECORDS, TOPIC, Rig, settle

BAD = b"\xff" * 20


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Failures that each pause follows. The pauses themselves are short."""
    counts: list[int] = []

    class Counted(Backoff):
        __slots__ = ("failures",)

        def __init__(self, longest_s: float = 1.0) -> None:
            super().__init__(longest_s)
            self.failures = 0

        def next_s(self) -> float:
            self.failures += 1
            counts.append(self.failures)
            return 0.05

        def reset(self) -> None:
            self.failures = 0

    monkeypatch.setattr("mirrord.replication.host.flow_control.retry_pause.Backoff", Counted)
    return counts


async def asked(rig: Rig) -> FakePipe:
    """Return the connection with the next request."""
    await until(lambda: bool(rig.hot.requests))
    return rig.hot


async def test_a_connection_that_fails_is_not_used_before_its_pause_ends(pauses: list[int]) -> None:
    rig = Rig()
    await rig.want(rig.tap(0), 5)
    (await asked(rig)).lose(Malformed("zeros"))
    for partition in range(1, 20):
        await rig.want(rig.tap(partition), 5)
        assert not rig.hot.requests, "another partition does not end the pause"
    assert len((await asked(rig)).requests) == 1
    assert pauses == [1]


async def test_a_connection_that_is_accepted_does_not_end_the_series_of_failures(pauses: list[int]) -> None:
    rig = Rig()
    await rig.want(rig.tap(0), 5)
    for _ in range(3):
        (await asked(rig)).answer(BAD)
    assert pauses == [1, 2, 3]
    (await asked(rig)).answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert [partition for partition, _ in rig.chunks] == [0]
    await rig.want(rig.tap(0), 6)
    (await asked(rig)).lose()
    assert pauses == [1, 2, 3, 1]


async def test_partitions_that_are_fetched_alone_do_not_end_each_others_pauses(pauses: list[int]) -> None:
    """With several connections, the end of each pause caused requests on all of them."""
    rig = Rig()
    rig.asks.local_answer = (0, 1_000)
    rig.source.local_starts._has_remote = True  # pyright: ignore[reportPrivateUsage]
    for partition in range(4):
        rig.source.want(rig.tap(partition), FetchFrom(1, 1, 5, -1))
    pipes = [rig.view.pipe(f"fetch-remote-{number}") for number in range(4)]
    await until(lambda: all(pipe.requests for pipe in pipes))
    for pipe in pipes:
        pipe.lose()
        await settle()
        await asyncio.sleep(0.01)
    fresh = [rig.view.pipe(f"fetch-remote-{number}") for number in range(4)]
    assert not any(pipe.requests for pipe in fresh[1:])
    await until(lambda: all(rig.view.pipe(f"fetch-remote-{number}").requests for number in range(4)))
    assert pauses == [1] * 4


async def test_partitions_with_oversized_batches_pause_no_connection(pauses: list[int]) -> None:
    """Each of them is told apart, so the broker is healthy. A partition after 60 of them had to wait for 11 s."""
    rig, last = Rig(), 60
    for partition in range(last + 1):
        rig.source.want(rig.tap(partition), FetchFrom(1, 1, 5, -1))
    (await asked(rig)).lose(Oversize("large"))
    feed = rig.source._feeds[1]  # pyright: ignore[reportPrivateUsage]

    def served() -> bool:
        for number, channel in enumerate(feed._alone.channels):  # pyright: ignore[reportPrivateUsage]
            pipe = rig.view.pipe(f"fetch-alone-{number}")
            if pipe.requests:
                (tap,) = channel.taps.values()
                if tap.partition.partition < last:
                    pipe.lose(Oversize("large"))
                else:
                    pipe.answer(fetched(TOPIC, (last, 0, 9, RECORDS)))
        return bool(rig.chunks)

    await until(served)
    assert not pauses


async def test_one_connection_at_a_time_waits_for_memory() -> None:
    """If another one was the first to wait, this one was refused again and again, without end."""
    rig = Rig(limit_bytes=8 << 20)
    rig.asks.local_answer = (0, 1_000)
    rig.source.local_starts._has_remote = True  # pyright: ignore[reportPrivateUsage]
    rig.source.want(rig.tap(0), FetchFrom(1, 1, 5, -1))
    first = rig.view.pipe("fetch-remote-0")
    await until(lambda: bool(first.requests))
    rig.budget.promised_bytes += rig.budget.limit_bytes  # others use the memory
    rig.source.want(rig.tap(1), FetchFrom(1, 1, 5, -1))
    await settle()
    first.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    rig.source.want(rig.tap(2), FetchFrom(1, 1, 5, -1))
    await settle()
    rig.budget.settle(rig.budget.limit_bytes)
    await until(lambda: sum(len(rig.view.pipe(f"fetch-remote-{number}").requests) for number in range(4)) == 2)
