"""Finds everything that would keep a daemon from running, before the daemon starts. The checks change nothing.

An unreachable cluster is not reported, because the daemon keeps trying to reach it. Other faults do not go away when
the daemon tries again. Examples are a refused connection, a missing permission, two flows that write to the same topic,
and a flow with the same name that has copied between different clusters.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from mirrord.config.schema import Config, FlowConfig
from mirrord.control.token_ring import token_faults
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.client.topic_admin import ClusterTopics, TopicAdmin
from mirrord.ledger.errors import ForeignFlow, LedgerMissing, LedgerUnavailable
from mirrord.ledger.facts.core import FlowOpened
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.cluster_ids import check_clusters
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault, MirrordError
from mirrord.model.names import Alias, ClusterId
from mirrord.operations.granted_acls import lacking_lines, see_rights
from mirrord.operations.rules.required_acls import flows_into_source, needed_rights
from mirrord.supervision.failover.ended_flow import is_ended
from mirrord.supervision.renamed_alias import check_alias
from mirrord.topics.discovery import Discovery, DiscoveryPreview
from mirrord.topics.topic_claims import Claims


class _Ledger(NamedTuple):
    """The current state of a flow's ledger."""

    state: FlowState
    is_ended: bool = False
    """Whether a failover has ended the copying of the flow. Nothing can keep it from "running"."""


class _Clusters(NamedTuple):
    """The two clusters of a flow, both of which can be reached."""

    source: TopicAdmin
    target: TopicAdmin
    source_id: ClusterId
    target_id: ClusterId


async def check_restart(config: Config) -> None:
    """Check whether a daemon could start with a configuration that it has read again. Raises ConfigError or
    EnvironmentFault."""
    access = ClusterAccess(config)
    await check_start(config, access.admin, access.ledger)


async def check_start(
    config: Config,
    admin: Callable[[Alias], TopicAdmin],
    ledger: Callable[[FlowConfig], LedgerStore],
) -> None:
    """Check whether a daemon with this configuration could start. Raises ConfigError or EnvironmentFault with one line
    for each fault."""
    _raise(EnvironmentFault, list(token_faults(config.http)))
    admins = {alias: admin(alias) for flow in config.flows for alias in (flow.source, flow.target)}
    try:
        ids = await _reach(admins)
        reached = [
            (flow, _Clusters(admins[flow.source], admins[flow.target], ids[flow.source], ids[flow.target]))
            for flow in config.flows
            if flow.source in ids and flow.target in ids
        ]
        ledgers = await _ledgers(reached, ledger)
        reached = [each for each in reached if each[0].name not in ledgers or not ledgers[each[0].name].is_ended]
        previews = await _check_collisions(reached, ledgers, config.all_flows)
        faults = await asyncio.gather(
            *(
                _missing_rights(
                    flow,
                    clusters,
                    previews[flow.name],
                    flows_into_source(flow, config.all_flows, previews[flow.name].source.topics),
                )
                for flow, clusters in reached
            )
        )
        _raise(EnvironmentFault, [line for lines in faults for line in lines])
    except (Unreachable, ConnectionLost, LedgerUnavailable):
        return  # the cluster was reachable a moment ago; the daemon keeps trying
    finally:
        await asyncio.gather(*(each.close() for each in admins.values()))


async def _reach(admins: Mapping[Alias, TopicAdmin]) -> dict[Alias, ClusterId]:
    """Return the ids of the clusters that answer. Raises EnvironmentFault if a cluster refuses the connection."""
    answers = await asyncio.gather(*(each.describe([]) for each in admins.values()), return_exceptions=True)
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


async def _ledgers(
    reached: Iterable[tuple[FlowConfig, _Clusters]], ledger: Callable[[FlowConfig], LedgerStore]
) -> dict[str, _Ledger]:
    """Return the ledgers that can be read, by flow. Raises ConfigError if a ledger belongs to different clusters."""

    async def read(flow: FlowConfig, clusters: _Clusters) -> _Ledger:
        store = ledger(flow)
        try:
            await store.open(read_only=True)
        except LedgerMissing:
            return _Ledger(FlowState())
        try:
            if is_ended(store.state):
                return _Ledger(store.state, is_ended=True)
            check_clusters(store.state, FlowOpened(flow.name, clusters.source_id, clusters.target_id))
            check_alias(flow, store.state)
            return _Ledger(store.state)
        finally:
            await store.close()

    flows = [flow.name for flow, _ in reached]
    answers = await asyncio.gather(*(read(flow, clusters) for flow, clusters in reached), return_exceptions=True)
    _raise(ConfigError, [str(answer) for answer in answers if isinstance(answer, ForeignFlow)])
    # Any other fault of a ledger affects only the flow of that ledger. The daemon reports the fault and runs the other
    # flows.
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, MirrordError):
            raise answer
    return {name: answer for name, answer in zip(flows, answers, strict=True) if isinstance(answer, _Ledger)}


async def _check_collisions(
    reached: Iterable[tuple[FlowConfig, _Clusters]], ledgers: Mapping[str, _Ledger], flows: Sequence[FlowConfig]
) -> dict[str, DiscoveryPreview]:
    """Return the result of discovery for each flow. Raises ConfigError if a new flow would write to a topic of another
    flow.

    A flow that already has lanes starts in spite of such a collision, and reports the affected topic. Otherwise, a
    single topic that was created while the daemon was running would keep the daemon from copying all other topics after
    a restart.
    """
    claims = Claims(flows)
    for name, known in ledgers.items():
        claims.read(name, known)
    previews: dict[str, DiscoveryPreview] = {}
    faults: list[str] = []
    for flow, clusters in reached:
        seen = previews[flow.name] = await Discovery(flow, clusters.source, clusters.target, claims).preview()
        claims.hold(flow.name, clusters.target_id, seen.plan.targets)
        if flow.name in ledgers and not ledgers[flow.name].state.lanes:
            faults += [f"flow {flow.name}: {line}" for line in seen.plan.faults.values()]
    _raise(ConfigError, faults)
    return previews


async def _missing_rights(
    flow: FlowConfig, clusters: _Clusters, preview: DiscoveryPreview, into_source: Collection[str]
) -> list[str]:
    """Return one line for each topic on which the flow lacks an indispensable permission.

    `mirrord check` reports other missing permissions.
    """
    needs = needed_rights(flow, preview.plan, preview.target.topics, into_source=into_source)
    needs = [need for need in needs if need.missing == "error"]
    admins = {flow.source: clusters.source, flow.target: clusters.target}
    rights, _ = await see_rights(flow, needs, admins, {}, {})
    return lacking_lines(rights)


def _raise(kind: type[ConfigError | EnvironmentFault], lines: list[str]) -> None:
    if lines:
        raise kind("\n".join(lines))
