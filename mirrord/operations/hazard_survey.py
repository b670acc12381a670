"""Gathers the data from which `mirrord.topics.rules.hazards` finds hazards: the contents of target topics, and the
ledgers of other flows."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec

from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import MirrordError
from mirrord.model.findings import Finding
from mirrord.model.names import LaneKey, TopicId, TopicPartition, flow_of_ledger
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.topics.rules.hazards import deletions_both_ways, foreign_content, other_writers, topic_hazards


async def find_hazards(
    config: Config, survey: FlowSurvey, ledger: Callable[[FlowConfig], LedgerStore]
) -> list[Finding]:
    """Return a finding for each hazard of one flow. A hazard is, for example, a target topic that already contains
    other data or has a second writer. If a hazard cannot be checked, a finding with the severity "note" says so."""
    flow, preview = survey.flow, survey.preview
    target = preview.target.topics
    findings = list(topic_hazards(flow, survey.lines, target, config.clusters))
    findings += deletions_both_ways(flow, config.all_flows)
    names = [name for topic in target if (name := flow_of_ledger(topic))]
    states: dict[str, FlowState] = {}
    for name in names:
        try:
            states[name] = await read_state(msgspec.structs.replace(flow, name=name), ledger)
        except MirrordError as error:
            what = f"its ledger cannot be read, so what it copies is not known: {error}"
            findings.append(Finding(severity="note", flow=flow.name, where=f"{flow.target}: flow {name}", what=what))
    here = {each.name for each in config.all_flows}
    others = {
        name: [lane.target_topic for lane in state.lanes.values() if _exists(lane.key, lane.target_topic, survey)]
        for name, state in states.items()
        if name not in here
    }
    findings += other_writers(flow, preview.plan.targets, others)
    own = states.get(flow.name)
    ours = {lane.target_topic: lane.key.target_topic_id for lane in own.lanes.values()} if own else {}
    ours |= {topic.topic: topic_id for topic_id, topic in own.topics.items()} if own else {}
    current = {
        name: topic_id for name, topic_id in ours.items() if name in target and target[name].topic_id == topic_id
    }
    try:
        held = await _held(config, survey, current)
    except MirrordError as error:
        what = f"it is not known whether target topics already hold records: {error}"
        findings.append(Finding(severity="note", flow=flow.name, where=flow.target, what=what))
    else:
        findings += foreign_content(flow, held, current)
    return findings


async def read_state(flow: FlowConfig, ledger: Callable[[FlowConfig], LedgerStore]) -> FlowState:
    """Return the current state of the flow's ledger. Raises LedgerMissing if the flow has never run, and other errors
    if the ledger cannot be read."""
    store = ledger(flow)
    await store.open(read_only=True)
    try:
        return store.state
    finally:
        await store.close()


async def producers_back(
    config: Config, flow: FlowConfig, ledger: Callable[[FlowConfig], LedgerStore]
) -> frozenset[int]:
    """Return the producer ids of the flows that copy the same topics in the opposite direction. Source records with
    these producer ids were copied from the target.

    A flow that has never run has no ledger and contributes no producer ids. Raises LedgerUnavailable or another error
    if an existing ledger cannot be read, because without it, copies could not be distinguished from originals.
    """
    found: set[int] = set()
    for other in config.all_flows:
        if goes_back(flow, other):
            with suppress(LedgerMissing):
                found |= {lane.producer_id for lane in (await read_state(other, ledger)).lanes.values()}
    return frozenset(found)


def _exists(key: LaneKey, topic: str, survey: FlowSurvey) -> bool:
    there = survey.preview.target.topics.get(topic)
    return there is not None and there.topic_id == key.target_topic_id


async def _held(config: Config, survey: FlowSurvey, ours: dict[str, TopicId]) -> dict[str, int]:
    """For each target topic that exists but is missing from the flow's ledger, return the number of offsets between its
    log start and its log end."""
    target = survey.preview.target.topics
    asked = {
        TopicPartition(name, partition)
        for name in survey.preview.plan.targets
        if name in target and name not in ours
        for partition in range(target[name].partitions)
    }
    if not asked:
        return {}
    cluster = config.clusters[survey.flow.target]
    starts, ends = await asyncio.gather(log_offsets(cluster, asked, "start"), log_offsets(cluster, asked, "end"))
    held: dict[str, int] = {}
    for each in asked:
        held[each.topic] = held.get(each.topic, 0) + ends.get(each, 0) - starts.get(each, 0)
    return dict(sorted(held.items()))
