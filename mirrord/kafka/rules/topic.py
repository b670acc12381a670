"""A topic as a cluster describes it, and the parameters with which a topic is created."""

import re
from collections.abc import Mapping

import msgspec

from mirrord.model.names import TopicId


class Topic(msgspec.Struct, frozen=True, order=True):
    """A topic as a cluster describes it."""

    name: str
    topic_id: TopicId
    partitions: int
    replicas: int = 0
    """Number of replicas of the topic's first partition, or 0 if it is unknown."""


_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def is_valid_name(name: str) -> bool:
    """Return whether a topic may have this name (org.apache.kafka.common.internals.Topic). A correct broker reports no
    other names."""
    return _NAME.fullmatch(name) is not None and name not in {".", ".."}


BROKER_DEFAULT = -1
"""In a request, this replication factor makes the broker use its own `default.replication.factor` (KIP-464)."""


class TopicShape(msgspec.Struct, frozen=True):
    """The parameters for creating a topic."""

    partitions: int = 1
    replication_factor: int = BROKER_DEFAULT
    settings: Mapping[str, str] = {}


def capped(wanted: int, brokers: int) -> int:
    """Return the replication factor to try after a broker has refused `wanted`: `wanted`, but at most the number of
    brokers.

    If the number of brokers is unknown (0), the result is `wanted`.
    """
    return min(wanted, brokers) if brokers else wanted
