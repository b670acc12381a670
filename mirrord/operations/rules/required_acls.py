"""The permissions that a flow needs on its two clusters, and the consequence of each missing one.

`mirrord check` lists all permissions. Each one has a severity: `mirrord start` fails if a permission with the severity
"error" is missing. Both commands use only the permissions in this module. A flow only reads from its source, unless the
configuration enables a feature that writes there.

Operations are those of org.apache.kafka.common.acl.AclOperation. READ, WRITE, DELETE and ALTER imply DESCRIBE, and
ALTER_CONFIGS implies DESCRIBE_CONFIGS. Implied operations are not listed separately. Requesting a producer id requires
only WRITE on any topic (KIP-679).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Literal, NamedTuple

import msgspec

from mirrord.config.cross_checks import literal_prefix
from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.mm2.rules.internal_topics import WrittenTopic, written_topics
from mirrord.model.findings import Severity, worse
from mirrord.model.names import (
    Alias,
    dead_letter_topic,
    flow_of_ledger,
    ledger_topic,
    parking_id,
    probe_topic,
    repair_topic,
    state_topic,
)
from mirrord.topics.rules.topic_plan import TopicsPlan
from policies.mm2_names import HEARTBEATS

Operation = Literal[
    "READ",
    "WRITE",
    "CREATE",
    "DELETE",
    "ALTER",
    "DESCRIBE",
    "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS",
]
Resource = Literal["cluster", "topic", "group", "transactional-id"]

CODES: dict[Operation, int] = {
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
}
"""Maps each operation to its bit number in the allowed operations that a broker reports (KIP-430)."""
_IMPLY: dict[str, tuple[Operation, ...]] = {
    "DESCRIBE": ("READ", "WRITE", "DELETE", "ALTER"),
    "DESCRIBE_CONFIGS": ("ALTER_CONFIGS",),
}
"""Maps an operation to the operations that imply it."""
KAFKA_CLUSTER = "kafka-cluster"
"""The only name that a resource of the type "cluster" can have."""


FENCING: tuple[Operation, ...] = ("ALTER", "CLUSTER_ACTION")
"""Operations on the target cluster. With one of them, a failover can fence off late batches of suspended processes:
ALTER since Kafka 3.8 (KIP-1037), CLUSTER_ACTION with every version. Both permit much more than that, and everything
else works without them. They are therefore optional, and no `Need` contains them for this purpose."""


class Right(msgspec.Struct, frozen=True, order=True):
    """A permission: one operation on one resource of one cluster."""

    cluster: Alias
    resource: Resource
    name: str
    """The name of the resource. For a group or a transactional id, it may be a prefix followed by `*`."""
    operation: Operation

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource_name}"

    @property
    def resource_name(self) -> str:
        """The resource in words, for messages to operators."""
        return "the cluster" if self.resource == "cluster" else f"the {self.resource.replace('-', ' ')} {self.name}"


class Need(msgspec.Struct, frozen=True):
    """A permission that a flow needs, and its purpose."""

    right: Right
    missing: Severity
    """The consequence if the permission is missing. "error": a start fails. "warning": a task is not done, or a lane is
    unprotected or may halt. "note": copying is not affected, but a report is incomplete, a minor task is not done, or
    an operator command fails."""
    purpose: str


class LeftByMm2(NamedTuple):
    """The topic and the consumer group on the target that MirrorMaker 2 used, if it ever copied the topics of this
    flow."""

    offsets_topic: str
    group: str
    """The consumer group that consists of MirrorMaker 2's workers."""


def needed_rights(
    flow: FlowConfig,
    plan: TopicsPlan,
    target: Mapping[str, Topic],
    *,
    hidden: Collection[str] = (),
    left: LeftByMm2 | None = None,
    into_source: Collection[str] = (),
    into_target: Collection[str] = (),
) -> list[Need]:
    """Return all permissions that the flow needs for these topics, without duplicates.

    - `target` holds the topics that exist on the target.
    - `hidden` names source topics that have been copied but are no longer visible.
    - `left` is given if the target holds records of a partition that mirrord has never copied. MirrorMaker 2 may have
      copied these records (`mirrord.replication.lane.mm2_position`).
    - `into_source` names the flows that may have copied records into the source under identical names. It is a result
      of `flows_into_source`.
    - `into_target` names the flows into the target whose ledgers are needed to translate the positions of consumer
      groups. It is a result of `flows_into_target`.
    """
    needs: dict[Right, Need] = {}
    every = (
        _source(flow, plan),
        _hidden(flow, hidden),
        _origins(flow, into_source, into_target),
        _own_topics(flow, target),
        _copies(flow, plan),
        _features(flow, plan, target),
        _legacy(flow, left),
    )
    for need in chain.from_iterable(every):
        known = needs.get(need.right)
        if known is None or worse(need.missing, known.missing):
            needs[need.right] = need
    groups = [right for right in needs if right.resource == "group"]
    return [
        need
        for right, need in needs.items()
        if not any(_with(right, other) in needs for other in _IMPLY.get(right.operation, ()))
        and not any(_covers(other, right) for other in groups)
    ]


def named_topics(flow: FlowConfig) -> set[str]:
    """Return the topics that the flow's configuration lists by their full names.

    These topics are expected to exist, so their permissions are needed even if mirrord does not see them. If any other
    topic is not visible, mirrord cannot determine whether the topic does not exist or a permission is missing.
    """
    return {literal_prefix(pattern) for pattern in flow.topics if _is_literal(pattern)}


def _groups(flow: FlowConfig) -> list[str]:
    names = {
        literal_prefix(pattern) + ("" if _is_literal(pattern) else "*") for pattern in flow.groups.match if pattern
    }
    return ["*"] if "*" in names else sorted(names)


def _is_literal(pattern: str) -> bool:
    return literal_prefix(pattern) == pattern.replace("\\.", ".") and bool(pattern)


def _covers(one: Right, other: Right) -> bool:
    """Return whether a permission on all groups with a common prefix includes the other permission."""
    return (
        (one.cluster, one.resource) == (other.cluster, other.resource)
        and one.operation in (other.operation, *_IMPLY.get(other.operation, ()))
        and one.name.endswith("*")
        and other.name.startswith(one.name[:-1])
        and other.name != one.name
    )


def _with(right: Right, operation: Operation) -> Right:
    return msgspec.structs.replace(right, operation=operation)


def _topic(cluster: Alias, name: str, *wanted: tuple[Operation, Severity, str]) -> Iterator[Need]:
    for operation, missing, purpose in wanted:
        yield Need(Right(cluster, "topic", name, operation), missing, purpose)


def _cluster(cluster: Alias, operation: Operation, purpose: str) -> Need:
    return Need(Right(cluster, "cluster", KAFKA_CLUSTER, operation), "warning", purpose)


def _source(flow: FlowConfig, plan: TopicsPlan) -> Iterator[Need]:
    for name in sorted({*plan.targets.values(), *named_topics(flow)}):
        yield from _topic(
            flow.source,
            name,
            ("READ", "error", "to copy it"),
            (
                "DESCRIBE_CONFIGS",
                "warning" if flow.sync.configs else "note",
                "to see the configs that are synced to the target",
            ),
        )


def _hidden(flow: FlowConfig, hidden: Collection[str]) -> Iterator[Need]:
    purpose = "to keep copying it, unless it was deleted: Kafka reports hidden topics and deleted ones in the same way"
    for name in sorted(hidden):
        yield from _topic(flow.source, name, ("READ", "warning", purpose))


def flows_into_source(flow: FlowConfig, flows: Iterable[FlowConfig], there: Iterable[str] = ()) -> list[str]:
    """Return the names of flows that may have copied records into the source of this flow. These copies must not be
    copied further.

    The result contains flows in the configuration. It also contains every flow that has a ledger topic among the topics
    `there` on the source, because `mirrord.ledger.store.all_ledgers` reads all of these ledgers. The result is empty
    unless `naming = "identity"` is set for this flow.
    """
    if flow.naming != "identity":
        return []
    named = [each.name for each in flows if each.target == flow.source and each.naming == "identity"]
    return list(dict.fromkeys([*named, *_flows_of(there)]))


def flows_into_target(flow: FlowConfig, flows: Iterable[FlowConfig], there: Iterable[str] = ()) -> list[str]:
    """Return the names of other flows into the target whose ledgers are needed to translate the positions of consumer
    groups.

    The result contains flows in the configuration and flows that have a ledger topic among the topics `there` on the
    target. This flow itself is not included.
    """
    if not (flow.groups.both_ways and flow.follows_groups):
        return []
    named = [each.name for each in flows if each.target == flow.target and each.naming == "identity"]
    return [name for name in dict.fromkeys([*named, *_flows_of(there)]) if name != flow.name]


def _flows_of(topics: Iterable[str]) -> list[str]:
    return sorted(flow for topic in topics if (flow := flow_of_ledger(topic)))


def _origins(flow: FlowConfig, into_source: Collection[str], into_target: Collection[str]) -> Iterator[Need]:
    for name in into_source:
        for topic in (ledger_topic(name), state_topic(name)):
            yield from _topic(flow.source, topic, ("READ", "error", f"to know what the flow {name} has copied there"))
    for name in into_target:
        purpose = f"to place groups among the records that the flow {name} has copied there (groups.both_ways)"
        for topic in (ledger_topic(name), state_topic(name)):
            yield from _topic(flow.target, topic, ("READ", "warning", purpose))


def _own_topics(flow: FlowConfig, target: Collection[str]) -> Iterator[Need]:
    for name in (ledger_topic(flow.name), state_topic(flow.name)):
        if name not in target:
            yield from _topic(flow.target, name, ("CREATE", "error", "to create the ledger"))
        yield from _topic(
            flow.target,
            name,
            ("READ", "error", "to know what was done"),
            ("WRITE", "error", "to record what is done"),
            ("DESCRIBE_CONFIGS", "note", "to check that its configs do not lose facts"),
            ("ALTER_CONFIGS", "note", "to correct such configs"),
        )
    yield from _topic(
        flow.target, ledger_topic(flow.name), ("DELETE", "error", ("to trim entries that snapshots contain"))
    )
    probe = "to probe what exactly-once copying relies on"
    yield from _topic(
        flow.target,
        probe_topic(flow.name),
        ("CREATE", "warning", probe),
        ("READ", "warning", probe),
        ("WRITE", "warning", probe),
        ("DELETE", "note", "to delete the probe topic afterwards"),
    )
    yield from _dead_letters(flow, target)
    yield from _repairs(flow, target)


def _dead_letters(flow: FlowConfig, target: Collection[str]) -> Iterator[Need]:
    """Yield the permissions for the dead-letter topic.

    Unless `on_reject = "skip"` is set, only operator commands need these permissions. A command that lacks one of them
    fails and says so.
    """
    name = dead_letter_topic(flow.name)
    by_policy = flow.on_reject == "skip"
    missing: Severity = "warning" if by_policy else "note"
    who = 'on_reject = "skip"' if by_policy else "mirrord quarantine skip"
    parking = f"to park skipped records ({who})"
    if name not in target:
        yield from _topic(flow.target, name, ("CREATE", missing, parking))
    yield from _topic(
        flow.target,
        name,
        ("WRITE", missing, parking),
        ("READ", missing, ("to read parked records, and to bring them back")),
    )
    yield Need(Right(flow.target, "transactional-id", f"{parking_id(name, '')}*", "WRITE"), missing, parking)


def _repairs(flow: FlowConfig, target: Collection[str]) -> Iterator[Need]:
    """Yield the permissions for the repair topic. Only `mirrord repair` needs them, to store records that an audit
    found to be missing."""
    name, why = repair_topic(flow.name), "to store records that an audit found missing (mirrord repair)"
    if name not in target:
        yield from _topic(flow.target, name, ("CREATE", "note", why))
    yield from _topic(
        flow.target, name, ("WRITE", "note", why), ("READ", "note", ("to see which records are there already"))
    )
    yield Need(Right(flow.target, "transactional-id", f"{parking_id(name, '')}*", "WRITE"), "note", why)


def _copies(flow: FlowConfig, plan: TopicsPlan) -> Iterator[Need]:
    missing = {step.target_topic for step in plan.create}
    growing = {step.target.name for step in plan.grow}
    to_read_configs = (
        "to see whether it is compacted, and what it would refuse or rewrite; without it, a partition may halt if its "
        "log loses records, and records that are deleted before they are compared count as copied"
    )
    for name in sorted(plan.targets):
        if name in missing:
            yield from _topic(flow.target, name, ("CREATE", "error", "to create it"))
        yield from _topic(
            flow.target,
            name,
            ("READ", "error", "to read its records"),
            ("WRITE", "error", "to copy into it"),
            ("ALTER", "error" if name in growing else "warning", "to grow it when the source topic grows"),
            ("DESCRIBE_CONFIGS", "warning", to_read_configs),
        )
    remembered = "to know how long producers are remembered; without it, no lane is protected"
    yield _cluster(flow.target, "DESCRIBE_CONFIGS", remembered)


def _features(flow: FlowConfig, plan: TopicsPlan, target: Collection[str]) -> Iterator[Need]:
    """Yield the permissions for the optional features that the configuration enables."""
    if flow.sync.configs:
        for name in sorted(plan.targets):
            yield from _topic(flow.target, name, ("ALTER_CONFIGS", "warning", "to keep its configs in sync"))
    if flow.sync.acls_mode != "off":
        yield _cluster(flow.source, "DESCRIBE", "to read ACLs")
        yield _cluster(flow.target, "ALTER", "to write ACLs")
    if flow.propagate_deletes:
        for name in sorted(plan.targets):
            yield from _topic(flow.target, name, ("DELETE", "warning", "to delete it when the source topic is deleted"))
    yield from _of_groups(flow)
    for topic in written_topics(flow):
        yield from _written(flow, topic, target)
    if HEARTBEATS in plan.targets.values():
        clocks = "to compare the clocks of both clusters, for the latency from copied heartbeats"
        for cluster in (flow.source, flow.target):
            yield Need(Right(cluster, "cluster", KAFKA_CLUSTER, "DESCRIBE"), "note", clocks)


def _of_groups(flow: FlowConfig) -> Iterator[Need]:
    if not flow.follows_groups:
        return
    at_once = "to learn of commits when they are made; without it, groups are polled for them"
    yield from _topic(flow.source, "__consumer_offsets", ("READ", "note", at_once))
    there: tuple[Operation, str] = ("READ", "to commit for groups")
    if flow.groups.mode == "off":
        there = ("DESCRIBE", "to see the positions of groups on the target")
    for name in _groups(flow):
        yield Need(Right(flow.source, "group", name, "DESCRIBE"), "warning", "to read what groups have committed")
        yield Need(Right(flow.target, "group", name, there[0]), "warning", there[1])
        if flow.groups.reverse:
            purpose = "to keep groups on the source in sync with the target (groups.reverse)"
            yield Need(Right(flow.source, "group", name, "READ"), "warning", purpose)
    if flow.groups.reverse:
        yield from _topic(flow.target, "__consumer_offsets", ("READ", "note", at_once))


def _legacy(flow: FlowConfig, left: LeftByMm2 | None) -> Iterator[Need]:
    """Yield the permissions that are needed to take over from MirrorMaker 2.

    A missing permission results only in a warning, because it is not known whether MirrorMaker 2 was ever used.
    Partitions that it did not copy need none of these permissions.
    """
    if left is None or flow.from_mm2.takeover == "off":
        return
    waits = 'partitions whose target holds records wait without it, unless from_mm2.takeover is "off"'
    purpose = f"to continue where MirrorMaker 2 left off, if it has copied here before: {waits}"
    yield from _topic(flow.target, left.offsets_topic, ("READ", "warning", purpose))
    purpose = "to see that MirrorMaker 2 is no longer copying, if it has copied here before"
    yield Need(Right(flow.target, "group", left.group, "DESCRIBE"), "warning", purpose)


def _written(flow: FlowConfig, topic: WrittenTopic, target: Collection[str]) -> Iterator[Need]:
    purpose = f"to write {topic.what}"
    # Only the copied topics of the source are known here, so it is not known whether this topic exists on the source.
    if topic.cluster == flow.source or topic.name not in target:
        yield from _topic(topic.cluster, topic.name, ("CREATE", "warning", f"{purpose}, if the topic does not exist"))
    yield from _topic(topic.cluster, topic.name, ("WRITE", "warning", purpose))
    if topic.is_read:
        yield from _topic(topic.cluster, topic.name, ("READ", "warning", f"{purpose} that never go back"))
