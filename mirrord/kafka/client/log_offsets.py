"""Sends ListOffsets requests to learn where the logs of partitions begin and end.

Three different offsets are called the end of a log:

- the high watermark: the end for consumers that also read uncommitted records. This module reports it.
- the last stable offset: the end for consumers that read only committed records. No transaction is open below it
  (KIP-98). `mirrord.kafka.client.partition_queries` reports it.
- the leader's own log end, which includes records that have not been replicated yet. Only OffsetForLeaderEpoch reports
  it. `mirrord.kafka.client.partition_queries` sends that request.

`LogOffsets.of` either returns an offset for every partition that exists, or raises an error. A caller can therefore add
up the offsets in its result. `LogOffsets.high_watermarks` verifies the topic ids, and omits partitions whose leaders do
not answer. Lanes use `partition_queries.Asks` instead of this client. `Asks` merges the questions of thousands of lanes
into a few requests, and sends them over the connections of the lanes' replicator.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from typing import Literal, NamedTuple, Protocol, TypeVar

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import Asker, BrokerAddress, NotOffered
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.reconnecting_link import Backoff
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.protocol import metadata
from mirrord.kafka.protocol.api_versions import LIST_OFFSETS
from mirrord.kafka.protocol.errors import ErrorCode, WireError
from mirrord.kafka.protocol.list_offsets import (
    EARLIEST,
    LATEST,
    ListedOffset,
    OffsetQuestion,
    decode_list_offsets,
    encode_list_offsets,
)
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.rules.error_policy import Fetched, fetched
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicId, TopicPartition

ANSWER_S = 5.0
"""Default time limit for a question to the cluster, in seconds."""
TRIES = 3
"""Each attempt to ask a leader may take at most the time limit divided by `TRIES`. After that, the request is retried,
because a different broker may be the leader by then."""

Answers = dict[TopicPartition, ListedOffset]


class OffsetsRequest(NamedTuple):
    """One ListOffsets request to one leader."""

    body: bytes
    decode: Callable[[Reader], Answers]
    """Decodes the response, which contains an error code for each partition. Raises WireError if the response is
    malformed or a partition is missing."""


def offsets_request(questions: Collection[OffsetQuestion]) -> OffsetsRequest:
    """Return a ListOffsets request that asks these questions. Each partition may occur only once, because a broker
    refuses a request with two questions about the same partition."""

    def decode(reader: Reader) -> Answers:
        found = {TopicPartition(each.topic, each.partition): each for each in decode_list_offsets(reader)}
        for each in questions:
            if TopicPartition(each.topic, each.partition) not in found:
                raise WireError(f"the answer to ListOffsets lacks {each.topic}-{each.partition}")
        return found

    return OffsetsRequest(encode_list_offsets(questions, read_committed=False), decode)


class IdentifiedPartition(Protocol):
    """A partition, identified by the topic's name, the topic's id and the partition number."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> TopicId: ...
    @property
    def partition(self) -> int: ...


Identified = TypeVar("Identified", bound=IdentifiedPartition)


class LogOffsets:
    """A client that asks one cluster for offsets. Its connections stay open between requests."""

    def __init__(self, cluster: ClusterConfig, timeout_s: float = ANSWER_S) -> None:
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._any = Asker(cluster, timeout_s)
        self._brokers: dict[BrokerAddress, Asker] = {}

    def close(self) -> None:
        """Close all connections."""
        for asker in (self._any, *self._brokers.values()):
            asker.close()

    async def of(self, partitions: Collection[TopicPartition], time: int) -> dict[TopicPartition, ListedOffset]:
        """Return one offset for each partition that exists. `time` selects the offset.

        `time` is EARLIEST or LATEST from `mirrord.kafka.protocol.list_offsets`, or a timestamp in milliseconds. A
        timestamp selects the first record with that timestamp or a later one. The offset is -1 if there is no such
        record, or if the message format is too old to contain timestamps.

        If a partition has no leader, or its leader does not answer, the request is retried. Raises Unreachable if no
        broker can be reached initially, or if the time limit passes before all leaders have answered. Raises another
        EnvironmentFault after an error that is not temporary.
        """
        if not partitions:
            return {}
        found: Answers = {}
        backoff, fault = Backoff(), None
        try:
            async with asyncio.timeout(self._timeout_s):
                leaders = await self._leaders({each.topic for each in partitions})
                missing = [each for each in dict.fromkeys(partitions) if each in leaders]
                while True:
                    missing, fault = await self._round(missing, leaders, time, found)
                    if not missing:
                        return found
                    await asyncio.sleep(backoff.next_s())
                    try:
                        leaders = await self._leaders({each.topic for each in missing})
                    except (Unreachable, ConnectionLost) as error:
                        fault = error  # the leaders that were known before are asked again
        except TimeoutError:
            why = f": {fault}" if fault is not None else ""
            raise Unreachable(f"no answer within {self._timeout_s:g} s{why}") from fault

    async def high_watermarks(self, partitions: Collection[Identified]) -> dict[Identified, int]:
        """Return the high watermarks of these partitions. A partition is omitted if it does not exist with the given
        topic id, or if its leader does not answer.

        Each leader is asked once. ListOffsets identifies topics by name, so each leader is asked for the topic ids
        after it has answered. A broker knows the id of a recreated topic before it serves that topic. Therefore, if the
        leader still reports the expected id, its answer was about the expected topic. Raises EnvironmentFault if no
        broker answers.
        """
        if not partitions:
            return {}
        leaders = await self._leaders({each.topic for each in partitions})
        by_leader: dict[BrokerAddress, list[Identified]] = {}
        for each in partitions:
            known = leaders.get(TopicPartition(each.topic, each.partition))
            if known is not None and known.topic_id == each.topic_id and known.address is not None:
                by_leader.setdefault(known.address, []).append(each)
        answers = await asyncio.gather(*(self._identified(*each) for each in by_leader.items()))
        return {where: end for answer in answers for where, end in answer.items()}

    async def _round(
        self,
        partitions: Iterable[TopicPartition],
        leaders: Mapping[TopicPartition, "_Led"],
        time: int,
        found: Answers,
    ) -> tuple[list[TopicPartition], EnvironmentFault | None]:
        """Ask the leaders of these partitions once, and add their answers to `found`.

        Return the partitions for which the request must be retried, and the last temporary error. Raises
        EnvironmentFault after an error that is not temporary.
        """
        by_leader: dict[BrokerAddress, list[TopicPartition]] = {}
        again: list[TopicPartition] = []
        fault: EnvironmentFault | None = None
        for each in partitions:
            known = leaders.get(each, _NOBODY)
            if known.address is None:
                again.append(each)
                fault = EnvironmentFault(f"{each} has no leader")
            else:
                by_leader.setdefault(known.address, []).append(each)
        for led, answer in await asyncio.gather(*(self._try(address, led, time) for address, led in by_leader.items())):
            if isinstance(answer, EnvironmentFault):
                again += led
                fault = answer
                continue
            for each in led:
                error = answer[each].error
                if error in {ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}:
                    found[each] = answer[each]
                    continue
                fault = EnvironmentFault(f"{each}: {ErrorCode.name_of(error)}")
                if fetched(error) is not Fetched.AGAIN:
                    raise fault
                again.append(each)
        return again, fault

    async def _try(
        self, address: BrokerAddress, partitions: list[TopicPartition], time: int
    ) -> tuple[list[TopicPartition], Answers | EnvironmentFault]:
        """Ask one leader about these partitions. Return the partitions together with the leader's answer, or with a
        temporary error, after which the request can be retried. Raises NotOffered or another EnvironmentFault after an
        error that is not temporary."""
        questions = [OffsetQuestion(each.topic, each.partition, time) for each in partitions]
        try:
            return partitions, await self._list(address, questions)
        except NotOffered:
            raise
        except (Unreachable, ConnectionLost) as fault:
            return partitions, fault

    async def _identified(self, address: BrokerAddress, partitions: Collection[Identified]) -> dict[Identified, int]:
        questions = [OffsetQuestion(each.topic, each.partition, LATEST) for each in partitions]
        try:
            listed = await self._list(address, questions)
            topics = await self._topics({each.topic for each in partitions}, at=address)
        except EnvironmentFault:
            return {}  # the answers of other brokers remain valid
        ids = {topic.name: topic.id for topic in topics.topics}
        return {
            each: answer.offset
            for each in partitions
            if (answer := listed[TopicPartition(each.topic, each.partition)]).error == 0
            and answer.offset >= 0
            and ids.get(each.topic) == each.topic_id
        }

    async def _leaders(self, names: Collection[str]) -> dict[TopicPartition, "_Led"]:
        """Ask any broker for all existing partitions of these topics. Return the topic id and the leader of each
        partition. Raises EnvironmentFault."""
        described = await self._topics(names)
        self._any.brokers = tuple((broker.host, broker.port) for broker in described.brokers)
        addresses = {broker.node: (broker.host, broker.port) for broker in described.brokers}
        return {
            TopicPartition(topic.name, each.partition): _Led(TopicId(topic.id), addresses.get(each.leader))
            for topic in described.topics
            if topic.name is not None and topic.name in names
            for each in topic.partitions
        }

    async def _topics(self, names: Collection[str], at: BrokerAddress | None = None) -> metadata.Metadata:
        asker = self._any if at is None else self._broker(at)
        return await asker.ask_metadata(sorted(names), at)

    async def _list(self, address: BrokerAddress, questions: Collection[OffsetQuestion]) -> Answers:
        body, decode = offsets_request(questions)
        return await self._broker(address).ask(LIST_OFFSETS, lambda _: body, lambda _, reader: decode(reader), address)

    def _broker(self, address: BrokerAddress) -> Asker:
        if address not in self._brokers:
            self._brokers[address] = Asker(self._cluster, self._timeout_s / TRIES)
        return self._brokers[address]


class _Led(NamedTuple):
    """The topic id of an existing partition, and the address of its leader."""

    topic_id: TopicId
    address: BrokerAddress | None
    """The address of the leader. None if the partition has no leader."""


_NOBODY = _Led(TopicId(""), None)
"""Represents a partition that is missing from the newest metadata, although earlier metadata contained it."""


async def log_offsets(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], which: Literal["start", "end"]
) -> dict[TopicPartition, int]:
    """Return the log start offset ("start") or the high watermark ("end") of each partition that exists. Each call
    opens new connections.

    Raises EnvironmentFault if the leader of a partition does not answer in time.
    """
    with closing(LogOffsets(cluster)) as client:
        found = await client.of(partitions, EARLIEST if which == "start" else LATEST)
    return {where: each.offset for where, each in found.items() if each.offset >= 0}


async def offsets_at(
    cluster: ClusterConfig, partitions: Collection[TopicPartition], time_ms: int
) -> dict[TopicPartition, tuple[int, int] | None]:
    """Return the offset and the timestamp (ms) of the first record at or after this time, for each partition that
    exists.

    The value is None for a partition without such a record. Raises EnvironmentFault if the leader of a partition does
    not answer in time.
    """
    with closing(LogOffsets(cluster)) as client:
        found = await client.of(partitions, time_ms)
    return {where: (each.offset, each.time) if each.offset >= 0 else None for where, each in found.items()}
