"""Removes lanes from a flow's state if their source topic and their target topic no longer exist.

Without this removal, the ledger would keep the lanes of short-lived topics permanently. If a lane were removed by
mistake, its topic would be copied again from the beginning. Therefore, it is not enough that a topic is missing from a
cluster's list of all topics. The broker's metadata may be outdated, and the list omits topics that mirrord lacks the
permission to describe.

A source topic and its target topic are forgotten only if three conditions are met. Both topics have been missing for an
hour. Each cluster, when asked about its topic by name, answers that the topic does not exist. No records of the source
topic were lost. (Otherwise, the verdicts on the lost records would be removed, too.)
"""

from collections.abc import Container, Iterable
from typing import NamedTuple

import structlog

from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import LOSSES, CopyForgotten
from mirrord.ledger.state import FlowState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.runtime.clock import Clock
from mirrord.topics.discovery import Discovered

FORGOTTEN_AFTER_S = 3600.0
AT_ONCE = 100
"""Maximum number of topic pairs that are looked up by name in one call."""
_NO_SUCH_TOPIC = ErrorCode.name_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

log = structlog.get_logger()


class FormerCopy(NamedTuple):
    """A source topic and its target topic, with the names and ids that they had while they existed."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class Forgetting:
    """Determines for which deleted topics of one flow the lanes are removed from the flow's state."""

    def __init__(self, flow: str, source: TopicAdmin, target: TopicAdmin, clock: Clock) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._clock = clock
        self._missing: dict[FormerCopy, float] = {}
        """For each pair of topics that are both missing from the clusters' lists, the time on the monotonic clock at
        which they were first found missing."""

    async def due(self, state: FlowState, seen: Discovered, reports: Iterable[ReplicatorReport]) -> list[CopyForgotten]:
        """Return a fact for each pair of topics that must be forgotten now. If a cluster does not answer, the next call
        queries it again."""
        now = self._clock.monotonic()
        hosted = {lane.lane for report in reports for lane in report.lanes}
        missing = _missing(state, seen, hosted)
        self._missing = {copy: self._missing.get(copy, now) for copy in missing}
        long = sorted(copy for copy, since in self._missing.items() if now - since >= FORGOTTEN_AFTER_S)[:AT_ONCE]
        if not long:
            return []
        try:
            sources = await _gone(self._source, {(copy.source_topic, copy.source_topic_id) for copy in long})
            targets = await _gone(self._target, {(copy.target_topic, copy.target_topic_id) for copy in long})
        except EnvironmentFault:
            return []  # `ClusterWatch` reports that the cluster does not answer
        gone = [copy for copy in long if copy.source_topic_id in sources and copy.target_topic_id in targets]
        for copy in gone:
            log.info("copy_forgotten", flow=self._flow, source_topic=copy.source_topic, target_topic=copy.target_topic)
        return [CopyForgotten(*copy) for copy in gone]


def _missing(state: FlowState, seen: Discovered, hosted: Container[LaneId]) -> set[FormerCopy]:
    sources = {topic.topic_id for topic in seen.source.topics.values()}
    targets = {topic.topic_id for topic in seen.target.topics.values()}
    kept: set[FormerCopy] = set()
    copies: set[FormerCopy] = set()
    for lane_id, lane in state.lanes.items():
        copy = FormerCopy(lane.source_topic, lane.key.source_topic_id, lane.target_topic, lane.key.target_topic_id)
        is_lossy = any(lane.verdicts.counts.get(reason) for reason in LOSSES)
        if is_lossy or copy.source_topic_id in sources or copy.target_topic_id in targets or lane_id in hosted:
            kept.add(copy)
        copies.add(copy)
    opened = {copy.source_topic_id for copy in copies}
    for topic_id, named in state.named.items():
        if topic_id not in sources and topic_id not in opened:
            # No lane to this target topic was ever opened, so the topic's id is unknown. If a topic with this name
            # exists now, it is a different topic.
            copies.add(FormerCopy(named.source_topic, topic_id, named.target_topic, TopicId("")))
    return copies - kept


async def _gone(admin: TopicAdmin, topics: set[tuple[str, TopicId]]) -> set[TopicId]:
    """Return the ids of the given topics that no longer exist, according to the cluster. A topic also counts as gone if
    its name now belongs to a different topic."""
    seen = await admin.describe({name for name, _ in topics})
    return {
        topic_id
        for name, topic_id in topics
        if (name not in seen.topics and seen.refused.get(name) == _NO_SUCH_TOPIC)
        or (name in seen.topics and seen.topics[name].topic_id != topic_id)
    }
