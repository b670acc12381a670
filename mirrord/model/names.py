"""Names of clusters, topics, partitions and lanes.

A lane is keyed by topic *ids* (KIP-516), never by alias or topic name. A topic that was deleted and created again under
the same name is a different topic, and a cluster that was given another alias is still the same cluster.
"""

from typing import Literal, NewType

import msgspec

Alias = str
"""The name that the configuration gives a cluster."""

ClusterId = NewType("ClusterId", str)
"""The id that a Kafka cluster gets when its storage is formatted."""

TopicId = NewType("TopicId", str)
"""A topic's UUID in Kafka's own text form: 22 characters of URL-safe base64 (org.apache.kafka.common.Uuid)."""

LaneId = NewType("LaneId", str)
"""The text form of a `LaneKey`, as used in facts, in state keys and on the command line."""


Side = Literal["source", "target"]
"""One of the two clusters of a flow."""


class TopicPartition(msgspec.Struct, frozen=True, order=True):
    """A partition as people name it."""

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
        """`<source topic id>.<partition>.<target topic id>`. The ids contain no dot, so the form can be parsed."""
        return LaneId(f"{self.source_topic_id}.{self.partition}.{self.target_topic_id}")

    @property
    def topics(self) -> tuple[TopicId, TopicId]:
        """The source topic and the target topic, which all lanes between the two share."""
        return self.source_topic_id, self.target_topic_id

    @staticmethod
    def parse(text: str) -> "LaneKey":
        """Return the key of a lane id. Raises ValueError if the text is not one."""
        parts = text.split(".")
        if len(parts) != 3 or not parts[1].isdigit():
            raise ValueError(f"not a lane id: {text!r}")
        return LaneKey(TopicId(parts[0]), int(parts[1]), TopicId(parts[2]))


def ledger_topic(flow: str) -> str:
    """Return the topic of the flow's append-only event log on its target cluster.

    Its single partition gives the facts a total order.
    """
    return f"mirrord.{flow}.ledger"


def flow_of_ledger(topic: str) -> str | None:
    """Return the flow whose `ledger_topic` has this name, or None for any other topic."""
    parts = topic.split(".")
    return parts[1] if len(parts) == 3 and (parts[0], parts[2]) == ("mirrord", "ledger") and parts[1] else None


def probe_topic(flow: str) -> str:
    """Return the topic on the flow's target cluster that the broker probe writes to. Usually it does not exist."""
    return f"mirrord.{flow}.probe"


def dead_letter_topic(flow: str) -> str:
    """Return the topic on the flow's target cluster that holds skipped records. Usually it does not exist."""
    return f"mirrord.{flow}.dead"


def repair_topic(flow: str) -> str:
    """Return the topic on the flow's target cluster that holds records missed by an audit.

    Usually it does not exist.
    """
    return f"mirrord.{flow}.repair"


def parking_id(topic: str, lane: str) -> str:
    """Return the transactional id for writing a lane's records to such a topic.

    All of them begin with the topic's name.
    """
    return f"{topic}.{lane}"


def state_topic(flow: str) -> str:
    """Return the flow's compacted topic of snapshots, progress records and lease renewals on its target cluster."""
    return f"mirrord.{flow}.state"
