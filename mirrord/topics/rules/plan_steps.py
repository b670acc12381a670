"""Lists the changes that `mirrord start` would make to the clusters, as steps for operators.

The functions turn the plans of discovery and of the syncs into steps. `NOT_SYNCED` lists the resources that are never
synced. It is shown together with the steps, because an operator could otherwise conclude from an empty list of steps
that the two clusters do not differ.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import BROKER_DEFAULT, Topic
from mirrord.model.names import Alias, ledger_topic, probe_topic, state_topic
from mirrord.topics.rules.acls import AclsPlan
from mirrord.topics.rules.deletions import TopicCopy
from mirrord.topics.rules.topic_configs import SettingsPlan, replication_factor
from mirrord.topics.rules.topic_plan import TopicsPlan

NOT_SYNCED = (
    "client quotas",
    "SCRAM users and delegation tokens",
    "configs of clusters and brokers",
    "schemas of a schema registry",
)
"""Resources that no flow syncs."""


class PlanStep(msgspec.Struct, frozen=True, kw_only=True):
    """One change that `mirrord start` would make to one resource."""

    flow: str
    cluster: Alias
    action: Literal["create", "grow", "alter", "delete"]
    kind: Literal["topic", "setting", "acl", "group"]
    name: str
    detail: str
    """One line that describes the change."""


def topic_steps(flow: FlowConfig, plan: TopicsPlan, target: Mapping[str, Topic]) -> Iterator[PlanStep]:
    """Yield a step for each topic that would be created or would get more partitions. `target` contains the existing
    topics of the target, by name."""

    def step(action: Literal["create", "grow"], name: str, detail: str) -> PlanStep:
        return PlanStep(flow=flow.name, cluster=flow.target, action=action, kind="topic", name=name, detail=detail)

    for create in plan.create:
        number = create.source.partitions
        factor = replication_factor(flow.replication_factor, create.source.replicas)
        detail = f"for {create.source.name}: {_partitions(number)}, {replicas(factor)}"
        yield step("create", create.target_topic, detail)
    for grow in plan.grow:
        yield step("grow", grow.target.name, f"from {grow.target.partitions} to {_partitions(grow.source.partitions)}")
    yield from (step("create", name, what) for name, what in _own_topics(flow.name, target))


def _own_topics(flow: str, target: Collection[str]) -> Iterator[tuple[str, str]]:
    if ledger_topic(flow) not in target:
        yield ledger_topic(flow), "mirrord's ledger: 1 partition, kept forever, trimmed by mirrord"
        yield probe_topic(flow), "for the broker probe: 1 partition, deleted afterwards"
    if state_topic(flow) not in target:
        yield state_topic(flow), "mirrord's progress records and snapshots: 1 partition, compacted"


def _partitions(number: int) -> str:
    return f"{number} partition{'' if number == 1 else 's'}"


def replicas(factor: int) -> str:
    """Return the number of replicas of a new topic, in words."""
    if factor != BROKER_DEFAULT:
        return f"{factor} replica{'' if factor == 1 else 's'}"
    return "the brokers' default replication factor"


def setting_steps(flow: FlowConfig, plans: Mapping[str, SettingsPlan]) -> Iterator[PlanStep]:
    """Yield a step for each config of a target topic that would be changed, ordered by topic name."""
    for topic, plan in sorted(plans.items()):
        for change in plan.changes:
            detail = f"{change.name}: {_shown(change.before)} → {_shown(change.after)}"
            yield PlanStep(
                flow=flow.name, cluster=flow.target, action="alter", kind="setting", name=topic, detail=detail
            )


def acl_steps(flow: FlowConfig, plan: AclsPlan) -> Iterator[PlanStep]:
    """Yield a step for each ACL that would be created or deleted on the target."""
    for rule in plan.add:
        yield PlanStep(
            flow=flow.name, cluster=flow.target, action="create", kind="acl", name=rule.name, detail=f"{rule}"
        )
    for rule in plan.remove:
        yield PlanStep(
            flow=flow.name, cluster=flow.target, action="delete", kind="acl", name=rule.name, detail=f"{rule}"
        )


def deletion_steps(flow: FlowConfig, gone: Iterable[TopicCopy]) -> Iterator[PlanStep]:
    """Yield a step for each target topic that would be deleted because its source topic no longer exists."""
    grace = flow.delete_grace_ms / 1000
    for copy in gone:
        detail = f"{copy.source_topic} no longer exists; after {grace:g} s of grace"
        yield PlanStep(
            flow=flow.name, cluster=flow.target, action="delete", kind="topic", name=copy.topic, detail=detail
        )


def _shown(value: str | None) -> str:
    return "(default)" if value is None else value or '""'
