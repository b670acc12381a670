"""Leaders and replicas of partitions: elections, reassignments, and what they need to know of a cluster."""

# pyright: reportPrivateImportUsage=false

import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.faults.storm.watch import Place
from mirrord.lab.ports import LOOPBACK
from mirrord.model.errors import EnvironmentFault

_ALTER_REASSIGNMENTS, _VERSION = 45, 0
_CLIENT = b"storm"
_ANSWER_S = 15.0
_NO_TAGS = b"\0"
_SET = AlterConfigOpType.SET

Replicas = dict[Place, list[int]]
"""The brokers of partitions. The first one is the preferred leader."""


class Leaders:
    """Asks one cluster and changes its partitions."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._client = self._new()

    def _new(self) -> Any:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 2, "reconnect.backoff.max.ms": 500})

    def replicas(self, prefixes: Sequence[str]) -> Replicas:
        """Return the replicas of the partitions whose topics have one of these prefixes. Raises EnvironmentFault."""
        return {
            (name, number): list(partition.replicas)
            for name, topic in self._topics().items()
            if name.startswith(tuple(prefixes))
            for number, partition in topic.partitions.items()
        }

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the id of the leader, or -1. Raises EnvironmentFault."""
        found = self._topics().get(topic)
        return -1 if found is None or partition not in found.partitions else found.partitions[partition].leader

    def elect_preferred(self, places: Iterable[Place]) -> None:
        """Make the first replicas the leaders. Raises EnvironmentFault."""
        partitions = [TopicPartition(topic, partition) for topic, partition in places]
        try:
            # confluent-kafka 2.16 raises SystemError if a timeout is given.
            self._client.elect_leaders(ElectionType.PREFERRED, partitions).result(_ANSWER_S)
        except (KafkaException, TimeoutError) as error:
            self._client = self._new()
            raise EnvironmentFault(f"no leaders were elected: {error}") from error

    def delete_records(self, below: Mapping[Place, int]) -> None:
        """Delete the records below these offsets. Raises EnvironmentFault."""
        limits = [TopicPartition(topic, partition, offset) for (topic, partition), offset in below.items()]
        for deleted in self._client.delete_records(limits, request_timeout=_ANSWER_S).values():
            try:
                deleted.result(_ANSWER_S)
            except (KafkaException, TimeoutError) as error:
                self._client = self._new()
                raise EnvironmentFault(f"no records were deleted: {error}") from error

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set configs of a topic. Raises EnvironmentFault."""
        changes = [ConfigEntry(name, value, incremental_operation=_SET) for name, value in settings.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        try:
            self._client.incremental_alter_configs([resource])[resource].result(_ANSWER_S)
        except (KafkaException, TimeoutError) as error:
            raise EnvironmentFault(f"{topic} cannot be configured: {error}") from error

    def _topics(self) -> Any:
        try:
            return self._client.list_topics(timeout=_ANSWER_S).topics
        except KafkaException as error:
            self._client = self._new()
            raise EnvironmentFault(f"{self._bootstrap} does not answer: {error}") from error


def reassign(ports: Iterable[int], replicas: Replicas) -> None:
    """Give partitions these replicas (KIP-455). Any broker passes the request to the controller. Raises
    EnvironmentFault if no broker does."""
    message = request(replicas)
    for port in ports:
        try:
            with socket.create_connection((LOOPBACK, port), timeout=_ANSWER_S) as connection:
                connection.sendall(message)
                (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
                answer = connection.recv(size, socket.MSG_WAITALL)
                error = error_of(answer)
        except (OSError, struct.error):
            continue
        if error == 0:
            return
    raise EnvironmentFault("no broker passes a reassignment to the controller")


def request(replicas: Replicas) -> bytes:
    """Return an AlterPartitionReassignments request of version 0, with its length."""
    topics: dict[str, list[tuple[int, list[int]]]] = {}
    for (topic, partition), brokers in replicas.items():
        topics.setdefault(topic, []).append((partition, brokers))
    body = struct.pack(">hhih", _ALTER_REASSIGNMENTS, _VERSION, 0, len(_CLIENT)) + _CLIENT + _NO_TAGS
    body += struct.pack(">i", int(_ANSWER_S * 1000)) + _length(len(topics))
    for topic, partitions in topics.items():
        body += _length(len(topic.encode())) + topic.encode() + _length(len(partitions))
        for partition, brokers in partitions:
            body += struct.pack(">i", partition) + _length(len(brokers))
            body += b"".join(struct.pack(">i", broker) for broker in brokers) + _NO_TAGS
        body += _NO_TAGS
    body += _NO_TAGS
    return struct.pack(">i", len(body)) + body


def error_of(answer: bytes) -> int:
    """Return the error code of the whole response."""
    # The correlation id, no tags, and the throttle time precede it.
    return struct.unpack_from(">h", answer, 4 + 1 + 4)[0]


def _length(number: int) -> bytes:
    """Return the length of a compact string or array: an unsigned varint of the length plus one (KIP-482)."""
    number += 1
    parts = bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def rotated(replicas: Replicas) -> Replicas:
    """Return the same replicas with the second one in the first place."""
    return {place: [*brokers[1:], brokers[0]] for place, brokers in replicas.items()}


def without(replicas: Replicas, broker: int) -> Replicas:
    """Return the replicas without this broker, for partitions that it is not the only replica of."""
    return {
        place: [each for each in brokers if each != broker]
        for place, brokers in replicas.items()
        if broker in brokers and len(brokers) > 1
    }
