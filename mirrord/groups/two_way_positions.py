"""Translates group positions of topics that two flows copy in opposite directions under the same names.

The logs on the two clusters both hold the records of both clusters, but in different orders. A reader that has read one
log up to a position resumes in the other log at or before the first record that it has not read, so that no record is
skipped. There are two kinds of unread records. Some were produced to the first log after the position and have a copy
in the other log. Others were produced to the other log, and their copies in the first log are after the position or do
not exist yet. Only records whose order differs between the two logs are read again. The translation uses two lanes: the
flow's own lane, and the lane of the opposite flow.

If the reader has read all records that a lane has copied, the record that it needs next from this lane does not exist
in the other log yet. The offset of this record is then unknown, but it has a lower bound. The lower bound follows from
the ends of both logs, which are requested regularly. A `Sight` holds the result of one such request. Without this
bound, a translated position could never advance past the last record of a cluster to which clients no longer produce.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mirrord.groups.group_position_translation import NOT_BACK, NOT_COPIED, Atlas, SourcePosition, line_of
from mirrord.groups.lane_bounds import LaneEnds
from mirrord.groups.rules.commit_plan import Mapped
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.offset_map import NOTHING, CopiedPosition, LaneMap, Translation
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.all_ledgers import ClusterLedgers, ProgressByLane
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.names import ClusterId, LaneId, TopicId
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime.clock import Clock

ROUND_S = 1.0
"""Time between two passes over a flow's groups if another flow copies the same topics back. This interval is longer
than for other flows because each pass looks for all ledgers on both clusters."""
LOOK_TIMEOUT_S = 10.0
SIGHTS = 32
SIGHT_S = 60.0
"""`SIGHTS` is the maximum number of log ends that are kept for a lane, and `SIGHT_S` is their maximum age in
seconds."""
OPEN = "it is not known yet whether the records after it were read: they were just written or copied"
THIRD = (
    "a third cluster's records are copied into it, by the flow {}: a position among three clusters is not determined"
)


class Sight(NamedTuple):
    """The ends of a lane's two partitions at about the same time. The end of the partition that the lane writes to is
    requested first, and then the end of the partition that the lane reads."""

    written: int
    read: int


class Way(NamedTuple):
    """A lane in one of the two directions, with its progress record and the recent log ends of its partitions."""

    lane: LaneState
    progress: Progress | None
    sights: Sequence[Sight] = ()


def across(position: int, own: Way, back: Way) -> Mapped:
    """Return the position at which a reader of one log resumes in the other log.

    The first log is read by the lane `own` and written by the lane `back`. The reader has read it up to `position`. The
    other log is written by `own` and read by `back`.
    """
    if own.progress is None or back.progress is None:
        return Mapped(None, 0, NOTHING)
    ours = LaneMap(own.lane, CopiedPosition.by(own.progress)).to_target(position)
    theirs = LaneMap(back.lane, CopiedPosition.by(back.progress)).to_source(position)
    for translation in (ours, theirs):
        if translation.offset is None:
            return Mapped(None, 0, line_of(translation))
    first, other = _copied_from(ours, own, own.progress), _read_from(theirs, back, back.progress)
    offset = min(first, other)
    translation = ours if first <= other else theirs
    end = own.sights[-1].written if own.sights else offset + 1
    if translation.kind != "at_end" or offset >= end:
        return Mapped(offset)
    return Mapped(offset, max(1, translation.ahead), OPEN)


def _copied_from(translation: Translation, way: Way, progress: Progress) -> int:
    """Return an offset in the log that the lane writes to. `translation` is a reader's position in the other log,
    translated into this log. The reader has already read the originals of all copies below the returned offset,
    including copies that the lane has not written yet."""
    offset = translation.offset or 0
    if translation.kind != "at_end" or not _is_all(way.lane, progress):
        return offset
    # `written` is the end of the log that the lane writes to. It was requested before `read`, the end of the log that
    # the lane reads. A record after `read` is copied later, so its copy is after `written`.
    return max([offset, *(each.written for each in way.sights if each.read <= progress.source_offset)])


def _read_from(translation: Translation, way: Way, progress: Progress) -> int:
    """Return an offset in the log that the lane reads. `translation` is a reader's position in the other log,
    translated into this log. The reader has already read the copies of all records below the returned offset that the
    lane copies."""
    offset = translation.offset or 0
    return (
        max(offset, progress.source_offset) if translation.kind == "at_end" and _is_all(way.lane, progress) else offset
    )


def _is_all(lane: LaneState, progress: Progress) -> bool:
    """Return whether the lane has copied every record below the source offset of its resume position, and does not have
    to copy any of them again."""
    last = lane.source_runs.last
    is_last = last is not None and last.ordinal <= progress.ordinal
    return progress.settled and is_last and not any(ordinal >= progress.ordinal for ordinal, _ in lane.truncations)


class CrossedAtlas(Atlas):
    """The offset maps of all lanes of a flow whose topics another flow copies back under the same names."""

    def __init__(
        self,
        lanes: Mapping[TopicAndPartition, LaneState],
        progress_by_lane: Mapping[LaneId, Progress],
        backs: Mapping[TopicAndPartition, tuple[Way, Way] | str],
    ) -> None:
        """`backs` holds, for each partition, the lanes in both directions, or the reason why positions in the partition
        cannot be translated.

        Lanes of heartbeats topics are not in `backs`. Heartbeats topics have different names on the two clusters, so a
        single lane is enough to translate their positions.
        """
        super().__init__(lanes, progress_by_lane)
        self._backs = backs

    def mapped(self, place: TopicAndPartition, position: SourcePosition) -> Mapped:
        """Return the position on the target that matches a position in this source partition."""
        lane = self.lane(place)
        if lane is None or lane.source_topic != lane.target_topic:
            return super().mapped(place, position)
        if position.topic_id not in {None, lane.key.source_topic_id}:
            return super().mapped(place, position)
        ways = self._backs.get(place, NOT_BACK)
        return Mapped(None, 0, ways) if isinstance(ways, str) else across(position.offset, *ways)

    def back(self, place: TopicAndPartition, offset: int) -> Mapped:
        """Return the position on the source that matches an offset in this target partition."""
        lane = self.lane(place)
        if lane is None:
            return Mapped(None, 0, NOT_COPIED)
        if lane.source_topic != lane.target_topic:
            return super().back(place, offset)
        ways = self._backs.get(place, NOT_BACK)
        return Mapped(None, 0, ways) if isinstance(ways, str) else across(offset, *reversed(ways))


class RecentLogEnds:
    """The log ends of the lanes' source and target partitions, as requested within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forth: dict[LaneId, deque[tuple[float, Sight]]] = {}
        self._back: dict[LaneId, deque[tuple[float, Sight]]] = {}

    def note(self, lane: LaneId, target: int, source: int, target_again: int) -> None:
        """Record the log ends of a lane's partitions. The log ends were requested in the order of the arguments: on the
        target, on the source, and again on the target."""
        _note(self._forth.setdefault(lane, deque(maxlen=SIGHTS)), self._clock.monotonic(), Sight(target, source))
        _note(self._back.setdefault(lane, deque(maxlen=SIGHTS)), self._clock.monotonic(), Sight(source, target_again))

    def forget_old(self) -> None:
        """Forget the lanes whose log ends have not been requested recently, such as lanes of deleted topics."""
        for known in (self._forth, self._back):
            for lane in [lane for lane, sights in known.items() if not self._fresh(sights)]:
                del known[lane]

    def forth(self, lane: LaneId) -> tuple[Sight, ...]:
        """Return the recent log ends of this lane's partitions. `written` is the end of the target partition, and
        `read` is the end of the source partition."""
        return self._fresh(self._forth.get(lane))

    def back(self, lane: LaneId) -> tuple[Sight, ...]:
        """Return the recent log ends as seen by the lane that copies back in the opposite direction. `written` is the
        end of this flow's source partition, and `read` is the end of this flow's target partition."""
        return self._fresh(self._back.get(lane))

    def _fresh(self, known: Iterable[tuple[float, Sight]] | None) -> tuple[Sight, ...]:
        since = self._clock.monotonic() - SIGHT_S
        return tuple(sight for at, sight in known or () if at >= since)


def _note(known: deque[tuple[float, Sight]], now: float, sight: Sight) -> None:
    if known and (sight.written < known[-1][1].written or sight.read < known[-1][1].read):
        known.clear()  # one of the two logs was truncated
    known.append((now, sight))


class Crossings:
    """Reads the log ends of topics that are copied in both directions, and the ledgers of other flows. A group follower
    needs both, from both clusters."""

    def __init__(self, setup: FlowSetup, source: LaneEnds, target: LaneEnds, clock: Clock) -> None:
        def ledgers(alias: str, is_source: bool) -> ClusterLedgers:
            config = setup.source if is_source else setup.target

            def ledger(flow: str, alone: bool) -> LedgerStore:
                return LedgerStore(KafkaLog(flow, config, alone=alone), clock, memory=run_memory(setup.flow))

            return ClusterLedgers(alias, KafkaTopicAdmin(config, LOOK_TIMEOUT_S), ledger, setup.flow.name)

        self._ids = (setup.source_cluster_id, setup.target_cluster_id)
        self._source_ends, self._target_ends = source, target
        self._at_source = ledgers(setup.flow.source, True)
        self._at_target = ledgers(setup.flow.target, False)
        self._ends = RecentLogEnds(clock)

    async def read_ends(self, lanes: Sequence[LaneState]) -> None:
        """Request the log ends of these lanes' source and target partitions, and record them."""
        first = await self._target_ends.ask(lanes)
        source = await self._source_ends.ask(lanes)
        again = await self._target_ends.ask(lanes)
        for lane in lanes:
            key = lane.key.id
            if key in first and key in source and key in again:
                self._ends.note(key, first[key], source[key], again[key])
        self._ends.forget_old()

    async def ways(
        self, lanes: Mapping[TopicAndPartition, LaneState], progress_by_lane: Mapping[LaneId, Progress]
    ) -> dict[TopicAndPartition, tuple[Way, Way] | str]:
        """Return the lanes in both directions for each partition, or the reason why positions in the partition cannot
        be translated.

        `progress_by_lane` holds this flow's progress records. Before this call, the caller must do three things in this
        order: call `read_ends`, copy the progress records, and read this flow's ledger to its end. Raises MirrordError.
        """
        there = await self._at_source.read()
        await self._at_target.read()
        known = backs(self._ids, self._at_source.lanes(), self._at_target.lanes())
        return {
            place: self._both(lane, progress_by_lane, known, there)
            for place, lane in lanes.items()
            if lane.source_topic == lane.target_topic
        }

    def _both(
        self,
        lane: LaneState,
        progress_by_lane: Mapping[LaneId, Progress],
        known: "Backs",
        there: Mapping[str, ProgressByLane],
    ) -> tuple[Way, Way] | str:
        found = known.of(lane)
        if isinstance(found, str):
            return found
        flow, back = found
        key = lane.key.id
        own = Way(lane, progress_by_lane.get(key), self._ends.forth(key))
        return own, Way(back, there[flow].get(back.key.id), self._ends.back(key))

    async def close(self) -> None:
        """Stop reading the ledgers of other flows."""
        await self._at_source.close()
        await self._at_target.close()


FoundLane = tuple[str, FlowState, LaneState]
_Place = tuple[TopicId, int]


class Backs(NamedTuple):
    """The lanes of other flows that write to the source and target partitions of one flow, according to the ledgers of
    those other flows."""

    newest: dict[tuple[TopicId, TopicId, int], tuple[str, LaneState]]
    """The newest lane that copies each partition from this flow's target back to its source, with the name of that
    lane's flow. The key is the topic id on the target, the topic id on the source, and the partition."""
    third: dict[_Place, str]
    """Partitions that also contain records from a third cluster, with the name of the flow that copies these
    records."""

    def of(self, lane: LaneState) -> tuple[str, LaneState] | str:
        """Return the lane that copies this lane's partitions in the opposite direction, with the name of its flow. If
        there is no such lane, or if one of the partitions also contains records from a third cluster, return the reason
        why positions cannot be translated."""
        key = lane.key
        for topic in (key.source_topic_id, key.target_topic_id):
            if (flow := self.third.get((topic, key.partition))) is not None:
                return THIRD.format(flow)
        return self.newest.get((key.target_topic_id, key.source_topic_id, key.partition), NOT_BACK)


def backs(ids: tuple[ClusterId, ClusterId], at_source: Iterable[FoundLane], at_target: Iterable[FoundLane]) -> Backs:
    """Return the lanes of other flows that write to the source and target partitions of one flow.

    `ids` are the cluster ids of the flow's source and target. `at_source` and `at_target` are the lanes in the ledgers
    on these two clusters, excluding the flow's own ledger.
    """
    source, target = ids
    known = Backs({}, {})
    for flow, state, lane in at_source:
        key = lane.key
        if state.source_cluster == target:
            where = (key.source_topic_id, key.target_topic_id, key.partition)
            before = known.newest.get(where)
            if before is None or before[1].age <= lane.age:
                known.newest[where] = (flow, lane)
        else:
            known.third[key.target_topic_id, key.partition] = flow
    for flow, state, lane in at_target:
        if state.source_cluster != source:
            known.third[lane.key.target_topic_id, lane.key.partition] = flow
    return known
