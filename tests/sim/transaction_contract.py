"""What a target broker does about transactions of other clients: the same tests for the fake and real ones.

Nothing that these clients do keeps a broker from accepting the lane's batches. In Kafka, the classes are in
`org.apache.kafka.storage.internals.log` unless stated otherwise.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from tests.sim.contract import COUNT, OLD_MS, Answered, Batch, End, Partition, Stored, Target


class Described(NamedTuple):
    """What a broker tells about a producer (DescribeProducers, KIP-664)."""

    newest_ms: int
    """The timestamp of its last batch, or of its last marker."""
    begun: int
    """The first offset of its open transaction, or -1."""


class TransactionalClient(ABC):
    """Another client, which writes to the partition in transactions (KIP-98)."""

    producer: int

    @abstractmethod
    async def write(self, count: int, *, age_ms: int = 0) -> None:
        """Write a batch of so many records. If no transaction is open, begin one."""

    @abstractmethod
    async def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction. The marker need not be in the log yet."""


class TransactionalPartition(Partition):
    """A partition to which other clients write in transactions."""

    @abstractmethod
    async def client(self) -> TransactionalClient: ...

    @abstractmethod
    async def stable(self) -> int:
        """ListOffsets of a reader of committed records: the last stable offset."""

    @abstractmethod
    async def described(self, producer: int, at: int | None = None) -> Described | None: ...

    @abstractmethod
    async def read_all(self) -> list[Stored]:
        """All batches up to the high watermark, as a reader of uncommitted records gets them. A marker is one of a
        single record."""

    @abstractmethod
    async def read_committed(self) -> list[Stored]:
        """The batches with records that a reader of committed records sees."""

    @abstractmethod
    async def marked(self, end: int) -> None:
        """Wait until a coordinator has written its marker, and the log ends here."""


async def _partition(target: Target) -> TransactionalPartition:
    partition = await target.partition()
    assert isinstance(partition, TransactionalPartition)
    return partition


def _bases(batches: list[Stored], producer: int | None = None) -> list[int]:
    return [each.base for each in batches if producer is None or each.producer == producer]


class TransactionContract:
    """Tests with one broker. Needs the fixture `target`."""

    async def test_a_marker_takes_an_offset(self, target: Target) -> None:
        """`ProducerAppendInfo.appendEndTxnMarker`: the state of other producers does not change."""
        partition = await _partition(target)
        first = Batch(await partition.producer(), 0)
        client = await partition.client()
        assert await partition.produce(first) == Answered(0, 0)
        await client.write(3)
        assert await partition.produce(first.next()) == Answered(0, 13)
        await client.end(commit=True)
        await partition.marked(24)
        assert await partition.last_sequence(first.producer) == 2 * COUNT - 1
        assert await partition.produce(first.next()) == Answered(0, 13), "a repeat is recognized behind a marker"
        assert await partition.produce(first.next().next()) == Answered(0, 24)
        found = await partition.read_all()
        assert _bases(found, first.producer) == [0, 13, 24]
        assert [(each.base, each.count, each.sequence) for each in found if each.producer == client.producer] == [
            (10, 3, 0),
            (23, 1, -1),
        ]

    async def test_an_open_transaction_holds_the_last_stable_offset_only(self, target: Target) -> None:
        """`ProducerStateManager.firstUnstableOffset`; ListOffsets and OffsetForLeaderEpoch do not depend on it."""
        partition = await _partition(target)
        first = Batch(await partition.producer(), 0)
        client = await partition.client()
        assert await partition.produce(first) == Answered(0, 0)
        await client.write(3)
        assert await partition.produce(first.next()) == Answered(0, 13), "it is acknowledged"
        assert await partition.end() == await partition.visible() == End(0, 23)
        assert await partition.stable() == 10
        assert _bases(await partition.read_committed()) == [0]
        assert _bases(await partition.read_all()) == [0, 10, 13]
        known = await partition.described(client.producer)
        assert known is not None
        assert known.begun == 10
        own = await partition.described(first.producer)
        assert own is not None
        assert own.begun == -1
        await client.end(commit=True)
        await partition.marked(24)
        assert await partition.stable() == 24
        assert _bases(await partition.read_committed()) == [0, 10, 13]
        known = await partition.described(client.producer)
        assert known is None or known.begun == -1

    async def test_aborted_records_stay_in_the_log(self, target: Target) -> None:
        """`TransactionIndex`: a fetch of committed records lists the aborted transactions, and the reader skips their
        batches. Batches of the lane between them are not part of them."""
        partition = await _partition(target)
        first = Batch(await partition.producer(), 0)
        one, other = await partition.client(), await partition.client()
        await one.write(2)
        assert await partition.produce(first) == Answered(0, 2)
        await other.write(2)
        await one.write(2)
        assert await partition.produce(first.next()) == Answered(0, 16)
        await one.end(commit=False)
        await partition.marked(27)
        assert await partition.stable() == 12, "the other transaction is still open"
        await other.end(commit=True)
        await partition.marked(28)
        assert await partition.stable() == 28
        assert _bases(await partition.read_all()) == [0, 2, 12, 14, 16, 26, 27]
        assert _bases(await partition.read_committed()) == [2, 12, 16]


class IdleContract:
    """Tests with a broker that looks for expired producers all the time. Needs the fixture `ticking`."""

    async def test_a_producer_with_an_open_transaction_is_not_forgotten(self, ticking: Target) -> None:
        """`ProducerStateManager.isProducerExpired`. A marker counts as well: its timestamp is that of its append."""
        partition = await _partition(ticking)
        old = Batch(await partition.producer(), 0, age_ms=OLD_MS)
        is_open, ended = await partition.client(), await partition.client()
        await ended.write(1, age_ms=OLD_MS)
        await ended.end(commit=True)
        await partition.marked(2)
        await is_open.write(1, age_ms=OLD_MS)
        assert await partition.produce(old) == Answered(0, 3)
        await partition.tick(old.producer)
        known = await partition.described(is_open.producer)
        assert known is not None
        assert (known.begun, partition.now_ms() - known.newest_ms > OLD_MS // 2) == (2, True)
        assert await partition.stable() == 2
        known = await partition.described(ended.producer)
        assert known is not None
        assert partition.now_ms() - known.newest_ms < OLD_MS // 2
        await is_open.end(commit=False)
        await partition.marked(14)
        assert await partition.stable() == 14


class TransferContract:
    """Tests with two brokers. Needs the fixture `two`."""

    async def test_a_new_leader_knows_the_open_transactions(self, two: Target) -> None:
        """`UnifiedLog.appendAsFollower` updates the producer state as the leader does."""
        partition = await _partition(two)
        first = Batch(await partition.producer(), 0)
        client = await partition.client()
        await client.write(3)
        assert await partition.produce(first) == Answered(0, 3)
        for at in (partition.leader, partition.follower):
            known = await partition.described(client.producer, at)
            assert known is not None
            assert known.begun == 0
        await partition.elect()
        assert await partition.stable() == 0
        assert await partition.produce(first.next()) == Answered(0, 13)
        await client.end(commit=False)
        await partition.marked(24)
        assert await partition.stable() == 24
        assert _bases(await partition.read_committed()) == [3, 13]
        assert await partition.produce(first.next().next()) == Answered(0, 24)

    async def test_a_transaction_hangs_if_an_election_removes_its_marker(self, two: Target) -> None:
        """`ProducerStateManager.truncateAndReload`. The coordinator does not write the marker again (KIP-664)."""
        partition = await _partition(two)
        first = Batch(await partition.producer(), 0)
        client = await partition.client()
        await client.write(3)
        assert await partition.produce(first) == Answered(0, 3)

        async def lose() -> None:
            await client.end(commit=True)
            await partition.marked(14)
            assert await partition.stable() == 14

        await partition.elect_unclean(lose)
        assert await partition.end() == await partition.visible() == End(0, 13)
        assert await partition.stable() == 0
        known = await partition.described(client.producer)
        assert known is not None
        assert known.begun == 0
        assert await partition.produce(first.next()) == Answered(0, 13)
        assert await partition.stable() == 0
