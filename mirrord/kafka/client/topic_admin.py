"""Lists the topics of one cluster with their ids, creates topics, and adds partitions.

Listing uses a separate connection, because aiokafka does not support topic ids. This connection stays open between
requests. Topics and partitions are rarely created, so aiokafka's admin client is used to create them.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

import msgspec
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import BrokerResponseError, KafkaError

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import Asker
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.protocol import metadata
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.topic import Topic, TopicShape, is_valid_name
from mirrord.kafka.rules.topic_ids import missing_ids
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias, ClusterId, TopicId
from mirrord.model.shown_text import LONGEST_MESSAGE, printable

LONGEST_SHOWN = 100
"""Maximum number of letters of an invalid name that are shown."""
TOPICS_AT_ONCE = 100
"""Maximum number of topics in one CreateTopics request."""
_THROTTLE_BYTES = 4
"""Size of the throttle time field in bytes. The field is at the beginning of an answer and is ignored when the answer
is compared with the previous one."""

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class ClusterTopics(msgspec.Struct, frozen=True):
    """The id of a cluster, and its topics at one moment."""

    cluster_id: ClusterId
    topics: Mapping[str, Topic]
    """The topics that mirrord is allowed to describe, by name. Topics for which the cluster reports no partitions are
    omitted."""
    refused: Mapping[str, str] = {}
    """The name of Kafka's error for each topic that does not exist or that mirrord is not allowed to describe."""
    allowed: Mapping[str, int] = {}
    """The operations that mirrord is allowed to perform on each topic, as a bit field like
    `mirrord.kafka.protocol.metadata.TopicMetadata.allowed`. Empty if they were not requested."""
    brokers: int = 0
    """Number of live brokers, or 0 if the number is unknown."""
    invalid: tuple[str, ...] = ()
    """The names of reported topics that are not valid in Kafka, without control characters, and shortened. These topics
    are omitted everywhere else."""


class NoTopicIds(EnvironmentFault):
    """Raised when the cluster has topics without topic ids."""


class TopicAdmin(Protocol):
    """The operations with which mirrord finds and creates topics: listing topics, creating topics, and adding
    partitions.

    If the cluster does not answer, every operation raises Unreachable, AuthenticationFailed, TlsFailed or another
    EnvironmentFault. `describe` raises NoTopicIds if a topic in the answer has no topic id.
    """

    async def describe(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        """Return the topics with these names, or all topics if `names` is None. If `rights` is set, also return the
        operations that mirrord may perform on them."""
        ...

    async def create(self, topics: Mapping[str, TopicShape], *, validate_only: bool = False) -> dict[str, str]:
        """Create topics. Return each refused topic with the reason. If `validate_only` is set, the cluster only
        validates the topics and creates none.

        The refused topics include topics that already exist, for example because another client has just created them.
        """
        ...

    async def grow(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Add partitions to topics until each topic has the given number of partitions. Return each refused topic with
        the reason."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class KafkaTopicAdmin:
    """The `TopicAdmin` for a real cluster."""

    def __init__(self, config: ClusterConfig, timeout_s: float, alias: Alias = "") -> None:
        """`alias` names the cluster in error messages."""
        self._config = config
        self._timeout_s = timeout_s
        self._where = f"cluster {alias}" if alias else "the cluster"
        self._asker = Asker(config, timeout_s)
        self._last_encoded = b""
        """The bytes of the latest answer about all topics. If the next answer has the same bytes, it is not decoded."""
        self._all: ClusterTopics | None = None

    async def describe(self, names: Collection[str] | None = None, *, rights: bool = False) -> ClusterTopics:
        """Return the topics with these names, or all topics if `names` is None. If `rights` is set, also return the
        operations that mirrord may perform on them."""
        answer = await self._metadata(names, rights=rights)
        if answer is None:
            assert self._all is not None  # noqa: S101 - the answer equals an earlier answer that was accepted
            return self._all
        self._asker.brokers = tuple((broker.host, broker.port) for broker in answer.brokers)
        if answer.cluster_id is None:
            raise Unreachable("the broker does not report the id of its cluster")
        listed = answer.topics
        if names is not None and (unknown := [each.name for each in listed if each.name and each.error == _UNKNOWN]):
            elsewhere = await self._asker.known_elsewhere(unknown, answer.cluster_id)
            listed = [elsewhere.get(each.name or "", each) for each in listed]
        self._check_ids(ClusterId(answer.cluster_id), listed)
        topics: dict[str, Topic] = {}
        refused: dict[str, str] = {}
        allowed: dict[str, int] = {}
        invalid: list[str] = []
        for topic in listed:
            if topic.name is None:
                continue
            if not is_valid_name(topic.name):
                invalid.append(printable(topic.name, LONGEST_SHOWN))
                continue
            if topic.error:
                refused[topic.name] = ErrorCode.name_of(topic.error)
            if topic.partitions:
                replicas = len(topic.partitions[0].replicas)
                topics[topic.name] = Topic(topic.name, TopicId(topic.id), len(topic.partitions), replicas)
            if topic.allowed != metadata.NOT_REPORTED:
                allowed[topic.name] = topic.allowed
        seen = ClusterTopics(
            ClusterId(answer.cluster_id), topics, refused, allowed, len(answer.brokers), tuple(sorted(invalid))
        )
        if names is None and not rights:
            self._all = seen
        return seen

    async def create(self, topics: Mapping[str, TopicShape], *, validate_only: bool = False) -> dict[str, str]:
        """Create topics. Return each refused topic with the reason. If `validate_only` is set, the cluster only
        validates the topics and creates none."""
        wanted = [
            TopicToCreate(name, shape.partitions, shape.replication_factor, topic_configs=dict(shape.settings))
            for name, shape in topics.items()
        ]
        refused: dict[str, str] = {}
        async with Admin(self._config, self._timeout_s) as admin:
            for first in range(0, len(wanted), TOPICS_AT_ONCE):
                batch = cast(Any, wanted[first : first + TOPICS_AT_ONCE])
                answer = cast(Any, await admin.create_topics(batch, self._timeout_ms, validate_only))
                for name, code, message in answer.topic_errors:
                    if code != ErrorCode.NONE:
                        why = printable(message or "", LONGEST_MESSAGE)
                        refused[name] = f"{ErrorCode.name_of(code)}: {why}" if why else ErrorCode.name_of(code)
        return refused

    async def grow(self, topics: Mapping[str, int]) -> dict[str, str]:
        """Add partitions to topics until each topic has the given number of partitions. Return each refused topic with
        the reason."""
        refused: dict[str, str] = {}
        async with Admin(self._config, self._timeout_s) as admin:
            for name, partitions in topics.items():
                try:
                    # Each topic gets a separate request, because the client reports only the first error of a request.
                    await admin.create_partitions({name: NewPartitions(partitions)}, self._timeout_ms)
                except BrokerResponseError as error:
                    refused[name] = printable(f"{error}", LONGEST_MESSAGE)
        return refused

    async def close(self) -> None:
        """Close the connection."""
        self._asker.close()

    def _check_ids(self, cluster_id: ClusterId, topics: Sequence[metadata.TopicMetadata]) -> None:
        """Check that all topics with partitions have ids. A topic that is reported with an error has neither partitions
        nor an id.

        Raises NoTopicIds.
        """
        named = [(topic.name, topic.id) for topic in topics if topic.name and topic.partitions]
        known = [(name, topic_id) for name, topic_id in named if is_valid_name(name)]
        fault = missing_ids(self._where, cluster_id, known)
        if fault is not None:
            raise NoTopicIds(fault)

    @property
    def _timeout_ms(self) -> int:
        return int(self._timeout_s * 1000)

    async def _metadata(self, names: Collection[str] | None, *, rights: bool) -> metadata.Metadata | None:
        """Request the metadata of topics.

        Return None if all topics were requested and the answer is the same as the previous answer about all topics.
        """
        version, data = await self._asker.encoded_metadata(names, allowed=rights)
        if names is not None or rights:
            return await self._asker.decoded(version, data, names)
        if data[_THROTTLE_BYTES:] == self._last_encoded and self._all is not None:
            return None
        answer = await self._asker.decoded(version, data, None)
        # `describe` sets `_all` again once it has accepted the answer.
        self._last_encoded, self._all = data[_THROTTLE_BYTES:], None
        return answer


class TopicToCreate(NamedTuple):
    """Replaces aiokafka's NewTopic, because NewTopic does not let the broker choose the replication factor."""

    name: str
    num_partitions: int
    replication_factor: int
    replica_assignments: dict[int, list[int]] = {}  # noqa: RUF012 - never changed
    topic_configs: dict[str, str] = {}  # noqa: RUF012


class Admin:
    """aiokafka's admin client as an asynchronous context manager. Raises Unreachable if no broker answers."""

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
