"""Removes lanes from a flow's state if their source topic and their target topic no longer exist.

Without this removal, the ledger would keep the lanes of short-lived topics permanently. If a lane were removed by
mistake, its topic would be copied again from the beginning. Therefore, it is not enough that a topic is missing from a
cluster's list of all topics. The broker's metadata may be outdated, and the list omits topics that mirrord lacks the
permission to describe.

A source topic and its target topic are forgotten only if two conditions are met. Both topics have been missing for an
hour, or this process has just deleted the target topic itself. Each cluster, when asked about its topic by name,
answers that the topic does not exist.

If records of the source topic were lost, the verdicts on them would be removed, too. Therefore, lanes with losses are
kept, but only the newest `LOSSES_KEPT` of them. When an older one is forgotten, the ledger still counts its losses
(`FlowState.forgotten_losses`).
"""

from collections.abc import Collection, Container, Iterable, Mapping
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
AGAIN_S = 60.0
"""If a cluster does not confirm that a topic no longer exists, it is asked again after this time."""
AT_ONCE = 100
"""Maximum number of topic pairs that are looked up by name in one call."""
LOSSES_KEPT = 1_000
"""Maximum number of lanes with losses that are kept although both of their topics no longer exist."""
_NO_SUCH_TOPIC = ErrorCode.name_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

log = structlog.get_logger()


class FormerCopy(NamedTuple):
    """A source topic and its target topic, with the names and ids that they had while they existed."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class _Known(NamedTuple):
    """What the ledger says about a pair of topics that are both missing."""

    lossy: int = 0
    """Number of lanes that have lost records."""
    changed_at: int = 0
    """Ledger offset of the latest entry that changed one of the lanes."""


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
        self._asked: dict[FormerCopy, float] = {}
        """For each of these pairs, the time at which the clusters were last asked about the topics by name."""

    async def due(
        self,
        state: FlowState,
        seen: Discovered,
        reports: Iterable[ReplicatorReport],
        deleted: Container[TopicId] = (),
    ) -> list[CopyForgotten]:
        """Return a fact for each pair of topics that must be forgotten now. If a cluster does not answer, the next call
        queries it again. `deleted` contains target topics that this process has deleted."""
        now = self._clock.monotonic()
        hosted = {lane.lane for report in reports for lane in report.lanes}
        missing = _missing(state, seen, hosted)
        self._missing = {copy: self._missing.get(copy, now) for copy in missing}
        self._asked = {copy: at for copy, at in self._asked.items() if copy in missing}
        long = {
            copy: missing[copy]
            for copy, since in self._missing.items()
            if now - since >= FORGOTTEN_AFTER_S or copy.target_topic_id in deleted
        }
        due = [copy for copy in _without_newest_losses(long) if now - self._asked.get(copy, -AGAIN_S) >= AGAIN_S]
        asked = sorted(due)[:AT_ONCE]
        if not asked:
            return []
        try:
            sources = await _gone(self._source, {(copy.source_topic, copy.source_topic_id) for copy in asked})
            targets = await _gone(self._target, {(copy.target_topic, copy.target_topic_id) for copy in asked})
        except EnvironmentFault:
            return []  # `ClusterWatch` reports that the cluster does not answer
        self._asked.update(dict.fromkeys(asked, now))
        gone = [copy for copy in asked if copy.source_topic_id in sources and copy.target_topic_id in targets]
        for copy in gone:
            log.info("copy_forgotten", flow=self._flow, source_topic=copy.source_topic, target_topic=copy.target_topic)
        return [CopyForgotten(*copy) for copy in gone]


def _missing(state: FlowState, seen: Discovered, hosted: Container[LaneId]) -> dict[FormerCopy, _Known]:
    sources = {topic.topic_id for topic in seen.source.topics.values()}
    targets = {topic.topic_id for topic in seen.target.topics.values()}
    kept: set[FormerCopy] = set()
    copies: dict[FormerCopy, _Known] = {}
    for lane_id, lane in state.lanes.items():
        copy = FormerCopy(lane.source_topic, lane.key.source_topic_id, lane.target_topic, lane.key.target_topic_id)
        if copy.source_topic_id in sources or copy.target_topic_id in targets or lane_id in hosted:
            kept.add(copy)
        known = copies.get(copy, _Known())
        is_lossy = any(lane.verdicts.counts.get(reason) for reason in LOSSES)
        copies[copy] = _Known(known.lossy + is_lossy, max(known.changed_at, lane.changed_at))
    opened = {copy.source_topic_id for copy in copies}
    for topic_id, named in state.named.items():
        if topic_id not in sources and topic_id not in opened:
            # No lane to this target topic was ever opened, so the topic's id is unknown. If a topic with this name
            # exists now, it is a different topic.
            copies[FormerCopy(named.source_topic, topic_id, named.target_topic, TopicId(""))] = _Known()
    used = {copy.target_topic_id for copy in copies}
    for topic_id, topic in state.topics.items():
        source_id = topic.source_topic_id
        if source_id is not None and not (source_id in sources or topic_id in targets or topic_id in used):
            # The source topic was deleted before a lane to the new target topic was opened.
            copies[FormerCopy(topic.source_topic, source_id, topic.topic, topic_id)] = _Known()
    return {copy: known for copy, known in copies.items() if copy not in kept}


def _without_newest_losses(copies: Mapping[FormerCopy, _Known]) -> Collection[FormerCopy]:
    """Return these pairs of topics without those that have lost records most recently. The returned pairs have no
    losses, or are the oldest of too many."""
    lossy = sorted((copy for copy, known in copies.items() if known.lossy), key=lambda copy: copies[copy].changed_at)
    left = sum(copies[copy].lossy for copy in lossy)
    oldest: list[FormerCopy] = []
    for copy in lossy:
        if left <= LOSSES_KEPT:
            break
        oldest.append(copy)
        left -= copies[copy].lossy
    return [*oldest, *(copy for copy, known in copies.items() if not known.lossy)]


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
