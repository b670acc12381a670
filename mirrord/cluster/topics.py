"""Which target topics a flow needs, and the lanes that follow from those that exist.

A fault of one topic is that topic's alone. Lanes are keyed by topic ids: a topic that was deleted and created again
gives new lanes, and the old ones are no longer in the plan.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from mirrord.model.config import OnDeletedCopy
from mirrord.model.errors import PolicyFault
from mirrord.model.names import LaneId, LaneKey, TopicId

LONGEST_NAME = 249
"""Characters in a topic's name (org.apache.kafka.common.internals.Topic)."""


class Topic(msgspec.Struct, frozen=True, order=True):
    """A topic as a cluster describes it."""

    name: str
    topic_id: TopicId
    partitions: int
    replicas: int = 0
    """Of its first partition; 0: not known."""


class PlannedLane(msgspec.Struct, frozen=True, order=True):
    """A lane that there should be."""

    source_topic: str
    key: LaneKey
    target_topic: str

    @property
    def lane(self) -> LaneId:
        """The lane's id."""
        return self.key.id


class CreateTopic(msgspec.Struct, frozen=True):
    """The target topic is missing."""

    source: Topic
    target_topic: str


class GrowTopic(msgspec.Struct, frozen=True):
    """The target topic has fewer partitions than the source topic."""

    source: Topic
    target: Topic


class TopicsPlan(msgspec.Struct, frozen=True):
    """What there is to do, and what can be copied already."""

    lanes: tuple[PlannedLane, ...] = ()
    """By source topic and partition."""
    create: tuple[CreateTopic, ...] = ()
    grow: tuple[GrowTopic, ...] = ()
    targets: Mapping[str, str] = {}
    """Target topic to source topic, of all that are copied or will be."""
    faults: Mapping[str, str] = {}
    """Source topics that cannot be copied, and why."""
    unanswered: Mapping[str, str] = {}
    """Source topics that cannot be copied as a policy of a third party gives no answer, or as somebody deleted their
    copy. No reason not to start: that may happen to any topic at any time."""
    remarks: Mapping[str, str] = {}
    """Source topics that are copied, and what is odd about them."""


def plan_topics(
    source: Iterable[Topic],
    target: Mapping[str, Topic],
    target_name: Callable[[str], str],
    claimed: Mapping[str, str],
    former: Mapping[tuple[TopicId, str], Collection[TopicId]] = {},
    *,
    on_deleted_copy: OnDeletedCopy = "create",
) -> TopicsPlan:
    """The plan for these selected source topics.

    `target_name` may raise PolicyFault. `target` holds the topics of the target cluster by name. `claimed` names target
    topics that must not be copied into, and why, as it goes on after "which". `former` are the ids of target topics
    that were copied into, by source topic and name.
    """
    lanes: list[PlannedLane] = []
    create: list[CreateTopic] = []
    grow: list[GrowTopic] = []
    targets: dict[str, str] = {}
    faults: dict[str, str] = {}
    unanswered: dict[str, str] = {}
    remarks: dict[str, str] = {}
    for topic in sorted(source):
        try:
            name = target_name(topic.name)
        except PolicyFault as nothing:
            unanswered[topic.name] = str(nothing)
            continue
        fault = _fault(topic, name, claimed.get(name, f"is the copy of {targets[name]}" if name in targets else ""))
        if fault:
            faults[topic.name] = fault
            continue
        targets[name] = topic.name
        there = target.get(name)
        known = former.get((topic.topic_id, name), ())
        if there is None and known and on_deleted_copy == "halt":
            unanswered[topic.name] = _DELETED.format(name)
            continue
        if there is None:
            if known:
                remarks[topic.name] = f"the target topic {name} was deleted: it is created and copied again"
            create.append(CreateTopic(topic, name))
            continue
        if known and there.topic_id not in known:
            remarks[topic.name] = f"the target topic {name} was deleted and created again: it is copied again"
        if there.partitions < topic.partitions:
            grow.append(GrowTopic(topic, there))
        elif there.partitions > topic.partitions:
            remarks[topic.name] = (
                f"the target topic {name} has {there.partitions} partitions, the source topic {topic.name} has "
                f"{topic.partitions}: keys that a producer spreads over the target's partitions lie elsewhere"
            )
        lanes += [
            PlannedLane(topic.name, LaneKey(topic.topic_id, partition, there.topic_id), name)
            for partition in range(min(topic.partitions, there.partitions))
        ]
    return TopicsPlan(tuple(lanes), tuple(create), tuple(grow), targets, faults, unanswered, remarks)


_DELETED = (
    'the target topic {} was deleted, and on_deleted_copy = "halt" does not create it again: create it, and it is '
    'copied again; or exclude the source topic, or set "create"'
)


def _fault(topic: Topic, name: str, claimed: str) -> str:
    if claimed:
        return f"topic name collision: {topic.name} would be copied into {name}, which {claimed}"
    if len(name) > LONGEST_NAME:
        return f"the target topic's name would have {len(name)} characters; Kafka allows {LONGEST_NAME}: {name}"
    return ""
