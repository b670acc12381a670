"""Names and ids of clusters, topics, partitions and lanes.

A lane is identified by the ids of its topics (KIP-516), not by a cluster's alias or a topic's name. A topic that was
deleted and re-created under the same name is a different topic. A cluster with a new alias is still the same
cluster.
"""

from typing import Literal, NewType

import msgspec

Alias = str
"""The name of a cluster in the configuration."""

ClusterId = NewType("ClusterId", str)
"""The id that a Kafka cluster gets when its storage is formatted."""

TopicId = NewType("TopicId", str)
"""A topic's UUID in Kafka's own text form (org.apache.kafka.common.Uuid): 22 characters of URL-safe base64."""

LaneId = NewType("LaneId", str)
"""The text form of a `LaneKey`. It is used in facts, in the keys of the state topic, and on the command line."""


Side = Literal["source", "target"]
"""One of the two clusters of a flow: "source" or "target"."""


RESERVED_PREFIXES = ("__", "mirrord.")
"""Topics of Kafka and of mirrord have names that begin with one of these prefixes. No target topic may have such a
name: otherwise, a client that creates topics on the source could write to a ledger."""


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A partition, identified by topic name and partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LaneKey(msgspec.Struct, frozen=True, order=True, gc=False):
    """The identity of a lane. The lane copies one source partition into the target partition with the same number."""

    source_topic_id: TopicId
    partition: int
    target_topic_id: TopicId

    @property
    def id(self) -> LaneId:
        """The text form `<source topic id>.<partition>.<target topic id>`. `parse` can split it, because topic ids
        contain no dots."""
        return LaneId(f"{self.source_topic_id}.{self.partition}.{self.target_topic_id}")

    @property
    def topics(self) -> tuple[TopicId, TopicId]:
        """The ids of the source topic and of the target topic. All lanes between the same two topics share this pair of
        ids."""
        return self.source_topic_id, self.target_topic_id

    @staticmethod
    def parse(text: str) -> "LaneKey":
        """Return the key of the lane with this id. Raises ValueError if the text is not a lane id."""
        parts = text.split(".")
        if len(parts) != 3 or not parts[1].isdigit():
            raise ValueError(f"not a lane id: {text!r}")
        return LaneKey(TopicId(parts[0]), int(parts[1]), TopicId(parts[2]))


def ledger_topic(flow: str) -> str:
    """Return the name of a flow's ledger topic. The topic is on the flow's target cluster.

    The topic has one partition, so the facts in it have a total order.
    """
    return f"mirrord.{flow}.ledger"


def flow_of_ledger(topic: str) -> str | None:
    """Return the name of the flow with this ledger topic. Return None if `topic` is not the name of a ledger topic."""
    parts = topic.split(".")
    return parts[1] if len(parts) == 3 and (parts[0], parts[2]) == ("mirrord", "ledger") and parts[1] else None


def probe_topic(flow: str) -> str:
    """Return the name of a flow's probe topic. The topic is on the flow's target cluster.

    The broker probe writes test batches to this topic. The brokers' answers show whether exactly-once delivery is
    possible. The topic is deleted after each probe, if mirrord has the permission to delete it.
    """
    return f"mirrord.{flow}.probe"


def dead_letter_topic(flow: str) -> str:
    """Return the name of the topic on the flow's target cluster that holds skipped records. The topic is created when
    the first record is parked."""
    return f"mirrord.{flow}.dead"


def drill_topic(flow: str) -> str:
    """Return the name of the canary topic that a drill creates on the flow's target cluster and deletes again. The
    consumer group that commits there has the same name."""
    return f"mirrord.{flow}.drill"


def repair_topic(flow: str) -> str:
    """Return the name of a flow's repair topic on its target cluster. If an audit finds that records are missing or
    altered in a target topic, `mirrord repair` copies these records to the repair topic.

    The first repair creates the topic.
    """
    return f"mirrord.{flow}.repair"


def parking_id(topic: str, lane: str) -> str:
    """Return the transactional id under which the records of one lane are written to a dead-letter topic or a repair
    topic.

    All transactional ids for one such topic begin with that topic's name.
    """
    return f"{topic}.{lane}"


def state_topic(flow: str) -> str:
    """Return the name of a flow's state topic. This compacted topic is on the flow's target cluster, and holds
    snapshots, progress records and lease renewals."""
    return f"mirrord.{flow}.state"
