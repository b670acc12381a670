"""Names of clusters, topics, partitions and lanes.

A lane is identified by topic *ids* (KIP-516), never by the cluster's alias or the topic's name. A topic that was
deleted and created again under the same name is another topic, and a cluster that was given another alias is still the
same cluster.
"""

from typing import Literal, NewType

import msgspec

Alias = str
"""The name of a cluster in the configuration."""

ClusterId = NewType("ClusterId", str)
"""The id that a Kafka cluster gets when its storage is formatted."""

TopicId = NewType("TopicId", str)
"""A topic's UUID in Kafka's own text form: 22 characters of URL-safe base64 (org.apache.kafka.common.Uuid)."""

LaneId = NewType("LaneId", str)
"""The text form of a `LaneKey`, as used in facts, in state keys and on the command line."""


Side = Literal["source", "target"]
"""One of the two sides of a flow, and so one of its two clusters."""


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A partition, identified by topic name and partition number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class LaneKey(msgspec.Struct, frozen=True, order=True):
    """The identity of a lane: one source partition copied into one target partition of the same number."""

    source_topic_id: TopicId
    partition: int
    target_topic_id: TopicId

    @property
    def id(self) -> LaneId:
        """The text form `<source topic id>.<partition>.<target topic id>`. It can be parsed, because topic ids contain
        no dot."""
        return LaneId(f"{self.source_topic_id}.{self.partition}.{self.target_topic_id}")

    @property
    def topics(self) -> tuple[TopicId, TopicId]:
        """The ids of the source topic and of the target topic. All lanes between these two topics have them in
        common."""
        return self.source_topic_id, self.target_topic_id

    @staticmethod
    def parse(text: str) -> "LaneKey":
        """Return the key of the lane with this id. Raises ValueError if the text is not a lane id."""
        parts = text.split(".")
        if len(parts) != 3 or not parts[1].isdigit():
            raise ValueError(f"not a lane id: {text!r}")
        return LaneKey(TopicId(parts[0]), int(parts[1]), TopicId(parts[2]))


def ledger_topic(flow: str) -> str:
    """Return the name of the topic on the flow's target cluster that holds the facts of its ledger.

    It has one partition, so the facts have a total order.
    """
    return f"mirrord.{flow}.ledger"


def flow_of_ledger(topic: str) -> str | None:
    """Return the name of the flow whose `ledger_topic` has this name, or None for any other topic."""
    parts = topic.split(".")
    return parts[1] if len(parts) == 3 and (parts[0], parts[2]) == ("mirrord", "ledger") and parts[1] else None


def probe_topic(flow: str) -> str:
    """Return the name of the topic on the flow's target cluster that the broker probe writes to. It is deleted after
    each probe if mirrord has the permission to delete it."""
    return f"mirrord.{flow}.probe"


def dead_letter_topic(flow: str) -> str:
    """Return the name of the topic on the flow's target cluster that holds skipped records. It is created when the
    first record is parked there."""
    return f"mirrord.{flow}.dead"


def repair_topic(flow: str) -> str:
    """Return the name of the topic on the flow's target cluster that holds the records copied by `mirrord repair`,
    which an audit has found missing or altered.

    It is created by the first repair.
    """
    return f"mirrord.{flow}.repair"


def parking_id(topic: str, lane: str) -> str:
    """Return the transactional id with which a lane's records are written to a dead-letter topic or repair topic.

    All transactional ids of one topic begin with the topic's name.
    """
    return f"{topic}.{lane}"


def state_topic(flow: str) -> str:
    """Return the name of the compacted topic on the flow's target cluster that holds snapshots, progress records and
    lease renewals."""
    return f"mirrord.{flow}.state"
