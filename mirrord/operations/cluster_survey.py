"""Surveys both clusters of every flow once, for commands that change nothing."""

import asyncio

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.operations.status_report import LedgerView, read_ledgers
from mirrord.topics.discovery import Discovery, DiscoveryPreview
from mirrord.topics.rules.topic_list import TopicLine, topic_lines
from mirrord.topics.topic_claims import Claims


class FlowSurvey(msgspec.Struct, frozen=True):
    """The survey of one flow: the topics on its two clusters, and what `mirrord start` would do."""

    flow: FlowConfig
    preview: DiscoveryPreview
    lines: tuple[TopicLine, ...]
    """The description of every source topic: its target topic, or why it is not copied."""


async def survey_flows(config: Config, access: ClusterAccess) -> dict[str, FlowSurvey | EnvironmentFault]:
    """Survey every flow. Return the results by flow name, in the order of the configuration.

    If one of a flow's clusters does not answer, the result for this flow is the error.
    """
    aliases = dict.fromkeys(alias for flow in config.flows for alias in (flow.source, flow.target))
    admins = {alias: access.admin(alias) for alias in aliases}
    claims = await _claims(config, access)
    surveys: dict[str, FlowSurvey | EnvironmentFault] = {}
    try:
        # The flows are surveyed in order. As in a daemon, the first flow that claims a target topic gets it.
        for flow in config.flows:
            surveys[flow.name] = await _survey(flow, admins[flow.source], admins[flow.target], claims)
    finally:
        await asyncio.gather(*(each.close() for each in admins.values()))
    return surveys


async def _claims(config: Config, access: ClusterAccess) -> Claims:
    """Return the claims on target topics, according to the ledgers: which flow writes to each target topic, and which
    source topic is copied to it."""
    claims = Claims(config.all_flows)
    for name, view in (await read_ledgers(config, access)).items():
        if isinstance(view, LedgerView):
            claims.read(name, view)
    return claims


async def _survey(
    flow: FlowConfig, source: TopicAdmin, target: TopicAdmin, claims: Claims
) -> FlowSurvey | EnvironmentFault:
    discovery = Discovery(flow, source, target, claims)
    faults: list[str] = []
    # The target is queried even if the query of the source fails, so that the errors of both clusters are reported.
    for alias, cluster in ((flow.source, source), (flow.target, target)):
        try:
            await cluster.describe([])
        except EnvironmentFault as fault:
            faults.append(f"cluster {alias}: {fault}")
    if faults:
        return EnvironmentFault("; ".join(faults))
    try:
        preview = await discovery.preview()
    except EnvironmentFault as fault:
        return fault
    claims.hold(flow.name, preview.target.cluster_id, preview.plan.targets)
    lines = topic_lines(preview.source.topics.values(), preview.plan, discovery.selection, flow.target)
    return FlowSurvey(flow, preview, tuple(lines))


def recorded_lines(view: LedgerView | MirrordError) -> list[TopicLine]:
    """Return a description of each topic that is recorded in the flow's ledger. The list is empty if the ledger cannot
    be read."""
    if not isinstance(view, LedgerView):
        return []
    partitions: dict[tuple[str, str], set[int]] = {}
    for lane in view.state.lanes.values():
        partitions.setdefault((lane.source_topic, lane.target_topic), set()).add(lane.partition)
    return [
        TopicLine(source, target, len(numbers), "recorded", "from the ledger: the source was not asked")
        for (source, target), numbers in sorted(partitions.items())
    ]
