"""Collects the steps that a start would take for one flow. Each part of mirrord that alters clusters adds its steps."""

import asyncio

import msgspec

from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import Config
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.mm2.rules.internal_topics import mm2_steps
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.operations.hazard_survey import read_state
from mirrord.operations.sync_plan import upkeep_steps
from mirrord.topics.rules.plan_steps import PlanStep, topic_steps


async def planned_steps(config: Config, survey: FlowSurvey) -> list[PlanStep]:
    """Return all steps for the flow, in the order in which they are taken. Raises EnvironmentFault."""
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
