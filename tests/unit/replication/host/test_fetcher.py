"""Fetching: what each broker is asked for, which answers count, and what a busy partition does not have to wait for."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from mirrord.kafka.client.cluster_metadata import Leader
from mirrord.kafka.protocol.fetch import FetchPosition
from mirrord.replication.host.fetcher import HOT_WAIT_MS, IDLE_WAIT_MS
from mirrord.replication.host.flow_control.fetch_priority import FetchPriority
from mirrord.replication.host.flow_control.memory_budget import BATCH_BYTES
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.lane.signals import Chunk, FetchFrom
from mirrord.replication.lane.source.epoch_cache import EpochCache
from tests.fixtures.fake_pipe import FakeConnection, fetched, until
from tests.fixtures.fetching import RECORDS, TOPIC, Rig, batch_of, settle


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_a_chunk_points_into_the_frame(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    ((partition, chunk),) = rig.chunks
    assert (partition, chunk.question, chunk.high_watermark, chunk.end - chunk.start) == (0, 1, 9, 100)
    assert rig.budget.held_bytes > 0
    del chunk
    rig.chunks.clear()
    assert rig.budget.held_bytes == 0


async def test_partitions_that_bring_nothing_move_to_the_long_request(rig: Rig) -> None:
    taps = [rig.tap(partition) for partition in range(3)]
    for tap in taps:
        rig.source.want(tap, FetchFrom(1, 1, 0, -1))
    await settle()
    assert rig.wait_ms(rig.hot) == HOT_WAIT_MS
    rig.hot.answer(fetched(TOPIC))
    await settle()
    assert rig.hot.requests == []
    assert rig.wait_ms(rig.idle) == IDLE_WAIT_MS
    # One of them brings something: it is hot from then on, the others stay.
    rig.idle.answer(fetched(TOPIC, (1, 0, 3, RECORDS)))
    await rig.want(taps[1], 3)
    assert len(rig.hot.requests) == len(rig.idle.requests) == 1
    rig.hot.answer(fetched(TOPIC, (1, 0, 6, RECORDS)))
    assert [partition for partition, _ in rig.chunks] == [1, 1]


async def test_a_new_fetch_does_not_wait_for_the_long_request(rig: Rig) -> None:
    await rig.want(rig.tap(0), 0)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    assert rig.idle.in_flight == 1
    await rig.want(rig.tap(1), 0)
    assert rig.hot.in_flight == 1


async def test_the_answer_to_a_wish_that_was_replaced_is_thrown_away(rig: Rig) -> None:
    tap = rig.tap(0)
    await rig.want(tap, 5)
    await rig.want(tap, 7, number=2)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert rig.chunks == []
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert [chunk.question for _, chunk in rig.chunks] == [2]


async def test_nothing_is_fetched_for_a_tap_that_was_stopped(rig: Rig) -> None:
    tap = rig.tap(0)
    await rig.want(tap, 5)
    rig.source.stop(tap)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    await settle()
    assert rig.chunks == []
    assert rig.hot.requests == rig.idle.requests == []


async def test_a_high_watermark_is_reported_once(rig: Rig) -> None:
    tap = rig.tap(0)
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    assert [chunk.high_watermark for _, chunk in rig.chunks] == [9]
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    await settle()
    assert len(rig.chunks) == 1
    assert rig.idle.in_flight == 1


async def test_the_end_of_the_log_is_not_known_while_nobody_asks_for_it(rig: Rig) -> None:
    tap = rig.tap(0)
    await rig.want(tap, 5)
    assert tap.source_end == -1
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    assert tap.source_end == 9
    await rig.want(tap, 5)
    rig.hot.lose()
    assert tap.source_end == -1, "what was heard before the connection broke may be less than there is"
    await until(lambda: rig.hot.in_flight == 1)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    assert tap.source_end == 9
    await rig.want(tap, 5, number=2)
    assert tap.source_end == -1, "a new round: nobody fetched meanwhile"


async def test_the_end_of_the_log_is_reported_again_to_a_new_round_at_the_same_position(rig: Rig) -> None:
    tap = rig.tap(0)
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC))
    await rig.want(tap, 5, number=2)
    # The session knows the partition at this position, and a broker never repeats a high watermark: it has to forget.
    assert rig.wait_ms(rig.hot) == 0
    rig.hot.answer(fetched(TOPIC))
    await settle()
    assert TOPIC in rig.hot.requests[-1][1]
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    assert tap.source_end == 9


async def test_the_end_is_asked_for_when_nothing_is_fetched(rig: Rig) -> None:
    tap = rig.tap(0)
    rig.asks.bounds_answer = (0, 70, 3)
    rig.source.ask_end(tap)
    assert tap.source_end == 70
    rig.asks.bounds_answer = (13, -1, -1)
    rig.source.ask_end(tap)
    assert tap.source_end == -1


async def test_how_old_the_reported_end_is(rig: Rig) -> None:
    tap = rig.tap(0)
    await rig.want(tap, 5)
    assert tap.last_bounds().end == -1
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    heard = tap.heard
    await rig.want(tap, 5)
    assert tap.last_bounds()[::2] == (9, 0)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    feed = tap.feed
    assert feed is not None
    assert feed.heard(tap) == 0.0, "it waits in another request now, of which no answer has come"
    rig.idle.answer(fetched(TOPIC))
    assert feed.heard(tap) > heard, "an answer that does not name it says that it still ends there"


async def test_an_answer_of_a_broker_that_throttles_us_says_nothing_of_the_end(rig: Rig) -> None:
    """It is empty, whatever there is (KIP-219)."""
    tap = rig.tap(0)
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b"")))
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    feed = tap.feed
    assert feed is not None
    assert feed.throttled_s(tap) == 0
    rig.idle.answer(fetched(TOPIC, throttle_ms=3_600_000))
    assert 3_500 < feed.throttled_s(tap) <= 3_600
    assert feed.heard(tap) == 0.0
    assert rig.view.fetches.status().throttled_s == 3_600
    await rig.want(rig.tap(1), 5)
    assert rig.hot.in_flight == 1, "the broker reads it when the wait is over"


async def test_only_fetches_that_bring_something_are_timed(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5)
    rig.hot.answer(fetched(TOPIC))
    await settle()
    rig.idle.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    await rig.want(rig.tap(1), 5)
    rig.hot.answer(fetched(TOPIC, (1, 6, -1, b"")))
    await rig.want(rig.tap(2), 5)
    rig.hot.lose()
    status = rig.view.fetches.status()
    assert (sum(status.buckets), status.errors) == (1, {"NOT_LEADER_OR_FOLLOWER": 1, "NETWORK_EXCEPTION": 1})


async def test_a_refusal_is_the_lanes_business(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5)
    rig.hot.answer(fetched(TOPIC, (0, 6, -1, b"")))
    assert [chunk.error for _, chunk in rig.chunks] == [6]


@pytest.mark.parametrize(
    ("bounds", "error"), [((0, 100, 10), 1), ((0, 4, 0), 1), ((0, 100, 0), 78), ((13, -1, -1), 13)]
)
async def test_out_of_range_is_looked_into(rig: Rig, bounds: tuple[int, int, int], error: int) -> None:
    rig.asks.bounds_answer = bounds
    await rig.want(rig.tap(0), 5)
    rig.hot.answer(fetched(TOPIC, (0, 1, -1, b"")))
    assert [(chunk.error, chunk.high_watermark, chunk.log_start) for _, chunk in rig.chunks] == [(error, *bounds[1:])]


async def test_a_lost_connection_concerns_no_lane(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5)
    rig.hot.lose()
    assert rig.view.refreshes > 0
    await until(lambda: rig.hot.in_flight == 1)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert [chunk.error for _, chunk in rig.chunks] == [0]


async def test_a_wish_follows_the_leader(rig: Rig) -> None:
    rig.view.leaders[0] = None
    await rig.want(rig.tap(0), 5)
    assert rig.view.links == {}
    rig.view.leaders[0] = Leader(2, 4)
    rig.view.on_change[0]()
    await settle()
    pipe = rig.view.pipe("fetch-hot", node=2)
    pipe.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert len(rig.chunks) == 1


async def test_a_delay_is_kept(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5, delay_s=0.05, refresh=True)
    assert rig.view.refreshes == 1
    assert rig.view.links == {}
    await until(lambda: rig.hot.in_flight == 1)


@pytest.mark.parametrize("version", [12, 13], ids=["by name", "by topic id"])
@pytest.mark.parametrize("epochs", [(-1, -1), (0, -1), (-1, 0), (0, 0), (4, 3)])
async def test_an_epoch_that_is_not_known_is_sent_as_such(
    rig: Rig, version: int, epochs: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """0 is an epoch that a leader can have: a broker would compare it, and consider a log truncated."""
    monkeypatch.setattr(FakeConnection, "version", lambda *_: version)
    leader_epoch, last_epoch = epochs
    rig.view.leaders[0] = Leader(1, leader_epoch)
    rig.source.want(rig.tap(0), FetchFrom(1, 1, 5, last_epoch))
    await settle()
    ((_, body, _),) = rig.hot.requests
    # Replica, wait, bytes, isolation and session; one topic by its name or id; one partition.
    head = 4 + 21 + 1 + (1 + len("t") if version == 12 else len(TOPIC)) + 1
    partition = struct.unpack_from(">iiqiqi", body, head)
    assert partition[:5] == (0, leader_epoch, 5, last_epoch, -1)


def test_no_epoch_is_known_at_first() -> None:
    assert (FetchPosition(5).leader_epoch, FetchPosition(5).last_epoch, EpochCache().before(5)) == (-1, -1, -1)


async def test_a_lost_session_is_opened_again(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5)
    rig.hot.answer(b"\x00\x00\x00\x00\x00\x46\x00\x00\x00\x00\x01\x00")  # FETCH_SESSION_ID_NOT_FOUND
    await settle()
    pipe = rig.idle if rig.idle.in_flight else rig.hot
    pipe.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert len(rig.chunks) == 1


async def test_an_answer_that_is_none_ends_the_connection(rig: Rig) -> None:
    await rig.want(rig.tap(0), 5)
    former = rig.hot
    rig.hot.answer(b"\xff")
    await until(lambda: rig.hot is not former and rig.hot.in_flight == 1)


async def test_a_lane_of_a_far_broker_is_asked_for_more(rig: Rig) -> None:
    tap = rig.tap(0)
    tap.lane_bytes, tap.far_batches = 4 << 20, 4_096
    await rig.want(tap, 5)
    assert tap.position.max_bytes == 4 << 20
    channel = tap.feed._hot  # type: ignore[union-attr]
    channel.size.answered(8 << 20, 8 << 20, 0.15)
    batch = batch_of(8_192)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, batch)))
    await rig.want(tap, 6)
    assert tap.position.max_bytes == 4 << 20  # some answers come soon
    channel.size = type(channel.size)()
    channel.size.answered(8 << 20, 8 << 20, 0.15)
    await rig.want(tap, 7)
    assert tap.position.max_bytes == rig.source.room.far_bytes == 16 << 20
    tap.batch_bytes = 200
    await rig.want(tap, 8)
    assert tap.position.max_bytes == 4 << 20  # this many batches would delay the others


async def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "mirrord.replication.host.flow_control.fetch_size.FAR_S", float("inf")
    )  # a busy machine answers late
    rig = Rig(limit_bytes=1 << 20)
    size = rig.source.room.request_bytes
    for partition in range(4):
        await rig.want(rig.tap(partition), 0)
        while rig.hot.in_flight:
            assert rig.budget.held_bytes + rig.budget.promised_bytes <= rig.budget.limit_bytes
            rig.hot.answer(fetched(TOPIC, (partition, 0, 9, batch_of(400_000))))
            await settle()
    # Two frames fit and the third does not, until one is given back.
    assert rig.budget.held_bytes + size > rig.budget.limit_bytes
    fetched_so_far = len(rig.chunks)
    rig.chunks.pop(0)
    await settle()
    assert rig.hot.in_flight == 1
    rig.hot.answer(fetched(TOPIC, (3, 0, 9, batch_of(400_000))))
    assert len(rig.chunks) == fetched_so_far


async def test_the_overhead_of_small_batches_counts_and_makes_requests_smaller() -> None:
    rig = Rig(limit_bytes=64 << 20)
    tap = rig.tap(0)
    usual = rig.source.room.request_bytes
    batch = batch_of(192)
    await rig.want(tap, 0)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, batch)))
    rig.chunks.clear()
    assert rig.budget.held_bytes == 0
    await rig.want(tap, 9)
    assert tap.position.max_bytes == min(usual, tap.lane_bytes), "a single batch tells nothing of many"
    rig.hot.answer(fetched(TOPIC, (0, 9, 9_999, 10_000 * batch)))
    assert rig.budget.held_bytes >= 10_000 * (192 + BATCH_BYTES)
    await rig.want(tap, 9_999)
    assert rig.budget.promised_bytes <= usual
    assert tap.position.max_bytes <= usual / 2.9
    rig.chunks.clear()
    assert rig.budget.held_bytes == 0


async def test_a_broker_that_brings_much_does_not_keep_others_waiting() -> None:
    rig = Rig(limit_bytes=2 << 20)
    rig.view.leaders = {0: Leader(1, 0), 1: Leader(2, 0)}
    busy, live = rig.tap(0), rig.tap(1)
    served: list[int] = []
    held: list[tuple[int, Chunk]] = []
    for _ in range(12):
        for tap in (busy, live):
            if tap.wish is None:
                await rig.want(tap, 0)
        for node, partition in ((1, 0), (2, 1)):
            pipe = rig.view.pipe("fetch-hot", node=node)
            if pipe.in_flight:
                # Each answer takes all the available space.
                pipe.answer(fetched(TOPIC, (partition, 0, 9, batch_of((2 << 20) - 4_096))))
                served.append(partition)
                await settle()
        # The target takes the oldest.
        held += rig.chunks
        rig.chunks.clear()
        del held[:1]
        await settle()
    held.clear()
    assert abs(served.count(0) - served.count(1)) <= 1
    assert len(served) >= 6


async def test_lanes_that_catch_up_share_a_request(rig: Rig) -> None:
    taps = [rig.tap(partition) for partition in range(40)]
    for tap in taps:
        tap.lane_bytes = 4 << 20
        rig.source.want(tap, FetchFrom(1, 1, 0, -1))
    assert taps[0].position.max_bytes == 4 << 20
    assert {tap.position.max_bytes for tap in taps[8:]} == {1 << 20}


async def test_records_that_retention_is_about_to_delete_are_fetched_first_and_at_once(rig: Rig) -> None:
    await rig.want(rig.tap(9), 0)  # during this request others are wanted
    taps = [rig.tap(partition) for partition in range(8)]
    taps[5].urgency.is_near = True
    for tap in taps:
        tap.lane_bytes = 16 << 20
        rig.source.want(tap, FetchFrom(1, 1, 0, -1))
    await settle()
    rig.hot.answer(fetched(TOPIC, (9, 0, 3, RECORDS)))
    await settle()
    channel = taps[5].feed._hot if taps[5].feed is not None else None  # type: ignore[attr-defined]
    assert channel is not None
    assert next(key for key in channel.taps if channel.taps[key] in taps) == (taps[5].partition.topic_id, 5)
    assert taps[5].position.max_bytes == rig.source.room.request_bytes
    assert all(tap.position.max_bytes < rig.source.room.request_bytes for tap in taps[3:5])


def test_when_a_log_start_is_about_to_reach_a_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mirrord.replication.host.flow_control.fetch_priority.time.monotonic", lambda: now[0])
    urgency = FetchPriority()

    def near(at: float, log_start: int, position: int, end: int = 9_000) -> bool:
        now[0] = at
        urgency.note(log_start, position, end)
        return urgency.is_near

    assert not near(0, 0, 1_000)
    assert near(100, 200, 1_000)  # in 400 s
    assert not near(200, 200, 9_000)  # nothing is left to lose
    assert not near(300, 200, 1_000)
    assert not near(400, 201, 1_000)  # in more than an hour
    assert not near(500, -1, 1_000)


def test_the_retention_forecast_of_the_supervisor_counts_in_addition_to_the_fetchers() -> None:
    urgency = FetchPriority()
    urgency.note(0, 1_000, 9_000)
    urgency.tell(near=True)
    urgency.note(0, 1_000, 9_000)
    assert urgency.is_near, "the log start has not moved"
    urgency.note(0, 9_000, 9_000)
    assert not urgency.is_near, "nothing is left to lose"
    urgency.tell(near=True)
    urgency.tell(near=False)
    assert not urgency.is_near


async def test_a_leader_that_sends_us_to_another_replica_is_reported(rig: Rig) -> None:
    """It returns no records itself; when it does again, the line is gone."""
    tap = rig.tap(0)
    await rig.want(tap, 5)
    rig.hot.answer(fetched(TOPIC, (0, 0, 9, b""), preferred_replica=3))
    assert tap.preferred_replica == 3
    hosted: Any = SimpleNamespace(tap=tap, outlet=None, ledger_trouble="")
    assert "sends consumers to replica 3" in HostedLane.note(hosted, "eu", "us")
    await rig.want(tap, 5, number=2)
    await settle()
    pipe = rig.hot if rig.hot.requests else rig.idle
    pipe.answer(fetched(TOPIC, (0, 0, 9, RECORDS)))
    assert tap.preferred_replica == -1
