"""A topic as a cluster describes it, and the parameters with which a topic is created."""

from collections.abc import Mapping

import msgspec

from mirrord.model.names import TopicId


class Topic(msgspec.Struct, frozen=True, order=True):
    """A topic as a cluster describes it."""

    name: str
    topic_id: TopicId
    partitions: int
    replicas: int = 0
    """Number of replicas of its first partition, or 0 if it is not known."""


BROKER_DEFAULT = -1
"""Replication factor that leaves the choice to the broker's default.replication.factor (KIP-464)."""


class TopicShape(msgspec.Struct, frozen=True):
    """The parameters with which a topic is created."""

    partitions: int = 1
    replication_factor: int = BROKER_DEFAULT
    settings: Mapping[str, str] = {}


def capped(wanted: int, brokers: int) -> int:
    """Return the replication factor to try after `wanted` was refused: at most the number of brokers.

    The result is `wanted` if there are enough brokers, or if their number is not known.
    """
    return min(wanted, brokers) if brokers else wanted
