"""Forgets copies of which nothing is left: neither the source topic nor its copy exists any more.

Otherwise, lanes of topics that come and go would stay in the ledger permanently. A copy that is forgotten by mistake
would be copied again from its beginning. So it is not enough that a list of all topics lacks a topic: the broker may be
outdated, and a topic that mirrord may no longer describe is not listed either. A copy is forgotten when both topics
were missing for an hour, and both clusters, asked for them by name, answer that there is no such topic. A copy that
lacks records is not forgotten, because its verdicts would be lost with it.
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
"""Largest number of copies that are looked up by name in one round."""
_NO_SUCH_TOPIC = ErrorCode.name_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

log = structlog.get_logger()


class FormerCopy(NamedTuple):
    """A source topic and its target topic, as they once were."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class Forgetting:
    """Forgets the copies of one flow."""

    def __init__(self, flow: str, source: TopicAdmin, target: TopicAdmin, clock: Clock) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._clock = clock
        self._missing: dict[FormerCopy, float] = {}
        """The time since when neither topic has been listed, on the monotonic clock."""

    async def due(self, state: FlowState, seen: Discovered, reports: Iterable[ReplicatorReport]) -> list[CopyForgotten]:
        """Return the copies to forget now. A cluster that does not answer is asked again the next time."""
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
            return []  # the cluster's watch reports that
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
            # Its copy was never opened; a topic that has the name now is not that copy.
            copies.add(FormerCopy(named.source_topic, topic_id, named.target_topic, TopicId("")))
    return copies - kept


async def _gone(admin: TopicAdmin, topics: set[tuple[str, TopicId]]) -> set[TopicId]:
    """Return the topics that do not exist according to the cluster, or whose names belong to another topic now."""
    seen = await admin.describe({name for name, _ in topics})
    return {
        topic_id
        for name, topic_id in topics
        if (name not in seen.topics and seen.refused.get(name) == _NO_SUCH_TOPIC)
        or (name in seen.topics and seen.topics[name].topic_id != topic_id)
    }
