"""Finds or creates the ledger topic and the state topic of a flow on a real cluster, requests their offsets, and trims
the ledger topic.

Every request begins with fresh metadata, because the name may now belong to a different topic. The request also carries
the leader epoch from the metadata, so that a broker that is no longer the leader refuses it (KIP-320). A previously
found topic counts as deleted when it has been missing from all brokers' answers for `GONE_SECONDS`.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from aiokafka.admin import RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.structs import TopicPartition

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client import internal_topics
from mirrord.kafka.client.admin_requests import BrokerAddress, parse_address
from mirrord.kafka.client.connection import Connection, ConnectionOptions, Unreachable, connect
from mirrord.kafka.client.log_offsets import TRIES, offsets_request
from mirrord.kafka.client.metadata_decoding import ask_metadata
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.reconnecting_link import Backoff, Link, ask
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.client.topic_admin import Admin, KafkaTopicAdmin
from mirrord.kafka.protocol import list_offsets, metadata
from mirrord.kafka.protocol.api_versions import LIST_OFFSETS, METADATA, OFFSET_FOR_LEADER_EPOCH
from mirrord.kafka.protocol.errors import ErrorCode, WireError
from mirrord.ledger.errors import LedgerMissing, LedgerUnavailable, LedgerWentBack, StateLost, gone
from mirrord.ledger.store.log_interface import LogEnds
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicId, ledger_topic, state_topic

T = TypeVar("T")

RECORD_BYTES = 16 << 20
"""Maximum size in bytes of a record batch that the topics accept. It is larger than any append of a lane."""
SHARED_SETTINGS = {
    "max.message.bytes": str(RECORD_BYTES),
    # The broker sets the timestamps, because it would refuse timestamps from writers that are more than an hour in the
    # future. Nothing reads the timestamps in these topics.
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
}
LEDGER_SETTINGS = SHARED_SETTINGS | {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    # Trimmed records are removed from disk only in whole segments.
    "segment.bytes": str(16 << 20),
}
STATE_SETTINGS = SHARED_SETTINGS | {
    "cleanup.policy": "compact",
    # A daemon reads the whole topic when it starts, and compaction cleans only closed segments.
    "segment.bytes": str(4 << 20),
    "min.cleanable.dirty.ratio": "0.1",
    "max.compaction.lag.ms": str(10 * 60_000),
}
NEEDED_LEDGER_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")
NEEDED_STATE_SETTINGS = ("cleanup.policy",)

GONE_SECONDS = 1.0
"""A topic must be missing for this number of seconds before it counts as deleted. A broker that has just started may
not know all topics yet."""

_ASKING = "ask"
"""The name of the connection to a broker that carries only short requests. Requests that may take a long time use other
connections, so they do not delay the short ones."""
DENIED = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


class AskAgain(EnvironmentFault):
    """Raised when a broker is currently unable to answer because leaders are changing or the broker does not know the
    whole cluster yet."""


class TopicLeader(NamedTuple):
    """The leader of the only partition of a topic, according to the metadata."""

    topic: str
    topic_id: str
    epoch: int
    address: BrokerAddress


class LedgerTopics:
    """Sends requests about the topics of one flow. The methods raise LedgerUnavailable if no answer arrives in time."""

    def __init__(self, flow: str, cluster: ClusterConfig, timeout_s: float, *, alone: bool = False) -> None:
        """Create the client without connecting. With `alone`, it uses only the ledger topic, not the state topic."""
        self.flow = flow
        self.ledger = ledger_topic(flow)
        self.state = state_topic(flow)
        self._names = (self.ledger,) if alone else (self.ledger, self.state)
        self._cluster = cluster
        self.timeout_s = timeout_s
        self._options = ConnectionOptions(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
        self._pool = BufferPool(limit_bytes=0)
        self._links: dict[tuple[BrokerAddress, str], Link] = {}
        self._brokers: frozenset[BrokerAddress] = frozenset()
        self._found: frozenset[str] = frozenset()
        """The names of the topics that existed when `find` was called."""
        self._missing_since: dict[str, float] = {}
        self._turn = 0
        """How many questions have failed. Each failure changes which broker is asked first for metadata."""

    async def find(self, *, create: bool, again: bool = False) -> None:
        """Make sure that both topics exist and have the required configs.

        If the ledger topic is missing, the state topic shows whether a ledger has existed. If so, a new ledger topic is
        created only with `again`. Raises LedgerMissing, LedgerGone or EnvironmentFault.
        """
        missing, brokers = await self.asking(self._missing)
        if missing == [self.ledger] and not again and await self.asking(self._has_state):
            raise gone(self.ledger)
        if missing and not create:
            raise LedgerMissing(f"there is no flow {self.flow} on this cluster: it has no topic {missing[0]}")
        if missing:
            await self.asking(lambda: self._create(missing, brokers))
            await self.asking(self._await_leaders)
        elif create:
            await self.asking(self._check_settings)
        self._found = frozenset((self.ledger, self.state))

    async def ends(self) -> tuple[LogEnds, int]:
        """Return the bounds of the ledger topic and the end of the state topic. Also return the log start offset of the
        state topic."""
        return await self.asking(self._ends)

    async def epoch_end(self, leader_epoch: int) -> int:
        """Return the end offset of a leader epoch of the ledger topic, or -1 if the leader does not know the epoch."""
        return await self.asking(lambda: self._epoch_end(leader_epoch))

    async def delete_below(self, offset: int) -> None:
        """Delete the records of the ledger topic below an offset."""
        await self.asking(lambda: self._delete_below(offset))

    async def leader(self, topic: str) -> TopicLeader:
        """Return the current leader of a topic according to fresh metadata. Raises AskAgain, and the errors of
        `connect`."""
        return _leader(await self._metadata((topic,)), topic)

    async def connection(self, address: BrokerAddress, purpose: str) -> Connection:
        """Return the connection to a broker for this purpose. Open the connection if there is none.

        Raises the errors of `connect`.
        """
        link = self._links.get((address, purpose))
        if link is None:
            link = self._links[address, purpose] = Link(
                lambda: connect(*address, self._cluster.security, self._pool, self._options)
            )
        return await link.get()

    def close(self) -> None:
        """Close the connections."""
        for link in self._links.values():
            link.close()

    async def asking(self, ask: Callable[[], Awaitable[T]], *, patient: bool = False) -> T:
        """Call `ask` repeatedly until it returns an answer. Return this answer. Raises LedgerUnavailable if no answer
        arrives in time.

        `patient` means that the brokers have previously accepted this client. In this case, even refused credentials
        count as a temporary problem.
        """
        backoff, fault = Backoff(), None
        try:
            async with asyncio.timeout(self.timeout_s):
                while True:
                    try:
                        return await ask()
                    except (LedgerUnavailable, LedgerWentBack, StateLost):
                        raise
                    except (AskAgain, Unreachable, ConnectionLost, WireError) as error:
                        fault = error
                    except EnvironmentFault as error:
                        if not patient:
                            raise
                        fault = error
                    self._turn += 1
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            self._turn += 1
            raise LedgerUnavailable(f"{self.ledger}: {fault or f'no answer within {self.timeout_s:g} s'}") from fault

    async def _metadata(self, names: Iterable[str]) -> metadata.Metadata:
        """Ask the brokers one after another until one knows the topics.

        A broker that is cut off from the controllers still answers, but with outdated metadata, and nothing in the
        answer shows this. Therefore, a different broker is asked first after each failure.
        """
        names = tuple(names)
        known = [address for address, _ in self._links]
        bootstrap = [parse_address(text) for text in self._cluster.bootstrap]
        incomplete: metadata.Metadata | None = None
        fault: EnvironmentFault | None = None
        addresses = list(dict.fromkeys((*known, *bootstrap, *self._brokers)))
        first = self._turn % len(addresses)
        order = [*addresses[first:], *addresses[:first]]
        for address in order:
            # No other broker can be asked after the last broker, which may just be slow.
            is_last = address == order[-1] and incomplete is None
            try:
                async with asyncio.timeout(None if is_last else self.timeout_s / TRIES):
                    answer = await self._describe(address, names)
            except (Unreachable, ConnectionLost) as error:
                fault = fault or error
                continue
            except TimeoutError:
                fault = fault or Unreachable(f"{address[0]}:{address[1]} does not answer")
                continue
            if not self._lacks(answer):
                for topic in answer.topics:
                    self._missing_since.pop(topic.name or "", None)
                self._brokers = frozenset((broker.host, broker.port) for broker in answer.brokers)
                return answer
            # A broker that has just started does not know the cluster yet and reports no topics, so its answer does not
            # count.
            incomplete = answer if answer.brokers and answer.controller >= 0 else incomplete
        if incomplete is not None:
            self._check_gone(self._lacks(incomplete))
            return incomplete
        raise fault or AskAgain("no broker knows the cluster yet")

    async def _describe(self, address: BrokerAddress, names: Iterable[str]) -> metadata.Metadata:
        connection = await self.connection(address, _ASKING)
        return await ask_metadata(connection, list(names), connection.version(METADATA))

    def _lacks(self, answer: metadata.Metadata) -> list[str]:
        """Return the topics that are missing from this metadata but existed when `find` was called."""
        return [
            topic.name
            for topic in answer.topics
            if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic.name in self._found
        ]

    def _check_gone(self, lacking: Iterable[str]) -> None:
        now = asyncio.get_running_loop().time()
        for name in lacking:
            since = self._missing_since.setdefault(name, now)
            if now - since >= GONE_SECONDS:
                raise gone(name) if name == self.ledger else StateLost(f"the topic {name} was deleted")

    async def _to_leader(self, found: metadata.Metadata, topic: str) -> tuple[int, Connection]:
        """Return the leader epoch of the topic's partition, and a connection to the leader."""
        leader = _leader(found, topic)
        return leader.epoch, await self.connection(leader.address, _ASKING)

    async def _missing(self) -> tuple[list[str], int]:
        found = await self._metadata(self._names)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = [topic.name for topic in found.topics if topic.error == unknown and topic.name]
        for name in set(self._names).difference(missing):
            _topic(found, name)
        return sorted(missing), len(found.brokers)

    async def _has_state(self) -> bool:
        """Return whether the state topic has ever had a record. If it has, a ledger has existed."""
        found = await self._metadata((self.state,))
        return (await self._offsets(found, list_offsets.LATEST, (self.state,)))[self.state].offset > 0

    async def _await_leaders(self) -> None:
        found = await self._metadata((self.ledger, self.state))
        for name in (self.ledger, self.state):
            await self._to_leader(found, name)

    async def _create(self, names: Iterable[str], brokers: int) -> None:
        settings = {self.ledger: LEDGER_SETTINGS, self.state: STATE_SETTINGS}
        admin = KafkaTopicAdmin(self._cluster, self.timeout_s)
        try:
            await asyncio.gather(
                *(
                    internal_topics.create(admin, name, internal_topics.safe_shape(settings[name], brokers), brokers)
                    for name in names
                )
            )
        finally:
            await admin.close()

    async def _check_settings(self) -> None:
        """Check the configs of topics that another client may have created. Raises EnvironmentFault for a config that
        would delete records that must be kept."""
        needed = {
            self.ledger: {key: LEDGER_SETTINGS[key] for key in NEEDED_LEDGER_SETTINGS},
            self.state: {key: STATE_SETTINGS[key] for key in NEEDED_STATE_SETTINGS},
        }
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict(keys)) for name, keys in needed.items()]
        async with Admin(self._cluster, self.timeout_s) as admin:
            answers = cast(Any, await admin.describe_configs(resources))
        for code, _, _, name, entries in (resource for answer in answers for resource in answer.resources):
            if code in DENIED:
                continue
            if code:
                raise AskAgain(f"the configs of {name} cannot be read: {ErrorCode.name_of(code)}")
            for key, value, *_ in entries:
                if key in needed[name] and value != needed[name][key]:
                    raise EnvironmentFault(
                        f"the topic {name} has {key}={value}, which loses facts; it must be {needed[name][key]}"
                    )

    async def _ends(self) -> tuple[LogEnds, int]:
        names = self._names
        found = await self._metadata(names)
        starts, ends = await asyncio.gather(
            self._offsets(found, list_offsets.EARLIEST, names), self._offsets(found, list_offsets.LATEST, names)
        )
        topic_id, end = TopicId(_topic(found, self.ledger).id), ends[self.ledger]
        state_start, state_end = (each[self.state].offset if self.state in each else 0 for each in (starts, ends))
        return LogEnds(topic_id, starts[self.ledger].offset, end.offset, end.leader_epoch, state_end), state_start

    async def _offsets(
        self, found: metadata.Metadata, which: int, topics: Sequence[str]
    ) -> dict[str, list_offsets.ListedOffset]:
        """Return the earliest or latest offset of each topic, depending on `which`. Each topic has one partition.

        Requests to the same leader are combined, because a broker answers the requests on a connection one after
        another, and lanes that are being moved wait for the answers. Only requests about different topics can be
        combined, because a broker refuses a request that asks about the same partition twice.
        """
        asked: dict[BrokerAddress, list[list_offsets.OffsetQuestion]] = {}
        for topic in topics:
            leader = _leader(found, topic)
            asked.setdefault(leader.address, []).append(list_offsets.OffsetQuestion(topic, 0, which, leader.epoch))
        answers = await asyncio.gather(*(self._list_offsets(*each) for each in asked.items()))
        return {listed.topic: listed for answer in answers for listed in answer}

    async def _list_offsets(
        self, leader: BrokerAddress, questions: Sequence[list_offsets.OffsetQuestion]
    ) -> list[list_offsets.ListedOffset]:
        connection = await self.connection(leader, _ASKING)
        body, decode = offsets_request(questions)
        answer = list((await ask(connection, LIST_OFFSETS, body, connection.version(LIST_OFFSETS), decode)).values())
        for listed in answer:
            _check(listed.error, listed.topic)
        return answer

    async def _epoch_end(self, leader_epoch: int) -> int:
        found = await self._metadata((self.ledger,))
        epoch, connection = await self._to_leader(found, self.ledger)
        body = list_offsets.encode_epoch_ends([list_offsets.EpochQuestion(self.ledger, 0, epoch, leader_epoch)])
        version = connection.version(OFFSET_FOR_LEADER_EPOCH)
        (answer,) = list_offsets.decode_epoch_ends(await connection.call(OFFSET_FOR_LEADER_EPOCH, body, version))
        _check(answer.error, self.ledger)
        return answer.end

    async def _delete_below(self, offset: int) -> None:
        async with Admin(self._cluster, self.timeout_s) as admin:
            await admin.delete_records({TopicPartition(self.ledger, 0): RecordsToDelete(offset)})


def _leader(found: metadata.Metadata, name: str) -> TopicLeader:
    topic = _topic(found, name)
    (partition,) = topic.partitions
    brokers = {broker.node: (broker.host, broker.port) for broker in found.brokers}
    if partition.leader not in brokers:
        raise AskAgain(f"{name} currently has no leader")
    return TopicLeader(name, topic.id, partition.leader_epoch, brokers[partition.leader])


def _topic(found: metadata.Metadata, name: str) -> metadata.TopicMetadata:
    described = next((topic for topic in found.topics if topic.name == name), None)
    if described is None:
        raise AskAgain(f"no broker describes {name}")
    _check(described.error, name)
    if len(described.partitions) != 1:
        raise EnvironmentFault(f"the topic {name} has {len(described.partitions)} partitions; a ledger has one")
    return described


def _check(code: int, topic: str) -> None:
    if code in DENIED:
        raise EnvironmentFault(f"the topic {topic} may not be used: {ErrorCode.name_of(code)}")
    if code:
        raise AskAgain(f"{topic}: {ErrorCode.name_of(code)}")
