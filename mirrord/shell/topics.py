"""The topics of one cluster: what there is, with ids; creating and growing.

Looking uses a connection of our own, because aiokafka does not know topic ids; creating, which is rare, uses aiokafka's
admin client. A connection lives from look to look.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Protocol, cast

import msgspec
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import BrokerResponseError, KafkaError, TopicAlreadyExistsError

from mirrord.cluster.topics import Topic
from mirrord.model.config import ClusterConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, TopicId
from mirrord.shell.connections import Connection, ConnectionOptions, Unreachable, connect
from mirrord.shell.credentials import client_options
from mirrord.shell.frames import BufferPool
from mirrord.wire import metadata
from mirrord.wire.apis import METADATA
from mirrord.wire.errors import ErrorCode, WireError

TOPICS_AT_ONCE = 100
"""Topics that one request creates."""
BROKER_DEFAULT = -1
"""As replication factor: what the broker's default.replication.factor says (KIP-464)."""


class ClusterTopics(msgspec.Struct, frozen=True):
    """A cluster at one moment."""

    cluster_id: ClusterId
    topics: Mapping[str, Topic]
    """Those that may be seen, by name; topics without a partition that can be named are left out."""
    refused: Mapping[str, str] = {}
    """Topics that were asked for by name and may not be seen, or not exist: Kafka's word for it."""
    allowed: Mapping[str, int] = {}
    """What we may do with each topic (`wire.metadata.Topic.allowed`), when it was asked for."""


class TopicAdmin(Protocol):
    """What discovery needs of a cluster.

    Every call raises Unreachable, AuthenticationFailed, TlsFailed or another EnvironmentFault when there is no answer.
    """

    async def look(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        """The topics of these names, or all; with `rights` also what we may do with them."""
        ...

    async def create(
        self, topics: Mapping[str, int], replication_factor: int = BROKER_DEFAULT, *, validate_only: bool = False
    ) -> dict[str, str]:
        """Create topics of so many partitions; those that were refused, and why. One that is there already is fine."""
        ...

    async def grow(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Give topics so many partitions; those that were refused, and why."""
        ...

    async def close(self) -> None:
        """End the connection."""
        ...


class KafkaTopicAdmin:
    """A `TopicAdmin` of a real cluster."""

    def __init__(self, config: ClusterConfig, timeout_s: float) -> None:
        self._config = config
        self._timeout_s = timeout_s
        self._options = ConnectionOptions(connect_timeout_s=timeout_s, request_timeout_s=timeout_s)
        self._pool = BufferPool(limit_bytes=0)
        self._connection: Connection | None = None
        self._brokers: tuple[tuple[str, int], ...] = ()
        """As the cluster told last: it may live on when the configured addresses do not."""

    async def look(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        """The topics of these names, or all; with `rights` also what we may do with them."""
        answer = await self._metadata(names, rights=rights)
        if answer.cluster_id is None:
            raise Unreachable("the broker does not tell the id of its cluster")
        topics: dict[str, Topic] = {}
        refused: dict[str, str] = {}
        allowed: dict[str, int] = {}
        for topic in answer.topics:
            if topic.name is None:
                continue
            if topic.error:
                refused[topic.name] = ErrorCode.name_of(topic.error)
            if topic.partitions:
                topics[topic.name] = Topic(topic.name, TopicId(topic.id), len(topic.partitions))
            if topic.allowed != metadata.NOT_TOLD:
                allowed[topic.name] = topic.allowed
        return ClusterTopics(ClusterId(answer.cluster_id), topics, refused, allowed)

    async def create(
        self, topics: Mapping[str, int], replication_factor: int = BROKER_DEFAULT, *, validate_only: bool = False
    ) -> dict[str, str]:
        """Create topics of so many partitions; those that were refused, and why."""
        wanted = [TopicToCreate(name, partitions, replication_factor) for name, partitions in topics.items()]
        refused: dict[str, str] = {}
        async with Admin(self._config, self._timeout_s) as admin:
            for first in range(0, len(wanted), TOPICS_AT_ONCE):
                batch = cast(Any, wanted[first : first + TOPICS_AT_ONCE])
                answer = cast(Any, await admin.create_topics(batch, self._timeout_ms, validate_only))
                for name, code, message in answer.topic_errors:
                    if code not in (ErrorCode.NONE, TopicAlreadyExistsError.errno):
                        refused[name] = f"{ErrorCode.name_of(code)}: {message}" if message else ErrorCode.name_of(code)
        return refused

    async def grow(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Give topics so many partitions; those that were refused, and why."""
        refused: dict[str, str] = {}
        async with Admin(self._config, self._timeout_s) as admin:
            for name, partitions in topics.items():
                try:
                    # One by one: the client tells only the first fault of a request.
                    await admin.create_partitions({name: NewPartitions(partitions)}, self._timeout_ms)
                except BrokerResponseError as error:
                    refused[name] = f"{error}"
        return refused

    async def close(self) -> None:
        """End the connection."""
        self._drop()

    @property
    def _timeout_ms(self) -> int:
        return int(self._timeout_s * 1000)

    async def _metadata(self, names: Collection[str] | None, *, rights: bool) -> metadata.Metadata:
        for connection in (self._connection, None):
            try:
                self._connection = connection or await self._connect()
                version = self._connection.version(METADATA)
                body = metadata.encode(version, names, allowed=rights)
                answer = metadata.decode(version, await self._connection.call(METADATA, body, version))
            except EnvironmentFault:
                # A connection that stood idle may have been closed meanwhile: then once more with a new one.
                self._drop()
                if connection is None:
                    raise
            except WireError as error:
                self._drop()
                raise Unreachable(f"{error}") from error
            else:
                self._brokers = tuple((broker.host, broker.port) for broker in answer.brokers)
                return answer
        raise AssertionError

    async def _connect(self) -> Connection:
        fault: EnvironmentFault | None = None
        for host, port in dict.fromkeys((*map(address, self._config.bootstrap), *self._brokers)):
            try:
                return await connect(host, port, self._config.security, self._pool, self._options)
            except Unreachable as error:
                fault = fault or error
        assert fault is not None  # noqa: S101 - a configuration names at least one address
        raise fault

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class TopicToCreate(NamedTuple):
    """Where aiokafka's NewTopic refuses to leave the replication factor to the broker."""

    name: str
    num_partitions: int
    replication_factor: int
    replica_assignments: dict[int, list[int]] = {}  # noqa: RUF012 - never changed
    topic_configs: dict[str, str] = {}  # noqa: RUF012


class Admin:
    """aiokafka's admin client for a few requests; what it raises for lack of an answer becomes Unreachable."""

    def __init__(self, config: ClusterConfig, timeout_s: float) -> None:
        self._client = AIOKafkaAdminClient(
            bootstrap_servers=list(config.bootstrap),
            client_id="mirrord",
            request_timeout_ms=int(timeout_s * 1000),
            **client_options(config.security),
        )

    async def __aenter__(self) -> AIOKafkaAdminClient:
        try:
            await self._client.start()
        except (TimeoutError, KafkaError, OSError) as error:
            await self._client.close()
            raise Unreachable(f"no broker for an administrative request: {error!r}") from error
        return self._client

    async def __aexit__(self, kind: object, error: BaseException | None, at: object) -> None:
        await self._client.close()
        if isinstance(error, KafkaError | OSError | asyncio.TimeoutError):
            raise Unreachable(f"no answer to an administrative request: {error!r}") from error


def address(text: str) -> tuple[str, int]:
    """Host and port of a configured address."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
