"""Collects, from all parts of mirrord that alter clusters, the steps that `mirrord start` would take for one flow."""

import asyncio

import msgspec

from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import ConfigChange
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.mm2.rules.internal_topics import mm2_steps
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.operations.hazard_survey import read_state
from mirrord.topics.acl_sync import compare, rights_of
from mirrord.topics.config_sync import SettingsSync, pairs_of
from mirrord.topics.deletion_sync import gone_copies
from mirrord.topics.discovery import DiscoveryPreview
from mirrord.topics.rules.plan_steps import PlanStep, acl_steps, deletion_steps, setting_steps, topic_steps
from mirrord.topics.rules.recreated_topic_names import copy_names
from mirrord.topics.rules.topic_configs import SettingsPlan, plan_settings
from policies.flow_policies import properties_of, selection_of


async def planned_steps(config: Config, survey: FlowSurvey) -> list[PlanStep]:
    """Return all steps that `mirrord start` would carry out for the flow, in this order. Raises EnvironmentFault."""
    flow, preview = survey.flow, survey.preview
    if any(goes_back(flow, other) for other in config.all_flows):
        flow = msgspec.structs.replace(flow, propagate_deletes=False)  # topics copied both ways are never deleted
    access = ClusterAccess(config)
    try:
        ledger = await read_state(flow, access.ledger)
    except LedgerMissing:
        ledger = FlowState()
    source, target = access.upkeep(flow.source), access.upkeep(flow.target)
    try:
        upkeep = await upkeep_steps(flow, preview, ledger, source, target)
    finally:
        await asyncio.gather(source.close(), target.close())
    there = (preview.source.topics, preview.target.topics)
    return [*topic_steps(flow, preview.plan, preview.target.topics), *upkeep, *mm2_steps(flow, *there)]


async def upkeep_steps(
    flow: FlowConfig, preview: DiscoveryPreview, ledger: FlowState, source: UpkeepAdmin, target: UpkeepAdmin
) -> list[PlanStep]:
    """Return the steps that alter configs, alter ACLs and delete topics, in the order in which `mirrord start` would
    carry them out. Raises EnvironmentFault if a cluster does not answer."""
    steps = list(setting_steps(flow, await _settings(flow, preview, source, target)))
    copies = dict(preview.plan.targets)
    rights = rights_of(flow, selection_of(flow).selects, copies, copy_names(ledger, flow), source, target)
    if rights is not None:
        steps += acl_steps(flow, (await compare(rights, copies, ledger)).plan)
    if flow.propagate_deletes:
        steps += deletion_steps(flow, await gone_copies(flow, preview, ledger, source))
    return steps


async def _settings(
    flow: FlowConfig, preview: DiscoveryPreview, source: UpkeepAdmin, target: UpkeepAdmin
) -> dict[str, SettingsPlan]:
    """Return the config changes for each target topic. Topics that will be created are included.

    Topics whose configs mirrord has no permission to describe are omitted.
    """
    if not flow.sync.configs:
        return {}
    new = {step.source.name: step.target_topic for step in preview.plan.create}
    plans: dict[str, SettingsPlan] = {}
    if new:
        wanted = await SettingsSync(flow, source, target).for_new(new)
        for topic, settings in wanted.items():
            changes = tuple(ConfigChange(name, None, value) for name, value in sorted(settings.items()))
            plans[new[topic]] = SettingsPlan(changes)
    rule = properties_of(flow)
    pairs = pairs_of(preview.plan.lanes)
    here = await source.settings([pair.source for pair in pairs])
    there = await target.settings([pair.target for pair in pairs])
    for pair in pairs:
        if pair.source in here.topics and pair.target in there.topics:
            plans[pair.target] = plan_settings(here.topics[pair.source], there.topics[pair.target], rule)
    return plans
