"""Config changes, ACL changes and deletions as steps for people."""

from collections.abc import Iterable, Iterator, Mapping

from mirrord.config.schema import FlowConfig
from mirrord.topics.rules.acls import AclsPlan
from mirrord.topics.rules.deletions import TopicCopy
from mirrord.topics.rules.plan_steps import PlanStep
from mirrord.topics.rules.topic_configs import SettingsPlan


def setting_steps(flow: FlowConfig, plans: Mapping[str, SettingsPlan]) -> Iterator[PlanStep]:
    """Yield a step for each config change of a target topic, ordered by topic name."""
    for topic, plan in sorted(plans.items()):
        for change in plan.changes:
            detail = f"{change.name}: {_shown(change.before)} → {_shown(change.after)}"
            yield PlanStep(
                flow=flow.name, cluster=flow.target, action="alter", kind="setting", name=topic, detail=detail
            )


def acl_steps(flow: FlowConfig, plan: AclsPlan) -> Iterator[PlanStep]:
    """Yield a step for each ACL that is added or removed."""
    for rule in plan.add:
        yield PlanStep(
            flow=flow.name, cluster=flow.target, action="create", kind="acl", name=rule.name, detail=f"{rule}"
        )
    for rule in plan.remove:
        yield PlanStep(
            flow=flow.name, cluster=flow.target, action="delete", kind="acl", name=rule.name, detail=f"{rule}"
        )


def deletion_steps(flow: FlowConfig, gone: Iterable[TopicCopy]) -> Iterator[PlanStep]:
    """Yield a step for each copy whose source topic no longer exists, in a flow that propagates deletions."""
    grace = flow.delete_grace_ms / 1000
    for copy in gone:
        detail = f"{copy.source_topic} is gone; after {grace:g} s of grace"
        yield PlanStep(
            flow=flow.name, cluster=flow.target, action="delete", kind="topic", name=copy.topic, detail=detail
        )


def _shown(value: str | None) -> str:
    return "(default)" if value is None else value or '""'
