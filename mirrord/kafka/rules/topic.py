"""A topic as a cluster describes it, and the shape that one is created with."""

from collections.abc import Mapping

import msgspec

from mirrord.model.names import TopicId


class Topic(msgspec.Struct, frozen=True, order=True):
    """A topic as a cluster describes it."""

    name: str
    topic_id: TopicId
    partitions: int
    replicas: int = 0
    """Of its first partition; 0: not known."""


BROKER_DEFAULT = -1
"""As replication factor: what the broker's default.replication.factor says (KIP-464)."""


class TopicShape(msgspec.Struct, frozen=True):
    """What a topic is created with."""

    partitions: int = 1
    replication_factor: int = BROKER_DEFAULT
    settings: Mapping[str, str] = {}


def capped(wanted: int, brokers: int) -> int:
    """What can be had of a replication factor that was refused; the same when there are brokers enough."""
    return min(wanted, brokers) if brokers else wanted
