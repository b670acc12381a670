"""What a target broker guarantees (docs/explanation/broker-behaviour.md): the same tests for the fake and real ones.

`Partition` and `Target` are what the tests need; `tests/sim/test_contract.py` implements them with the fake,
`tests/kafka/test_broker_contract.py` with brokers of the lab. Everything that a lane relies on belongs here.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import google_crc32c
import pytest

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import CONTROL, HEAD_OFFSET, HEADER, TRANSACTIONAL, Header

DAY_MS = 86_400_000
OLD_MS = 10 * DAY_MS
"""An age at which every broker forgets a producer."""
LAST_SEQUENCE = 2**31 - 1
COUNT = 10
REMEMBERED = 5
APPENDED_S = 20.0
"""How many batches of a producer a broker recognizes."""

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(frozen=True)
class Batch:
    """A batch to be produced; the records differ with `content`."""

    producer: int
    sequence: int
    count: int = COUNT
    epoch: int = 0
    age_ms: int = 0
    content: int = 0

    def next(self, **changes: Any) -> "Batch":
        """The batch that follows."""
        return replace(self, sequence=(self.sequence + self.count) % (LAST_SEQUENCE + 1), **changes)


class Answered(NamedTuple):
    """The answer to a produce request."""

    error: int
    base_offset: int


@dataclass(frozen=True)
class Stored:
    """A batch that readers see."""

    base: int
    count: int
    producer: int
    epoch: int
    sequence: int


class End(NamedTuple):
    """The answer to OffsetForLeaderEpoch or, with the high watermark as its end, to ListOffsets."""

    error: int
    end: int


class Partition(ABC):
    """One partition. `at` names a broker; without it the leader is asked, in its own leader epoch."""

    leader: int
    follower: int

    @abstractmethod
    def now_ms(self) -> int: ...

    @abstractmethod
    def build(self, batch: Batch) -> bytes:
        """A whole record batch."""

    @abstractmethod
    async def begin(self, data: bytes, at: int | None = None) -> asyncio.Future[Answered]:
        """Send these bytes as the records of a produce request that all replicas must acknowledge."""

    @abstractmethod
    async def producer(self) -> int:
        """A new producer id."""

    @abstractmethod
    async def leader_epoch(self) -> int: ...

    @abstractmethod
    async def end(self, epoch: int | None = None, at: int | None = None) -> End:
        """OffsetForLeaderEpoch: the true end."""

    @abstractmethod
    async def visible(self, epoch: int | None = None, at: int | None = None) -> End:
        """ListOffsets: the high watermark."""

    @abstractmethod
    async def last(self, producer: int, at: int | None = None) -> tuple[int, int] | None:
        """DescribeProducers: last sequence and time of the last batch."""

    @abstractmethod
    async def read(self) -> list[Stored]:
        """All that a consumer sees."""

    @abstractmethod
    async def reconnect(self) -> None:
        """Abandon all connections."""

    @abstractmethod
    async def tick(self, producer: int) -> None:
        """The brokers look for expired producers, and this one is expired."""

    @abstractmethod
    async def delete_records(self, below: int) -> None: ...

    @abstractmethod
    async def delete_topic(self) -> None: ...

    @abstractmethod
    async def create_topic(self) -> None:
        """Create the topic once more, under the same name."""

    @abstractmethod
    async def elect(self) -> None:
        """Make the other broker the leader; it lacks no acknowledged record."""

    @abstractmethod
    async def elect_unclean(self, lost: Callable[[], Awaitable[None]]) -> None:
        """Make the other broker the leader; it lacks what `lost` produces. The former leader follows it."""

    @abstractmethod
    async def pause(self, broker: int) -> None:
        """Suspend the broker; its connections stay open."""

    @abstractmethod
    async def resume(self, broker: int) -> None: ...

    async def append(self, data: bytes, at: int | None = None) -> Answered:
        return await (await self.begin(data, at))

    async def produce(self, batch: Batch, at: int | None = None) -> Answered:
        return await self.append(self.build(batch), at)

    async def fill(self, first: Batch, batches: int) -> list[Batch]:
        """Produce this many batches that follow each other, at the end of the log."""
        sent = [first]
        while len(sent) < batches:
            sent.append(sent[-1].next())
        base = (await self.end()).end
        for batch in sent:
            assert await self.produce(batch) == Answered(0, base)
            base += batch.count
        return sent

    async def last_sequence(self, producer: int, at: int | None = None) -> int | None:
        found = await self.last(producer, at)
        return found[0] if found else None


class Target(ABC):
    """A cluster."""

    @abstractmethod
    async def partition(self) -> Partition:
        """The one partition of a new topic, on two brokers if there are two."""

    @abstractmethod
    async def restart(self) -> None:
        """Kill every broker with kill -9 and start it again."""


def altered(data: bytes, *, attributes: int = 0, claimed: int = 0, base: int = 0) -> bytes:
    """The same records with another header, whose checksum is right."""
    header = Header(*HEADER.unpack_from(data))
    batch = bytearray(data)
    changed = header._replace(
        base_offset=base,
        attributes=header.attributes | attributes,
        last_offset_delta=header.last_offset_delta + claimed,
        crc=0,
    )
    HEADER.pack_into(batch, 0, *changed)
    HEADER.pack_into(batch, 0, *changed._replace(crc=google_crc32c.value(bytes(batch[HEAD_OFFSET:]))))
    return bytes(batch)


def damaged(data: bytes) -> bytes:
    """The same batch with one bit of the last record flipped."""
    return data[:-1] + bytes([data[-1] ^ 1])


class BrokerContract:
    """Tests with one broker. Needs the fixture `target`."""

    async def test_the_next_batch_is_taken_from_any_connection(self, target: Target) -> None:
        partition = await target.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        await partition.reconnect()
        assert await partition.produce(last.next()) == Answered(0, 20)

    async def test_the_last_five_batches_are_recognized(self, target: Target) -> None:
        partition = await target.partition()
        sent = await partition.fill(Batch(await partition.producer(), 0), 7)
        await partition.reconnect()
        for at, batch in reversed(list(enumerate(sent))):
            expected = Answered(0, at * COUNT) if at >= len(sent) - REMEMBERED else Answered(OUT_OF_ORDER, -1)
            assert await partition.produce(batch) == expected
            assert await partition.produce(replace(batch, content=1)) == expected, "the content is not compared"
        assert [(stored.base, stored.sequence) for stored in await partition.read()] == [
            (at * COUNT, batch.sequence) for at, batch in enumerate(sent)
        ]
        assert await partition.produce(sent[-1].next()) == Answered(0, 70)

    async def test_a_gap_or_an_overlap_is_refused(self, target: Target) -> None:
        partition = await target.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        for wrong in (last.next().next(), last.next(count=3).next(), replace(last, count=4), replace(last, count=11)):
            assert await partition.produce(wrong) == Answered(OUT_OF_ORDER, -1)
        assert await partition.produce(replace(last, sequence=14, count=6)) == Answered(OUT_OF_ORDER, -1)
        assert len(await partition.read()) == 2
        assert await partition.produce(last.next()) == Answered(0, 20)

    async def test_sequences_wrap_around(self, target: Target) -> None:
        partition = await target.partition()
        producer = await partition.producer()
        across = Batch(producer, LAST_SEQUENCE - 3)
        assert await partition.produce(across) == Answered(0, 0)
        assert await partition.last_sequence(producer) == 5
        assert await partition.produce(across) == Answered(0, 0)
        assert await partition.produce(replace(across, sequence=6)) == Answered(0, 10)
        exact = Batch(await partition.producer(), LAST_SEQUENCE - COUNT + 1)
        assert await partition.produce(exact) == Answered(0, 20)
        assert await partition.last_sequence(exact.producer) == LAST_SEQUENCE
        assert await partition.produce(replace(exact, sequence=1)) == Answered(OUT_OF_ORDER, -1)
        assert await partition.produce(replace(exact, sequence=0)) == Answered(0, 30)

    async def test_without_producer_state_any_sequence_is_accepted(self, target: Target) -> None:
        partition = await target.partition()
        assert await partition.produce(Batch(await partition.producer(), 5_000_000)) == Answered(0, 0)
        assert await partition.produce(Batch(10**12, 77, epoch=3)) == Answered(0, 10), "an id that nobody was given"
        assert await partition.produce(Batch(10**12, 87, epoch=3)) == Answered(0, 20)

    async def test_another_epoch_begins_at_zero(self, target: Target) -> None:
        partition = await target.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        assert await partition.produce(last.next(epoch=1)) == Answered(OUT_OF_ORDER, -1)
        assert await partition.produce(replace(last, sequence=0, epoch=1)) == Answered(0, 20)
        for fenced in (last, last.next(), replace(last, sequence=10)):
            assert await partition.produce(fenced) == Answered(ErrorCode.INVALID_PRODUCER_EPOCH, -1)
        assert await partition.produce(replace(last, epoch=1)) == Answered(0, 30), "10 follows 0 to 9"
        assert await partition.last_sequence(last.producer) == 19

    @pytest.mark.parametrize(
        ("wrong", "error"),
        [
            (lambda data: altered(data, attributes=TRANSACTIONAL), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
            (lambda data: altered(data, attributes=CONTROL), ErrorCode.INVALID_RECORD),
            (lambda data: altered(data, claimed=3), ErrorCode.INVALID_RECORD),
            (lambda data: altered(data, base=7), ErrorCode.INVALID_RECORD),
            (lambda data: data + data, ErrorCode.INVALID_RECORD),
            (damaged, ErrorCode.CORRUPT_MESSAGE),
        ],
        ids=["transactional", "control", "count and span differ", "a base offset", "two batches", "damaged"],
    )
    async def test_an_invalid_batch_is_refused(
        self, target: Target, wrong: Callable[[bytes], bytes], error: ErrorCode
    ) -> None:
        partition = await target.partition()
        batch = Batch(await partition.producer(), 0)
        assert await partition.append(wrong(partition.build(batch))) == Answered(error, -1)
        assert await partition.end() == End(0, 0)
        assert await partition.last(batch.producer) is None
        assert await partition.produce(batch) == Answered(0, 0)

    async def test_a_record_time_far_ahead_is_refused(self, target: Target) -> None:
        partition = await target.partition()
        batch = Batch(await partition.producer(), 0)
        assert await partition.produce(replace(batch, age_ms=-2 * 3_600_000)) == Answered(
            ErrorCode.INVALID_TIMESTAMP, -1
        )
        assert await partition.produce(replace(batch, age_ms=-3_000_000)) == Answered(0, 0)

    async def test_after_a_refused_first_batch_the_second_is_accepted(self, target: Target) -> None:
        partition = await target.partition()
        first = Batch(await partition.producer(), 0)
        assert (await partition.append(damaged(partition.build(first)))).error == ErrorCode.CORRUPT_MESSAGE
        assert await partition.produce(first.next()) == Answered(0, 0), "only the base offset shows the hole"
        assert await partition.produce(first) == Answered(OUT_OF_ORDER, -1)

    async def test_the_last_batch_of_a_producer_is_reported(self, target: Target) -> None:
        partition = await target.partition()
        producer, other = await partition.producer(), await partition.producer()
        assert await partition.last(producer) is None
        for sequence, age_ms in ((0, 0), (10, OLD_MS), (20, 5000)):
            batch = Batch(producer, sequence, age_ms=age_ms)
            assert (await partition.produce(batch)).error == 0
            last_sequence, newest_ms = await partition.last(producer) or (-1, -1)
            assert last_sequence == sequence + COUNT - 1
            assert abs(partition.now_ms() - age_ms - newest_ms) < 60_000, "of the last batch, not the newest of all"
        assert await partition.last(other) is None

    async def test_an_end_is_reported_in_the_right_epoch_only(self, target: Target) -> None:
        partition = await target.partition()
        await partition.fill(Batch(await partition.producer(), 0), 2)
        epoch = await partition.leader_epoch()
        for ask in (partition.end, partition.visible):
            assert await ask() == End(0, 20)
            assert await ask(epoch) == End(0, 20)
            assert await ask(epoch + 1) == End(ErrorCode.UNKNOWN_LEADER_EPOCH, -1)

    async def test_a_topic_that_was_created_again_has_no_producer_state(self, target: Target) -> None:
        partition = await target.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        gone = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        await partition.delete_topic()
        assert (await partition.produce(last.next())).error in gone
        assert (await partition.end()).error in gone
        assert (await partition.visible()).error in gone
        await partition.create_topic()
        assert await partition.last(last.producer) is None
        assert await partition.produce(replace(last, sequence=50)) == Answered(0, 0)

    async def test_producer_state_after_a_kill(self, target: Target) -> None:
        young, emptied, old, mixed = [await target.partition() for _ in range(4)]
        producer = await young.producer()
        sent = await young.fill(Batch(producer, 0), 3)
        await emptied.fill(Batch(producer, 0), 3)
        await emptied.delete_records(30)
        assert await emptied.read() == []
        assert await emptied.last_sequence(producer) == 29
        await old.fill(Batch(producer, 0, age_ms=OLD_MS), 3)
        await mixed.fill(Batch(producer, 0), 2)
        assert (await mixed.produce(Batch(producer, 20, age_ms=OLD_MS))).error == 0
        await target.restart()
        assert await young.last_sequence(producer) == 29
        assert await young.produce(sent[2]) == Answered(0, 20)
        for unknown in (sent[1], sent[0], sent[2].next().next()):
            assert await young.produce(unknown) == Answered(OUT_OF_ORDER, -1), "only the very last batch is known again"
        assert await young.produce(sent[2].next()) == Answered(0, 30)
        assert await emptied.last_sequence(producer) == 29
        assert await emptied.produce(sent[2]) == Answered(0, 20), "although nobody can read it any more"
        assert await emptied.produce(sent[2].next()) == Answered(0, 30)
        for forgotten in (old, mixed):
            assert await forgotten.last(producer) is None
            assert await forgotten.produce(sent[2]) == Answered(0, 30), "a repeat is doubled"
            assert (await forgotten.end()).end == 40


class ForgettingContract:
    """Tests with a broker that looks for expired producers all the time. Needs the fixture `ticking`."""

    async def test_old_records_make_a_producer_forgotten(self, ticking: Target) -> None:
        partition = await ticking.partition()
        young, old, mixed = [await partition.producer() for _ in range(3)]
        kept = await partition.fill(Batch(young, 0, age_ms=DAY_MS // 2), 2)
        assert (await partition.produce(Batch(mixed, 0))).error == 0
        assert (await partition.produce(Batch(mixed, 10, age_ms=OLD_MS))).error == 0
        assert (await partition.produce(Batch(old, 0, age_ms=OLD_MS))).error == 0
        await partition.tick(old)
        assert await partition.last(mixed) is None, "the last batch counts, not the youngest"
        assert await partition.last_sequence(young) == 19
        assert await partition.produce(kept[0]) == Answered(0, 0)
        assert await partition.produce(kept[1].next()) == Answered(0, 50)
        assert await partition.produce(Batch(old, 0, age_ms=OLD_MS)) == Answered(0, 60), "a repeat is doubled"
        assert await partition.produce(Batch(mixed, 500)) == Answered(0, 70), "a gap is taken"

    async def test_the_next_batch_of_a_forgotten_producer_may_be_refused(self, ticking: Target) -> None:
        partition = await ticking.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        assert (await partition.produce(last.next(age_ms=OLD_MS))).error == 0
        await partition.tick(last.producer)
        assert await partition.produce(Batch(last.producer, 0)) == Answered(0, 30), "a zombie's old sequence"
        assert await partition.produce(Batch(last.producer, 30)) == Answered(OUT_OF_ORDER, -1), "the owner's next one"
        assert await partition.last_sequence(last.producer) == 9


class LeadershipContract:
    """Tests with two brokers. Needs the fixture `two`."""

    async def test_a_follower_reports_producers_and_nothing_else(self, two: Target) -> None:
        partition = await two.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        at = partition.follower
        assert await partition.produce(last.next(), at) == Answered(NOT_LEADER, -1)
        assert await partition.end(at=at) == End(NOT_LEADER, -1)
        assert await partition.visible(at=at) == End(NOT_LEADER, -1)
        assert await partition.last_sequence(last.producer, at) == 19

    async def test_an_uncommitted_tail_counts_in_the_end_but_is_not_read(self, two: Target) -> None:
        partition = await two.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        follower = partition.follower
        await partition.pause(follower)
        try:
            waiting = await partition.begin(partition.build(last.next()))
            repeat = await partition.begin(partition.build(last.next()))
            # Sent does not mean appended: the question takes another way than the batch.
            deadline = time.monotonic() + APPENDED_S
            while await partition.end() != End(0, 30):
                assert time.monotonic() < deadline, "the leader does not append"
            assert await partition.last_sequence(last.producer) == 29
            assert await partition.visible() == End(0, 20)
            assert len(await partition.read()) == 2
            assert not waiting.done()
            assert not repeat.done(), "a repeat, too, is acknowledged only when it is committed"
        finally:
            await partition.resume(follower)
        assert await waiting == Answered(0, 20)
        assert await repeat == Answered(0, 20)
        assert await partition.visible() == End(0, 30)

    async def test_a_new_leader_knows_what_the_former_one_knew(self, two: Target) -> None:
        young, old = [await two.partition() for _ in range(2)]
        producer = await young.producer()
        sent = await young.fill(Batch(producer, 0), 7)
        await old.fill(Batch(producer, 0, age_ms=OLD_MS), 7)
        former, epoch = young.leader, await young.leader_epoch()
        for partition in (young, old):
            await partition.elect()
            assert await partition.last_sequence(producer) == 69
            for at, batch in enumerate(sent):
                expected = Answered(0, at * COUNT) if at >= len(sent) - REMEMBERED else Answered(OUT_OF_ORDER, -1)
                assert await partition.produce(batch) == expected
            assert await partition.produce(sent[-1].next()) == Answered(0, 70)
        assert young.leader != former
        assert await young.leader_epoch() > epoch
        for ask in (young.end, young.visible):
            assert await ask(epoch) == End(ErrorCode.FENCED_LEADER_EPOCH, -1)
            assert await ask() == End(0, 80)
        assert await young.produce(sent[-1].next().next(), former) == Answered(NOT_LEADER, -1)

    async def test_a_batch_that_a_deposed_leader_takes_is_not_acknowledged(self, two: Target) -> None:
        partition = await two.partition()
        *_, last = await partition.fill(Batch(await partition.producer(), 0), 2)
        deposed = partition.leader
        await partition.pause(deposed)
        try:
            late = await partition.begin(partition.build(last.next(content=1, count=4)), deposed)
            await partition.elect()
            visible = await partition.visible()
            assert visible in {End(ErrorCode.OFFSET_NOT_AVAILABLE, -1), End(0, 20)}, "never less than was acknowledged"
            taken = await partition.begin(partition.build(last.next(content=2)))
        finally:
            await partition.resume(deposed)
        assert (await late).error == NOT_LEADER
        assert await taken == Answered(0, 20)
        assert [(stored.sequence, stored.count) for stored in await partition.read()] == [(0, 10), (10, 10), (20, 10)]
        assert await partition.last_sequence(last.producer, deposed) == 29
        await partition.elect()
        assert await partition.produce(last.next()) == Answered(0, 20)
        assert await partition.produce(last.next(count=4)) == Answered(OUT_OF_ORDER, -1)
        assert await partition.produce(last.next().next()) == Answered(0, 30)

    async def test_an_unclean_election_removes_acknowledged_batches(self, two: Target) -> None:
        partition = await two.partition()
        producer = await partition.producer()
        *_, last = await partition.fill(Batch(producer, 0), 2)
        lost = last.next()

        async def lose() -> None:
            await partition.fill(lost, 2)

        await partition.elect_unclean(lose)
        assert await partition.end() == await partition.visible() == End(0, 20)
        assert await partition.last_sequence(producer) == 19, "went back"
        assert await partition.produce(lost.next().next()) == Answered(OUT_OF_ORDER, -1)
        assert await partition.produce(lost.next()) == Answered(OUT_OF_ORDER, -1), "no repeat either"
        assert await partition.produce(replace(lost, count=4)) == Answered(0, 20)
        await partition.elect()
        assert await partition.last_sequence(producer) == 23, "the former leader forgot with its records"
        assert await partition.produce(last) == Answered(0, 10)
        assert await partition.produce(replace(lost, sequence=24, count=6)) == Answered(0, 24)
