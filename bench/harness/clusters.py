"""Requests of the bench itself to a cluster, through librdkafka: nothing here trusts mirrord."""

# pyright: reportPrivateImportUsage=false

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, OffsetSpec

from bench.harness.load import Topic
from mirrord.model.errors import EnvironmentFault

_PATIENCE_S = 30.0
_ANSWER_S = 20.0


class Admin:
    """One cluster, by its plaintext listener."""

    def __init__(self, bootstrap: str) -> None:
        self._settings: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "log_level": 2,
            "reconnect.backoff.max.ms": 500,
        }
        self._client: Any = AdminClient(self._settings)

    def create(self, topics: Sequence[Topic]) -> None:
        """Create topics. Existing ones are left as they are. Raises EnvironmentFault."""
        wanted = [NewTopic(topic.name, topic.partitions, config=topic.settings) for topic in topics]
        for name, created in self._client.create_topics(wanted, request_timeout=_ANSWER_S).items():
            try:
                created.result(_PATIENCE_S)
            except TimeoutError:
                self._client = AdminClient(self._settings)
                raise EnvironmentFault(f"the topic {name} cannot be created: no answer") from None
            except KafkaException as error:
                code: Any = error.args[0]
                if code.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise EnvironmentFault(f"the topic {name} cannot be created: {error}") from error

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics. Raises EnvironmentFault."""
        for name, deleted in self._client.delete_topics(list(names), request_timeout=_ANSWER_S).items():
            try:
                deleted.result(_PATIENCE_S)
            except TimeoutError:
                self._client = AdminClient(self._settings)
                raise EnvironmentFault(f"the topic {name} cannot be deleted: no answer") from None
            except KafkaException as error:
                raise EnvironmentFault(f"the topic {name} cannot be deleted: {error}") from error

    def grow(self, topic: str, partitions: int) -> bool:
        """Give a topic this number of partitions. Return whether it has them."""
        (grown,) = self._client.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=_ANSWER_S
        ).values()
        with suppress(KafkaException, TimeoutError):
            grown.result(_PATIENCE_S)
            return True
        self._client = AdminClient(self._settings)
        with suppress(KafkaException):
            return len(self._client.list_topics(topic, timeout=_ANSWER_S).topics[topic].partitions) == partitions
        return False

    def write(self, topic: str) -> None:
        """Write one record into the first partition of a topic. Raises EnvironmentFault."""
        producer = Producer(self._settings)
        producer.produce(topic, b"first", partition=0)
        if producer.flush(_ANSWER_S):
            raise EnvironmentFault(f"nothing can be written into {topic}")

    def names(self) -> set[str]:
        """Return the names of all topics. Raises EnvironmentFault."""
        try:
            return set(self._client.list_topics(timeout=_ANSWER_S).topics)
        except KafkaException as error:
            raise EnvironmentFault(f"the topics cannot be listed: {error}") from error

    def delete_like(self, part: str) -> None:
        """Delete the topics whose names contain this text. Raises EnvironmentFault."""
        found = sorted(name for name in self.names() if part in name)
        if found:
            self.delete(found)

    def ends(
        self, topics: Mapping[str, int], *, read_committed: bool = False, timeout_s: float = 2.0
    ) -> dict[tuple[str, int], int]:
        """Return the end of each partition of topics (name and partitions), without those that do not answer now."""
        return self._offsets(topics, OffsetSpec.latest(), timeout_s, read_committed=read_committed)

    def starts(self, topics: Mapping[str, int], *, timeout_s: float = 2.0) -> dict[tuple[str, int], int]:
        """Return the start of each partition of topics in the same way."""
        return self._offsets(topics, OffsetSpec.earliest(), timeout_s)

    def _offsets(
        self, topics: Mapping[str, int], which: Any, timeout_s: float, *, read_committed: bool = False
    ) -> dict[tuple[str, int], int]:
        isolation = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(name, at): which for name, partitions in topics.items() for at in range(partitions)}
        ends: dict[tuple[str, int], int] = {}
        if asked:
            answers = self._client.list_offsets(asked, isolation_level=isolation, request_timeout=timeout_s)
            for at, future in answers.items():
                with suppress(KafkaException, TimeoutError):
                    ends[at.topic, at.partition] = future.result(timeout_s + 1).offset
            if len(ends) < len(asked):
                # A client that met an unavailable broker keeps reporting that when the broker is back (librdkafka
                # 2.16).
                self._client = AdminClient(self._settings)
        return ends
