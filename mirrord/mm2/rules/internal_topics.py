"""Determines the topics to which a flow writes records for MirrorMaker 2's clients: heartbeats, checkpoints and offset
syncs. Also determines which of the flow's two clusters holds each topic."""

from collections.abc import Collection, Iterator

import msgspec

from mirrord.config.flow_features import InternalFactor
from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import BROKER_DEFAULT
from mirrord.model.names import Alias
from mirrord.topics.rules.plan_steps import PlanStep, replicas
from policies.mm2_names import HEARTBEATS, checkpoints_topic, offset_syncs_topic


class WrittenTopic(msgspec.Struct, frozen=True):
    """A topic with one partition, to which a flow writes heartbeats, checkpoints or offset syncs for MirrorMaker 2's
    clients."""

    cluster: Alias
    name: str
    what: str
    factor: InternalFactor
    is_read: bool = False
    """Whether mirrord reads the topic in addition to writing to it."""


def written_topics(flow: FlowConfig) -> list[WrittenTopic]:
    """Return the topics to which mirrord writes records for MirrorMaker 2's clients, as the flow's configuration
    requires."""
    emit, records = flow.heartbeats.emit, flow.mm2_records
    topics: list[WrittenTopic] = []
    for cluster, where in ((flow.source, "source"), (flow.target, "target")):
        if emit in {where, "both"}:
            factor = flow.heartbeats.replication_factor
            topics.append(WrittenTopic(cluster, HEARTBEATS, "heartbeats", factor))
    if records.checkpoints:
        name = checkpoints_topic(flow.source, records.separator)
        factor = records.checkpoints_replication_factor
        topics.append(WrittenTopic(flow.target, name, "checkpoints", factor, is_read=True))
    if records.offset_syncs != "off":
        at_source = records.offset_syncs == "source"
        cluster, other = (flow.source, flow.target) if at_source else (flow.target, flow.source)
        name = offset_syncs_topic(other, records.separator)
        factor = records.offset_syncs_replication_factor
        topics.append(WrittenTopic(cluster, name, "offset syncs", factor))
    return topics


def mm2_steps(flow: FlowConfig, source: Collection[str], target: Collection[str]) -> Iterator[PlanStep]:
    """For each topic in `written_topics` that does not exist, yield the `mirrord plan` step that creates the topic.

    `source` and `target` contain the names of the topics that already exist on the flow's clusters.
    """
    for topic in written_topics(flow):
        if topic.name not in (source if topic.cluster == flow.source else target):
            number = BROKER_DEFAULT if topic.factor == "broker" else topic.factor
            detail = f"{topic.what} for MirrorMaker 2's clients: 1 partition, compacted, {replicas(number)}"
            yield PlanStep(
                flow=flow.name, cluster=topic.cluster, action="create", kind="topic", name=topic.name, detail=detail
            )
