"""Requests for the beginnings and the ends of logs: which partitions count, and what happens when leaders move."""

import asyncio
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client import log_offsets as module
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.connection import AuthenticationFailed, Unreachable
from mirrord.kafka.client.log_offsets import LogOffsets, log_offsets, offsets_at, offsets_request
from mirrord.kafka.client.reconnecting_link import Backoff
from mirrord.kafka.protocol.api_versions import LIST_OFFSETS, Api
from mirrord.kafka.protocol.errors import ErrorCode, WireError
from mirrord.kafka.protocol.list_offsets import EARLIEST, LATEST, OffsetQuestion
from mirrord.kafka.protocol.metadata import Broker, Metadata, Partition, TopicMetadata
from mirrord.kafka.protocol.primitives import NO_TAGS, Reader, compact_array, compact_string
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicId, TopicPartition

CLUSTER = ClusterConfig(("host:9000",), Security())
ORDERS, BILLS = TopicId("orders-id"), TopicId("bills-id")
Address = tuple[str, int]


def at(partition: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, partition)


def listed(*answers: tuple[str, int, int, int, int]) -> bytes:
    """A ListOffsets response with (topic, partition, error, time, offset)."""
    topics = [
        compact_string(topic)
        + compact_array([struct.pack(">ihqqi", number, error, time, offset, 3) + NO_TAGS])
        + NO_TAGS
        for topic, number, error, time, offset in answers
    ]
    return bytes(4) + compact_array(topics) + NO_TAGS


class Cluster:
    """Two brokers with partitions that are led by one of them."""

    def __init__(self) -> None:
        self.ids = {"orders": ORDERS, "bills": BILLS}
        self.leaders: dict[TopicPartition, int] = {at(0): 1, at(1): 2, at(0, "bills"): 2}
        self.offsets: dict[TopicPartition, int] = {at(0): 40, at(1): 50, at(0, "bills"): 7}
        self.errors: dict[TopicPartition, Iterator[int]] = {}
        """Errors with which the next questions are answered."""
        self.faults: dict[int, Iterator[EnvironmentFault | None]] = {}
        """Why a broker does not answer its next questions for offsets."""
        self.looks: Iterator[str] = iter(())
        """What the next requests for metadata return; afterwards "all"."""
        self.asked: list[tuple[Address, list[TopicPartition], int, bool]] = []
        self.silent: list[Address] = []
        """Brokers that do not answer their next question for offsets."""
        self.after: Callable[[], None] = lambda: None
        """Runs after each answer with offsets."""

    def metadata(self, names: list[str]) -> Metadata:
        look = next(self.looks, "all")
        if look == "down":
            raise Unreachable("restarts")
        topics = [
            TopicMetadata(0, name, self.ids[name], False, [
                Partition(0, where.partition, node, 1, (1, 2), (1, 2), ())
                for where, node in self.leaders.items() if where.topic == name
            ])
            for name in names if name in self.ids and look == "all"
        ]  # fmt: skip
        return Metadata([Broker(1, "one", 9001, None), Broker(2, "two", 9002, None)], "cluster-id", 1, topics, 0)

    def list(self, address: Address, questions: list[OffsetQuestion], committed: bool) -> bytes:
        node = {("one", 9001): 1, ("two", 9002): 2}[address]
        self.asked.append(
            (address, [at(each.partition, each.topic) for each in questions], questions[0].time, committed)
        )
        if (fault := next(self.faults.get(node, iter(())), None)) is not None:
            raise fault
        answers: list[tuple[str, int, int, int, int]] = []
        for each in questions:
            where = at(each.partition, each.topic)
            moved = int(ErrorCode.NOT_LEADER_OR_FOLLOWER) if self.leaders.get(where) != node else 0
            error = next(self.errors.get(where, iter(())), moved)
            answers.append((each.topic, each.partition, error, 99, -1 if error else self.offsets[where]))
        self.after()
        return listed(*answers)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    requests: list[tuple[list[OffsetQuestion], bool]] = []

    def encode(questions: list[OffsetQuestion], read_committed: bool) -> bytes:
        requests.append((list(questions), read_committed))
        return bytes([len(requests) - 1])

    class FakeAsker:
        brokers: tuple[Address, ...] = ()

        def __init__(self, _: object, limit_s: float) -> None:
            self._limit_s = limit_s

        async def ask(
            self, api: Api, encode: Callable[[int], bytes], decode: Callable[[int, Any], Any], at: Address | None = None
        ) -> Any:
            await asyncio.sleep(0)
            body = encode(api.greatest)
            assert api is LIST_OFFSETS
            assert at is not None
            if at in made.silent:
                made.silent.remove(at)
                made.after()
                await asyncio.sleep(self._limit_s)
                raise Unreachable("no answer")
            return decode(api.greatest, Reader(made.list(at, *requests[body[0]])))

        async def ask_metadata(self, names: Sequence[str], at: Address | None = None) -> Metadata:
            del at
            await asyncio.sleep(0)
            return made.metadata(sorted(made.ids.keys() & names))

        def close(self) -> None:
            pass

    monkeypatch.setattr(module, "Asker", FakeAsker)
    monkeypatch.setattr(module, "encode_list_offsets", encode)
    monkeypatch.setattr(Backoff, "next_s", lambda _: 0.0)
    return made


async def test_each_leader_gets_one_request_for_all_its_partitions(cluster: Cluster) -> None:
    found = await log_offsets(CLUSTER, [at(0), at(1), at(0, "bills"), at(0)], "end")
    assert found == {at(0): 40, at(1): 50, at(0, "bills"): 7}
    assert cluster.asked == [
        (("one", 9001), [at(0)], LATEST, False),
        (("two", 9002), [at(1), at(0, "bills")], LATEST, False),
    ]
    await log_offsets(CLUSTER, [at(0)], "start")
    assert cluster.asked[-1][2] == EARLIEST


async def test_partitions_that_do_not_exist_are_left_out(cluster: Cluster) -> None:
    assert await log_offsets(CLUSTER, [at(0), at(9), at(0, "refunds")], "end") == {at(0): 40}
    assert await log_offsets(CLUSTER, [], "end") == {}
    assert len(cluster.asked) == 1


async def test_a_time_has_an_offset_and_a_timestamp_or_none(cluster: Cluster) -> None:
    cluster.offsets[at(1)] = -1
    cluster.errors[at(0, "bills")] = iter([int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)])
    found = await offsets_at(CLUSTER, [at(0), at(1), at(0, "bills")], 1_000)
    assert found == {at(0): (40, 99), at(1): None, at(0, "bills"): None}
    assert cluster.asked[0][2] == 1_000


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "OFFSET_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"])
async def test_only_the_partition_that_was_not_answered_is_asked_again(cluster: Cluster, error: str) -> None:
    cluster.errors[at(1)] = iter([int(ErrorCode[error])] * 2)
    assert await log_offsets(CLUSTER, [at(0), at(1), at(0, "bills")], "end") == {
        at(0): 40, at(1): 50, at(0, "bills"): 7
    }  # fmt: skip
    assert [asked for _, asked, _, _ in cluster.asked[2:]] == [[at(1)]] * 2


async def test_a_leader_that_moves_is_followed(cluster: Cluster) -> None:
    cluster.leaders[at(0)] = -1

    def move() -> None:
        cluster.leaders |= {at(0): 2}

    cluster.after = move
    assert await log_offsets(CLUSTER, [at(0), at(1)], "end") == {at(0): 40, at(1): 50}
    assert [address for address, *_ in cluster.asked] == [("two", 9002)] * 2


async def test_a_broker_that_is_restarted_is_asked_again(cluster: Cluster) -> None:
    cluster.faults[1] = iter([Unreachable("restarts"), Unreachable("restarts")])
    assert await log_offsets(CLUSTER, [at(0), at(1)], "end") == {at(0): 40, at(1): 50}
    assert [address for address, *_ in cluster.asked] == [("one", 9001), ("two", 9002), ("one", 9001), ("one", 9001)]


async def test_a_leader_that_does_not_answer_is_given_up_before_the_time_limit(cluster: Cluster) -> None:
    cluster.silent = [("one", 9001)]
    cluster.after = lambda: cluster.leaders.update({at(0): 2})
    found = await LogOffsets(CLUSTER, 3.0).of([at(0), at(1)], LATEST)
    assert {where: each.offset for where, each in found.items()} == {at(0): 40, at(1): 50}


async def test_a_partition_that_existed_is_not_left_out_later(cluster: Cluster) -> None:
    """A broker that has just started may not know it, and one that restarts does not answer."""
    cluster.errors[at(1)] = iter([int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)])
    cluster.looks = iter(["all", "nothing", "down", "all"])
    assert await log_offsets(CLUSTER, [at(1)], "end") == {at(1): 50}
    assert next(cluster.looks, None) is None


async def test_an_incomplete_answer_is_an_error_with_its_reason(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.leaders[at(1)] = -1
    with pytest.raises(Unreachable, match=r"no answer within 0.05 s: orders-1 has no leader"):
        await LogOffsets(CLUSTER, 0.05).of([at(0), at(1)], LATEST)


async def test_what_does_not_pass_is_an_error_at_once(cluster: Cluster) -> None:
    cluster.errors[at(0)] = iter([int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
    with pytest.raises(EnvironmentFault, match="orders-0: TOPIC_AUTHORIZATION_FAILED"):
        await log_offsets(CLUSTER, [at(0)], "end")
    cluster.faults[1] = iter([AuthenticationFailed("the password is wrong")])
    with pytest.raises(AuthenticationFailed):
        await log_offsets(CLUSTER, [at(0)], "end")
    assert len(cluster.asked) == 2


async def test_ends_are_those_of_the_topics_with_these_ids(cluster: Cluster) -> None:
    orders, bills = PartitionId("orders", ORDERS, 0), PartitionId("bills", BILLS, 0)
    client = LogOffsets(CLUSTER)
    former = PartitionId("orders", TopicId("former-id"), 1)
    assert await client.high_watermarks([orders, former, bills]) == {orders: 40, bills: 7}
    assert [asked for _, asked, _, _ in cluster.asked] == [[at(0)], [at(0, "bills")]]

    def create_again() -> None:
        cluster.ids["orders"] = TopicId("new-id")

    cluster.after = create_again
    assert await client.high_watermarks([orders, bills]) == {bills: 7}, "the answer may be about the new topic"
    assert await client.high_watermarks([]) == {}


async def test_ends_of_leaders_that_do_not_answer_are_left_out(cluster: Cluster) -> None:
    orders, bills = PartitionId("orders", ORDERS, 0), PartitionId("bills", BILLS, 0)
    cluster.faults[1] = iter([Unreachable("down")])
    assert await LogOffsets(CLUSTER).high_watermarks([orders, bills]) == {bills: 7}
    cluster.errors[at(0)] = iter([int(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
    cluster.leaders[at(0, "bills")] = -1
    assert await LogOffsets(CLUSTER).high_watermarks([orders, bills]) == {}


def test_an_answer_that_leaves_a_partition_out_is_refused() -> None:
    request = offsets_request([OffsetQuestion("orders", 0, LATEST), OffsetQuestion("orders", 1, LATEST)])
    with pytest.raises(WireError, match="lacks orders-1"):
        request.decode(Reader(listed(("orders", 0, 0, -1, 40))))
