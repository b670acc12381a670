"""Producing: who is answered what, in which order, when connections and leases come and go."""

import asyncio
from collections.abc import Callable

import pytest

from mirrord.kafka.client.cluster_metadata import Leader, PartitionId
from mirrord.kafka.protocol.primitives import uuid_text
from mirrord.model.names import LaneId, TopicId
from mirrord.replication.host.producer import NOT_SENT, UNKNOWN, TargetOutlet, TargetProducer
from mirrord.replication.lane.flow_control.byte_window import LEAST_BYTES, LEAST_REQUESTS
from mirrord.replication.lane.flow_control.request_packing import REQUEST_BYTES
from mirrord.replication.lane.signals import Batch, Input, Produce, ProduceAccepted, ProduceAnswer, TargetFar
from mirrord.replication.lane.state import Lane
from tests.fixtures.fake_pipe import FakePipe, FakeView, as_any, produced, until

TOPIC = b"0123456789abcdef"


class Sender:
    """A lane that records its answers."""

    def __init__(self, partition: int) -> None:
        self.lane = Lane(LaneId("lane"), "t", "t", partition, "", True, as_any(None))
        self.lane.round, self.lane.log.end_epoch = 1, 0
        self.target = PartitionId("t", TopicId(uuid_text(TOPIC)), partition)
        self.outlet: TargetOutlet | None = None
        self.outlet_round = -1
        self.connections = 0
        self.answers: list[tuple[int, int, int]] = []
        self.held_s = 0.0
        self.steps = 0
        """How often it heard of successes."""
        self.tell: Callable[[Input], None] = self.take

    def take(self, signal: Input) -> None:
        if isinstance(signal, ProduceAccepted):
            accepted = zip(signal.batches, signal.base_offsets, strict=True)
            self.answers += [(batch.first, 0, base_offset) for batch, base_offset in accepted]
            self.steps += 1
            return
        if isinstance(signal, TargetFar):
            self.lane.is_far = signal.is_far
            return
        assert isinstance(signal, ProduceAnswer)
        self.answers.append((signal.batch.first, signal.error, signal.base_offset))
        self.held_s = signal.held_s

    def batches(self, *ordinals: int, number: int = 1) -> Produce:
        self.lane.round = number
        data = bytearray(b"batch")
        return Produce(number, [Batch(first, 1, first, first + 1, data, 0, 5, 0, None) for first in ordinals])


class Rig:
    def __init__(self) -> None:
        self.view = FakeView()
        self.may_write = True
        self.target = TargetProducer(as_any(self.view), lambda: self.may_write, 1_000)

    @property
    def pipe(self) -> FakePipe:
        return self.view.pipe("produce")

    async def produce(self, sender: Sender, produce: Produce) -> None:
        self.target.produce(as_any(sender), produce)
        await self.settle()

    async def settle(self) -> None:
        for _ in range(6):
            await asyncio.sleep(0)


@pytest.fixture
async def rig() -> Rig:
    return Rig()


async def test_lanes_share_requests_and_are_kept_apart(rig: Rig) -> None:
    one, other = Sender(0), Sender(1)
    rig.target.produce(as_any(one), one.batches(10, 11))
    rig.target.produce(as_any(other), other.batches(20))
    await rig.settle()
    assert len(rig.pipe.requests) == 2
    rig.pipe.answer(produced(TOPIC, (1, 0, 500), (0, 0, 400)))
    rig.pipe.answer(produced(TOPIC, (0, 6, -1)))
    assert one.answers == [(10, 0, 400), (11, 6, -1)]
    assert other.answers == [(20, 0, 500)]


async def test_a_lane_gets_answers_that_arrive_together_in_one_step_and_failures_in_their_turn(rig: Rig) -> None:
    one, other = Sender(0), Sender(1)
    rig.target.produce(as_any(one), one.batches(0, 1, 2, 3))
    rig.target.produce(as_any(other), other.batches(0, 1))
    await rig.settle()
    responses = [
        produced(TOPIC, (0, 0, 0), (1, 0, 0)),
        produced(TOPIC, (0, 0, 1), (1, 0, 1)),
        produced(TOPIC, (0, 6, -1)),
    ]
    rig.pipe.answer(*responses, produced(TOPIC, (0, 0, 3)))
    assert one.answers == [(0, 0, 0), (1, 0, 1), (2, 6, -1), (3, 0, 3)]
    assert other.answers == [(0, 0, 0), (1, 0, 1)]
    assert (one.steps, other.steps) == (2, 1)


async def test_for_many_answers_it_sleeps_longer_but_looks_soon_at_those_that_came(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(*range(LEAST_REQUESTS)))
    pipe, wakes = rig.pipe, [rig.pipe.wakes_for]
    assert pipe.wakes_for > 1
    await until(lambda: pipe.wakes_for == 1)
    for first in range(LEAST_REQUESTS):
        pipe.answer(produced(TOPIC, (0, 0, first)))
        wakes.append(pipe.wakes_for)
        assert pipe.wakes_for <= max(1, 33 * len(pipe.requests))
    assert len(set(wakes)) > 2
    assert pipe.wakes_for == 1


async def test_successes_are_reported_though_the_connection_ends_in_the_same_read(rig: Rig) -> None:
    one, other = Sender(0), Sender(1)
    rig.target.produce(as_any(one), one.batches(0, 1))
    rig.target.produce(as_any(other), other.batches(0))
    await rig.settle()
    rig.pipe.on_read = None
    rig.pipe.answer(produced(TOPIC, (0, 0, 0), (1, 0, 0)))
    assert one.answers == other.answers == []
    rig.pipe.lose()
    assert one.answers == [(0, 0, 0), (1, UNKNOWN, -1)]
    assert other.answers == [(0, 0, 0)]


async def test_a_lost_connection_is_doubt_for_what_was_sent_and_none_for_what_was_not(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(*range(LEAST_REQUESTS + 3)))
    assert len(rig.pipe.requests) == LEAST_REQUESTS
    rig.pipe.lose()
    expected = [(first, UNKNOWN, -1) for first in range(LEAST_REQUESTS)]
    assert sender.answers == expected + [(first, NOT_SENT, -1) for first in range(LEAST_REQUESTS, LEAST_REQUESTS + 3)]
    assert rig.view.refreshes > 0


async def test_a_live_lane_goes_ahead_of_what_waits_for_the_window_of_bytes(rig: Rig) -> None:
    bulk, live = Sender(0), Sender(1)
    await rig.produce(live, live.batches(0))
    rig.pipe.answer(produced(TOPIC, (1, 0, 0)))
    data = bytearray(REQUEST_BYTES)
    batches = [Batch(first, 1, first, first + 1, data, 0, len(data), 0, None) for first in range(12)]
    await rig.produce(bulk, Produce(1, batches))
    sent = LEAST_BYTES // REQUEST_BYTES
    assert len(rig.pipe.requests) == sent, "in all there is room for 32 requests"
    await rig.produce(live, live.batches(1))
    assert len(rig.pipe.requests) == sent
    rig.pipe.answer(produced(TOPIC, (0, 0, 0)))
    for first in range(1, sent):
        rig.pipe.answer(produced(TOPIC, (0, 0, first)))
    await rig.settle()
    rig.pipe.answer(produced(TOPIC, (0, 0, sent), (1, 0, 1)))
    assert live.answers == [(0, 0, 0), (1, 0, 1)]
    assert [first for first, _, _ in bulk.answers] == list(range(sent + 1))


async def test_a_round_ends_with_its_connection(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(0))
    rig.pipe.answer(produced(TOPIC, (0, 0, 0)))
    rig.pipe.lose()
    await rig.produce(sender, sender.batches(1))
    assert sender.answers == [(0, 0, 0), (1, NOT_SENT, -1)]
    await rig.produce(sender, sender.batches(1, number=2))
    rig.pipe.answer(produced(TOPIC, (0, 0, 1)))
    assert sender.answers[2:] == [(1, 0, 1)]


async def test_another_leader_epoch_than_that_of_the_round_gets_nothing(rig: Rig) -> None:
    sender = Sender(0)
    rig.view.leaders[0] = Leader(1, 3)
    await rig.produce(sender, sender.batches(0))
    assert rig.pipe.requests == []
    assert sender.answers == [(0, NOT_SENT, -1)]


async def test_batches_of_an_earlier_round_are_not_sent(rig: Rig) -> None:
    sender = Sender(0)
    rig.target.produce(as_any(sender), sender.batches(0, 1))
    sender.lane.round = 2
    await rig.settle()
    assert rig.pipe.requests == []
    assert sender.answers == []


async def test_without_a_lease_nothing_is_written_and_the_order_stays(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(0))
    rig.may_write = False
    await rig.produce(sender, sender.batches(1))
    assert len(rig.pipe.requests) == 1
    rig.pipe.answer(produced(TOPIC, (0, 0, 0)))
    await rig.settle()
    assert sender.answers == [(0, 0, 0)]
    rig.may_write = True
    await until(lambda: len(sender.answers) == 2)
    assert rig.pipe.requests == []
    assert sender.answers == [(0, 0, 0), (1, NOT_SENT, -1)]


async def test_a_connection_whose_session_ends_first_answers_what_it_owes(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(0))
    former = rig.pipe
    rig.view.link(1, "produce").is_overdue = True
    await rig.produce(sender, sender.batches(1))
    assert len(former.requests) == 1
    former.answer(produced(TOPIC, (0, 0, 0)))
    await rig.settle()
    assert sender.answers == [(0, 0, 0), (1, NOT_SENT, -1)]
    await rig.produce(sender, sender.batches(1, number=2))
    assert rig.pipe is not former
    assert len(rig.pipe.requests) == 1


async def test_an_answer_that_is_none_ends_the_connection(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(0, 1))
    rig.pipe.answer(b"\xff\xff")
    assert sender.answers == [(0, UNKNOWN, -1), (1, UNKNOWN, -1)]


async def test_how_long_a_quota_holds_us_back_is_known(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(0))
    assert sender.outlet is not None
    assert sender.outlet.throttle.left_s == 0
    rig.pipe.answer(produced(TOPIC, (0, 0, 10), throttle_ms=3_600_000))
    assert sender.answers == [(0, 0, 10)]
    assert 0 < sender.outlet.throttle.left_s <= 3_600
    assert rig.view.produces.status().throttled_s == 3_600


async def test_a_throttled_connection_that_is_lost_is_read_later(rig: Rig) -> None:
    sender = Sender(0)
    await rig.produce(sender, sender.batches(0, 1))
    rig.pipe.answer(produced(TOPIC, (0, 0, 10), throttle_ms=3_600_000))
    rig.pipe.lose()
    assert sender.answers == [(0, 0, 10), (1, UNKNOWN, -1)]
    assert 0 < sender.held_s <= 3_600


async def test_a_partition_that_the_answer_leaves_out_is_in_doubt(rig: Rig) -> None:
    one, other = Sender(0), Sender(1)
    rig.target.produce(as_any(one), one.batches(0))
    rig.target.produce(as_any(other), other.batches(0))
    await rig.settle()
    rig.pipe.answer(produced(TOPIC, (1, 0, 9)))
    assert one.answers == [(0, UNKNOWN, -1)]
    assert other.answers == [(0, 0, 9)]


async def test_a_lane_learns_whether_its_broker_is_far_away(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("mirrord.replication.host.producer.time.monotonic", lambda: now[0])
    sender = Sender(0)
    heard: list[Input] = []

    def take(signal: Input) -> None:
        heard.append(signal)
        if isinstance(signal, TargetFar):
            sender.lane.is_far = signal.is_far

    sender.tell = take
    for first, took_s in enumerate((0.1, 0.1, 0.001, 0.1)):
        await rig.produce(sender, sender.batches(first))
        now[0] += took_s
        rig.pipe.answer(produced(TOPIC, (0, 0, first)))
    signals: list[bool | int] = []
    for signal in heard:
        assert isinstance(signal, TargetFar | ProduceAccepted)
        signals.append(signal.is_far if isinstance(signal, TargetFar) else signal.batches[0].first)
    assert signals == [True, 0, 1, False, 2, 3]
