"""What would keep a daemon from running, found before it begins. Nothing is altered.

A cluster that cannot be reached is let pass: the daemon keeps trying. That it refuses us, that a right is missing, that
two flows meet in one topic or that a flow's name belongs to other clusters does not get better by trying.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from mirrord.cluster.settings import TopicShape
from mirrord.cluster.topics import TopicsPlan
from mirrord.ledger.errors import ForeignFlow, LedgerUnavailable
from mirrord.model.config import Config, FlowConfig
from mirrord.model.config_checks import literal_prefix
from mirrord.model.errors import ConfigError, EnvironmentFault, MirrordError
from mirrord.model.facts import FlowOpened
from mirrord.model.names import Alias, ClusterId, ledger_topic, state_topic
from mirrord.shell.connections import Unreachable
from mirrord.shell.discovery import Claims, Discovery
from mirrord.shell.ledger_store import LedgerStore, check_clusters
from mirrord.shell.pipe import ConnectionLost
from mirrord.shell.topics import ClusterTopics, TopicAdmin

# org.apache.kafka.common.acl.AclOperation.
RIGHTS = {"READ": 3, "WRITE": 4, "DELETE": 6, "ALTER": 7}
_UNAUTHORIZED = "TOPIC_AUTHORIZATION_FAILED"
"""Kafka hides a topic that may not be described; asked for by name it says so (Errors.TOPIC_AUTHORIZATION_FAILED)."""


class _Clusters(NamedTuple):
    """The two clusters of a flow, both reachable."""

    source: TopicAdmin
    target: TopicAdmin
    source_id: ClusterId
    target_id: ClusterId


async def check_start(
    config: Config,
    admin: Callable[[Alias], TopicAdmin],
    ledger: Callable[[FlowConfig], LedgerStore],
) -> None:
    """Raises ConfigError or EnvironmentFault with a line for each fault that was found."""
    admins = {alias: admin(alias) for flow in config.flows for alias in (flow.source, flow.target)}
    try:
        ids = await _reach(admins)
        reached = [
            (flow, _Clusters(admins[flow.source], admins[flow.target], ids[flow.source], ids[flow.target]))
            for flow in config.flows
            if flow.source in ids and flow.target in ids
        ]
        await _check_names(reached, ledger)
        plans = await _check_collisions(reached)
        faults = await asyncio.gather(
            *(_missing_rights(flow, clusters, plans[flow.name]) for flow, clusters in reached)
        )
        _raise(EnvironmentFault, [line for lines in faults for line in lines])
    except (Unreachable, ConnectionLost, LedgerUnavailable):
        return  # it was reachable a moment ago; the daemon goes on trying
    finally:
        await asyncio.gather(*(each.close() for each in admins.values()))


async def _reach(admins: Mapping[Alias, TopicAdmin]) -> dict[Alias, ClusterId]:
    """The ids of the clusters that answer. Raises EnvironmentFault when one refuses us."""
    answers = await asyncio.gather(*(each.look([]) for each in admins.values()), return_exceptions=True)
    ids: dict[Alias, ClusterId] = {}
    faults: list[str] = []
    for alias, answer in zip(admins, answers, strict=True):
        if isinstance(answer, ClusterTopics):
            ids[alias] = answer.cluster_id
        elif isinstance(answer, EnvironmentFault) and not isinstance(answer, Unreachable | ConnectionLost):
            faults.append(f"cluster {alias}: {answer}")
        elif not isinstance(answer, EnvironmentFault):
            raise answer
    _raise(EnvironmentFault, faults)
    return ids


async def _check_names(
    reached: Iterable[tuple[FlowConfig, _Clusters]], ledger: Callable[[FlowConfig], LedgerStore]
) -> None:
    """No flow's ledger may belong to other clusters."""

    async def check(flow: FlowConfig, clusters: _Clusters) -> None:
        if ledger_topic(flow.name) not in (await clusters.target.look([ledger_topic(flow.name)])).topics:
            return
        store = ledger(flow)
        await store.open(read_only=True)
        try:
            check_clusters(store.state, FlowOpened(flow.name, clusters.source_id, clusters.target_id))
        finally:
            await store.close()

    answers = await asyncio.gather(*(check(flow, clusters) for flow, clusters in reached), return_exceptions=True)
    _raise(ConfigError, [str(answer) for answer in answers if isinstance(answer, ForeignFlow)])
    # What else a ledger suffers from concerns its flow alone: the daemon tells it, and runs the others.
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, MirrordError):
            raise answer


async def _check_collisions(reached: Iterable[tuple[FlowConfig, _Clusters]]) -> dict[str, TopicsPlan]:
    """What each flow has to do. Raises ConfigError when two of them would write one topic."""
    claims = Claims()
    plans: dict[str, TopicsPlan] = {}
    faults: list[str] = []
    for flow, clusters in reached:
        plan = plans[flow.name] = (await Discovery(flow, clusters.source, clusters.target, claims).look()).plan
        claims.hold(flow.name, clusters.target_id, plan.targets)
        faults += [f"flow {flow.name}: {line}" for line in plan.faults.values()]
    _raise(ConfigError, faults)
    return plans


async def _missing_rights(flow: FlowConfig, clusters: _Clusters, plan: TopicsPlan) -> list[str]:
    """A line for each topic that may not be used as the flow needs it."""
    own = [ledger_topic(flow.name), state_topic(flow.name)]
    selected = sorted(set(plan.targets.values()) | literal_names(flow))
    existing = sorted({lane.target_topic for lane in plan.lanes} | {step.target.name for step in plan.grow})
    source, target = await asyncio.gather(
        clusters.source.look(selected, rights=True), clusters.target.look([*existing, *own], rights=True)
    )
    grow = {step.target.name for step in plan.grow}
    needs = {topic: ["READ", "WRITE", *(["ALTER"] if topic in grow else [])] for topic in existing}
    needs |= {topic: ["READ", "WRITE", *(["DELETE"] if topic == own[0] else [])] for topic in own}
    lines = _lacking(flow.source, source, {topic: ["READ"] for topic in selected})
    lines += _lacking(flow.target, target, needs)
    absent = [topic for topic in own if topic not in target.topics]
    missing = {topic: TopicShape() for topic in (*(step.target_topic for step in plan.create), *absent)}
    refused = await clusters.target.create(missing, validate_only=True) if missing else {}
    lines += [
        f"cluster {flow.target}: the topic {topic} may not be created: {reason}"
        for topic, reason in refused.items()
        if "AUTHORIZATION_FAILED" in reason
    ]
    return [f"flow {flow.name}: {line}" for line in lines]


def literal_names(flow: FlowConfig) -> set[str]:
    """The topics that the flow names in full; one that may not be seen is told apart from one that is not there."""
    return {literal_prefix(pattern) for pattern in flow.topics if _is_literal(pattern)}


def _is_literal(pattern: str) -> bool:
    return literal_prefix(pattern) == pattern.replace("\\.", ".") and bool(pattern)


def _lacking(alias: Alias, seen: ClusterTopics, needs: Mapping[str, Iterable[str]]) -> list[str]:
    lines: list[str] = []
    for topic, rights in needs.items():
        if seen.refused.get(topic) == _UNAUTHORIZED:
            lines.append(f"cluster {alias}: the topic {topic} may not be seen ({_UNAUTHORIZED}): DESCRIBE is missing")
        elif topic in seen.allowed:
            missing = [right for right in rights if not seen.allowed[topic] >> RIGHTS[right] & 1]
            if missing:
                lines.append(f"cluster {alias}: {' and '.join(missing)} on the topic {topic} is missing")
    return lines


def _raise(kind: type[ConfigError | EnvironmentFault], lines: list[str]) -> None:
    if lines:
        raise kind("\n".join(lines))
