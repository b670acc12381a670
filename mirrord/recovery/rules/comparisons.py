"""Compares the configs, ACLs and client quotas of the target with those of the source, as the source was last seen."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from mirrord.config.schema import FlowConfig
from mirrord.kafka.protocol.configs import Setting
from mirrord.ledger.last_seen.configs_and_acls import SeenAcls, SeenSourceConfigs
from mirrord.ledger.last_seen.quotas import SeenQuotas
from mirrord.ledger.state import FlowState
from mirrord.model.acls import AclRule
from mirrord.model.quotas import ClientQuota
from mirrord.model.readiness import Comparison
from mirrord.topics.rules.acls import plan_acls
from mirrord.topics.rules.topic_configs import plan_settings, source_settings
from policies.acls import TopicNames, acl_policy
from policies.flow_policies import properties_of

NOT_RECORDED = "the source has not been recorded yet"
_SHOWN = 1_000
"""Maximum number of differences that are reported."""


def compare_configs(
    flow: FlowConfig,
    seen: SeenSourceConfigs,
    copies: Mapping[str, str],
    target: Mapping[str, Mapping[str, Setting]] | str,
    refused: Mapping[str, str],
) -> Comparison:
    """Compare the configs of topics. `copies` maps source topics to target topics. `target` holds the configs of the
    target topics, or says why none can be read. `refused` says why those of some topics cannot be read."""
    if not flow.sync.configs:
        return Comparison(note="sync.configs is false")
    if seen.at_ms < 0:
        return Comparison(note=NOT_RECORDED)
    if isinstance(target, str):
        return Comparison(seen_ms=seen.at_ms, note=target)
    rule, lines = properties_of(flow), list[str]()
    for source_topic, target_topic in sorted(copies.items()):
        here, there = seen.topics.get(source_topic), target.get(target_topic)
        if here is not None and there is not None:
            plan = plan_settings(source_settings(here, seen.known), there, rule)
            lines += [
                f"{target_topic}: {each.name} is {_shown(each.before)}, and {_shown(each.after)} on the source"
                for each in plan.changes
            ]
        elif here is None and there is not None:
            lines.append(f"{target_topic}: the configs of {source_topic} were never read")
    lines += [f"{topic}: its configs cannot be read: {why}" for topic, why in sorted(refused.items())]
    return Comparison(seen_ms=seen.at_ms, differences=_first(lines))


def compare_acls(
    flow: FlowConfig,
    state: FlowState,
    seen: SeenAcls,
    target: Iterable[AclRule] | str,
    names: Callable[[], TopicNames],
    copies: Iterable[str],
) -> Comparison:
    """Compare the ACLs. `target` holds those of the target, or says why they cannot be read. `copies` are the target
    topics."""
    if flow.sync.acls_mode == "off":
        return Comparison(note='sync.acls is "off"')
    if seen.at_ms < 0:
        return Comparison(note=seen.refused or NOT_RECORDED)
    if isinstance(target, str):
        return Comparison(seen_ms=seen.at_ms, note=target)
    there = frozenset(target)
    ours = state.acls | (state.planned_acls & there)
    plan = plan_acls(seen.rules, there, ours, acl_policy(flow.sync.acls_mode), names(), copies)
    lines = [f"missing on the target: {rule}" for rule in plan.add]
    lines += [f"no longer on the source: {rule}" for rule in plan.remove]
    lines += [f"cannot be copied: {rule}: {why}" for rule, why in plan.uncopyable]
    return Comparison(seen_ms=seen.at_ms, differences=_first(lines))


def compare_quotas(seen: SeenQuotas, target: Iterable[ClientQuota] | str) -> Comparison:
    """Compare the client quotas. `target` holds those of the target, or says why they cannot be read."""
    if seen.at_ms < 0:
        return Comparison(note=seen.refused or NOT_RECORDED)
    if isinstance(target, str):
        return Comparison(seen_ms=seen.at_ms, note=target)
    here, there = _by_limit(seen.quotas), _by_limit(target)
    lines = [f"missing on the target: {quota}" for limit, quota in here.items() if limit not in there]
    lines += [f"only on the target: {quota}" for limit, quota in there.items() if limit not in here]
    lines += [
        f"{quota.name} for {quota.clients} is {there[limit].shown_value} on the target, and {quota.shown_value} on the "
        "source"
        for limit, quota in here.items()
        if limit in there and there[limit].value != quota.value
    ]
    return Comparison(seen_ms=seen.at_ms, differences=_first(lines))


def _by_limit(quotas: Iterable[ClientQuota]) -> dict[tuple[object, str], ClientQuota]:
    return {(quota.entity, quota.name): quota for quota in sorted(quotas, key=str)}


def _first(lines: Sequence[str]) -> tuple[str, ...]:
    if len(lines) <= _SHOWN:
        return tuple(lines)
    return (*lines[:_SHOWN], f"{len(lines) - _SHOWN} more")


def _shown(value: str | None) -> str:
    return "not set" if value is None else f'"{value}"'
