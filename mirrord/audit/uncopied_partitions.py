"""Finds the partitions that the configuration selects but that have no copied record. The information comes from the
configuration, both clusters and the flow's ledger."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicId, TopicPartition
from mirrord.operations.cluster_survey import survey_flows
from mirrord.topics.discovery import DiscoveryPreview
from mirrord.topics.rules.topic_plan import TopicsPlan

NO_LEDGER = "the flow has no ledger: it has never run, or its ledger was deleted"
_Begun = Mapping[tuple[TopicId, int], int]


class Uncopied(msgspec.Struct, frozen=True, kw_only=True):
    """A partition that the configuration selects but that has no copied record."""

    source: TopicPartition
    target: TopicPartition
    start: int
    """First source offset of the uncopied range [start, end). Some offsets in this range may have no record."""
    end: int
    why: str
    """Why the partition is not copied; empty if no reason is known, for example because a daemon is about to begin
    copying it."""


async def uncopied(
    config: Config, flow: FlowConfig, state: FlowState | None, topics: Sequence[str], patience_s: float
) -> list[Uncopied]:
    """Return the partitions that the configuration selects but that have no copied record.

    If `topics` holds regexes, only topics that match one of them are returned. `state` is None if the flow has no
    ledger. Raises EnvironmentFault.
    """
    survey = (await survey_flows(config, ClusterAccess(config, patience_s)))[flow.name]
    if isinstance(survey, EnvironmentFault):
        raise survey
    preview, patterns = survey.preview, [re.compile(pattern) for pattern in topics]
    begun = _begun(state)
    found = [
        each
        for each in _selected(preview)
        if (not patterns or any(pattern.fullmatch(each.topic) for pattern in patterns))
        and (preview.source.topics[each.topic].topic_id, each.partition) not in begun
    ]
    if not found:
        return []
    starts = await log_offsets(config.clusters[flow.source], found, "start")
    ends = await log_offsets(config.clusters[flow.source], found, "end")
    positions = _positions(state, preview)
    return [
        Uncopied(
            source=each,
            target=TopicPartition(preview.plan.names.get(each.topic, ""), each.partition),
            start=min(max(starts.get(each, 0), positions.get(each, 0)), ends.get(each, 0)),
            end=ends.get(each, 0),
            why=_why(each, preview, state),
        )
        for each in found
    ]


def _selected(preview: DiscoveryPreview) -> Iterator[TopicPartition]:
    """Yield every partition that the configuration selects, including those of topics that cannot be copied."""
    plan, there = preview.plan, preview.source.topics
    for name in sorted({*plan.targets.values(), *plan.faults, *plan.unanswered} & there.keys()):
        for partition in range(there[name].partitions):
            yield TopicPartition(name, partition)


def _begun(state: FlowState | None) -> Collection[tuple[TopicId, int]]:
    """Return the source partitions that have at least one copied record, according to the ledger."""
    if state is None:
        return ()
    return {
        (lane.key.source_topic_id, lane.partition)
        for lane in state.lanes.values()
        if lane.key.id in state.progress and len(lane.target_runs)
    }


def _positions(state: FlowState | None, preview: DiscoveryPreview) -> dict[TopicPartition, int]:
    """Return the source offset of each lane's resume position, by source partition.

    A lane that has copied nothing yet may have a resume position above 0. The offsets below it have verdicts, or they
    are below the offset at which the lane began. They are therefore not reported as uncopied.
    """
    ids = {topic.topic_id for topic in preview.source.topics.values()}
    found: dict[TopicPartition, int] = {}
    for lane in state.lanes.values() if state is not None else ():
        progress = state.progress.get(lane.key.id) if state is not None else None
        if progress is not None and lane.key.source_topic_id in ids:
            found[TopicPartition(lane.source_topic, lane.partition)] = progress.source_offset
    return found


def _why(partition: TopicPartition, preview: DiscoveryPreview, state: FlowState | None) -> str:
    if state is None:
        return NO_LEDGER
    topic = preview.source.topics[partition.topic]
    plan: TopicsPlan = preview.plan
    if fault := plan.faults.get(topic.name) or plan.unanswered.get(topic.name):
        return fault
    if state.orders.pause_of(topic.name, partition.partition) is not None:
        return "it is paused"
    for lane in state.lanes.values():
        if (lane.key.source_topic_id, lane.partition) == (topic.topic_id, partition.partition) and lane.halted:
            return f"it is halted: {lane.halted.line}"
    if state.released:
        return "no daemon is running the flow"
    return ""
