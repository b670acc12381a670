"""Plans a flow's lanes and the target topics that the flow needs. Only partitions that exist on both the source and the
target get a lane.

If one topic cannot be copied, other topics are not affected. Lanes are identified by topic ids. If a topic is deleted
and re-created, the plan contains new lanes instead of the former lanes.

Code that needs the target topic of a source topic must use `TopicsPlan.names`. This mapping considers both the flow's
naming and the names that the ledger has assigned.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from mirrord.config.schema import OnDeletedCopy
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import CopyNamed
from mirrord.model.errors import PolicyFault
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.topics.rules.colliding_names import plain_form, plain_forms
from mirrord.topics.rules.recreated_topic_names import NAMING_ALONE, CopyNames

LONGEST_NAME = 249
"""Maximum length of a topic's name, in characters (org.apache.kafka.common.internals.Topic)."""


class PlannedLane(msgspec.Struct, frozen=True, order=True):
    """A lane that the flow should have."""

    source_topic: str
    key: LaneKey
    target_topic: str

    @property
    def lane(self) -> LaneId:
        """The id of the lane."""
        return self.key.id


class CreateTopic(msgspec.Struct, frozen=True):
    """The step that creates a missing target topic for a source topic."""

    source: Topic
    target_topic: str


class GrowTopic(msgspec.Struct, frozen=True):
    """The step that adds partitions to a target topic that has fewer partitions than its source topic."""

    source: Topic
    target: Topic


class TopicsPlan(msgspec.Struct, frozen=True):
    """The topics and partitions to create on the target, and the lanes for the partitions that already exist there."""

    lanes: tuple[PlannedLane, ...] = ()
    """The lanes whose source partition and target partition exist, ordered by source topic and partition."""
    create: tuple[CreateTopic, ...] = ()
    grow: tuple[GrowTopic, ...] = ()
    targets: Mapping[str, str] = {}
    """The source topic of each target topic. Only topics that are copied or will be copied are included."""
    names: Mapping[str, str] = {}
    """The target topic of each source topic. Topics that cannot be copied are included."""
    unbound: tuple[CopyNamed, ...] = ()
    """Names that the plan has chosen for separate target topics (see `mirrord.topics.rules.recreated_topic_names`).
    They must be written to the ledger before these topics are created."""
    faults: Mapping[str, str] = {}
    """Source topics that cannot be copied, with the reasons."""
    unanswered: Mapping[str, str] = {}
    """Further source topics that cannot be copied, with the reasons. Such a reason may arise at any time, even after
    the flow has started, so these topics do not prevent a start.

    There are three possible reasons: a user's policy returns no valid result, the target topic was deleted, or the name
    of a separate target topic is not in the ledger yet.
    """
    remarks: Mapping[str, str] = {}
    """By source topic: a line for operators about a topic that is copied but needs attention. For example, the target
    topic has more partitions than the source topic."""
    beyond_limits: frozenset[str] = frozenset()
    """Source topics in `unanswered` that are not copied, or not completely, because of the flow's limits."""

    def without_unbound(self) -> "TopicsPlan":
        """Return this plan without the steps that create topics whose names must first be written to the ledger
        (`unbound`).
        """
        if not self.unbound:
            return self
        waiting = {each.source_topic: _UNBOUND.format(each.target_topic) for each in self.unbound}
        return msgspec.structs.replace(
            self,
            create=tuple(step for step in self.create if step.source.name not in waiting),
            unanswered={**self.unanswered, **waiting},
        )


def plan_topics(
    source: Iterable[Topic],
    target: Mapping[str, Topic],
    target_name: Callable[[str], str],
    claimed: Mapping[str, str],
    former: Mapping[tuple[TopicId, str], Collection[TopicId]] = {},
    copy_names: CopyNames = NAMING_ALONE,
    *,
    on_deleted_copy: OnDeletedCopy = "create",
) -> TopicsPlan:
    """Plan the target topics and lanes for these source topics, which the flow has selected.

    `target_name` applies the flow's naming and may raise PolicyFault. Names in `copy_names` take precedence. `claimed`
    contains the reasons why the flow must not copy into some target topics. Each reason continues the sentence "would
    be copied into X, which". `former` is the result of `mirrord.topics.rules.recreated_topic_names.former_copies`.
    """
    lanes: list[PlannedLane] = []
    create: list[CreateTopic] = []
    grow: list[GrowTopic] = []
    targets: dict[str, str] = {}
    faults: dict[str, str] = {}
    remarks: dict[str, str] = {}
    topics = sorted(source)
    former_names = _former_names(former)
    names, unbound, unanswered = _named(topics, target_name, copy_names, (*target, *claimed))
    owners = copy_names.owners()
    for topic in topics:
        if (name := names.get(topic.name)) is None:
            continue
        if fault := _fault(topic, name, claimed.get(name, _owned(topic, targets.get(name), owners.get(name)))):
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
            remarks[topic.name] = f"the target topic {name} was deleted and re-created: it is copied again"
        for other in _other_copies(topic, name, target, former, former_names):
            remarks.setdefault(topic.name, _RENAMED.format(other, name))
        if there.partitions < topic.partitions:
            grow.append(GrowTopic(topic, there))
        elif there.partitions > topic.partitions:
            remarks[topic.name] = (
                f"the target topic {name} has {there.partitions} partitions, the source topic {topic.name} has "
                f"{topic.partitions}: for the same key, a producer to the target may choose a different partition"
            )
        lanes += [
            PlannedLane(topic.name, LaneKey(topic.topic_id, partition, there.topic_id), name)
            for partition in range(min(topic.partitions, there.partitions))
        ]
    chosen = tuple(each for each in unbound if each.source_topic not in faults)
    return TopicsPlan(tuple(lanes), tuple(create), tuple(grow), targets, names, chosen, faults, unanswered, remarks)


def _other_copies(
    topic: Topic,
    name: str,
    target: Mapping[str, Topic],
    former: Mapping[tuple[TopicId, str], Collection[TopicId]],
    former_names: Mapping[TopicId, Iterable[str]],
) -> list[str]:
    """Return the names of existing target topics, other than `name`, into which the source topic has been copied."""
    return [
        other
        for other in former_names.get(topic.topic_id, ())
        if other != name and other in target and target[other].topic_id in former[topic.topic_id, other]
    ]


def _named(
    topics: Sequence[Topic], target_name: Callable[[str], str], copy_names: CopyNames, others: Iterable[str]
) -> tuple[dict[str, str], list[CopyNamed], dict[str, str]]:
    """Return three results: the name of each source topic's target topic, the facts about names that have just been
    chosen for separate target topics, and the reasons why the remaining source topics have no target name.

    `others` are the names of target topics that exist or that belong to other flows.
    """
    names: dict[str, str] = {}
    unanswered: dict[str, str] = {}
    for topic in topics:
        try:
            names[topic.name] = copy_names.of(topic.topic_id) or target_name(topic.name)
        except PolicyFault as nothing:
            unanswered[topic.name] = str(nothing)
    new = [topic for topic in topics if topic.name in names and copy_names.needs_own(topic.name, topic.topic_id)]
    unbound: list[CopyNamed] = []
    if new:
        bound = (each.target_topic for each in copy_names.bound.values())
        taken = plain_forms((*others, *names.values(), *bound, *copy_names.held))
        for topic in new:
            name = names[topic.name] = copy_names.chosen(names[topic.name], taken)
            taken.add(plain_form(name))
            unbound.append(CopyNamed(topic.name, topic.topic_id, name))
    return names, unbound, unanswered


def _former_names(former: Iterable[tuple[TopicId, str]]) -> dict[TopicId, list[str]]:
    """Return the names of all target topics that each source topic was copied into, by source topic id."""
    names: dict[TopicId, list[str]] = {}
    for topic_id, name in former:
        names.setdefault(topic_id, []).append(name)
    return names


_RENAMED = "it was copied into {} before, which gets no more records: its target topic is now {}"

_DELETED = (
    'the target topic {} was deleted, and on_deleted_copy = "halt" does not create it again: create it, and it is '
    'copied again; or exclude the source topic, or set "create"'
)


_UNBOUND = "its separate target topic, {}, is created once the ledger has that name"


def _owned(topic: Topic, planned: str | None, named: CopyNamed | None) -> str:
    """If the target topic already belongs to another source topic, return a phrase that names that source topic.
    Otherwise, return an empty string."""
    if planned is None and (named is None or named.source_topic_id == topic.topic_id):
        return ""
    return f"is the copy of {planned or (named.source_topic if named else '')}"


def _fault(topic: Topic, name: str, claimed: str) -> str:
    if claimed:
        return f"topic name collision: {topic.name} would be copied into {name}, which {claimed}"
    if len(name) > LONGEST_NAME:
        return f"the target topic's name would have {len(name)} characters; Kafka allows {LONGEST_NAME}: {name}"
    return ""
