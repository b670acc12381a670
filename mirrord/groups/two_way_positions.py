"""Positions for topics that are copied both ways under the same names.

Both logs hold the records of both sides, each in a different order. A reader that has read one log up to a position
resumes in the other log before the first record that it has not read. That is either a record from this side whose copy
is there, or a record from the other side whose copy is after the position here or does not exist yet. So nothing is
skipped, and only records whose order differs between the logs are read again. Two lanes provide the mapping: the flow's
own lane, and the lane of the opposite flow.

If no record of a lane is left to read, the lane's next record is still to come. The log ends seen earlier (`Sight`) say
where it will be at the earliest. Without them, a position could never advance past the last copy from a side to which
no client writes.
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
"""All ledgers are searched for before each round."""
LOOK_TIMEOUT_S = 10.0
SIGHTS = 32
SIGHT_S = 60.0
"""Number of log ends of a partition that are remembered, and the time for which they are remembered."""
OPEN = "it is not known yet whether the records after it were read: they were just written or copied"
THIRD = (
    "a third cluster's records are copied into it, by the flow {}: a position among three clusters is not determined"
)


class Sight(NamedTuple):
    """The ends of both partitions at one time: of the one that a lane writes to, which is asked for first, and of the
    one that it reads."""

    written: int
    read: int


class Way(NamedTuple):
    """One direction of a partition, with what is known of it."""

    lane: LaneState
    progress: Progress | None
    sights: Sequence[Sight] = ()


def across(position: int, own: Way, back: Way) -> Mapped:
    """Return where a reader resumes at the other side.

    The reader has read up to a position of the log that the lane `own` reads and the lane `back` writes to.
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
    """Return an offset of the log that the lane writes to; no record before it is still to be read."""
    offset = translation.offset or 0
    if translation.kind != "at_end" or not _is_all(way.lane, progress):
        return offset
    # Records that the lane has not read were written after the source log ended at `read`. So their copies are after
    # the end that the other log had before that.
    return max([offset, *(each.written for each in way.sights if each.read <= progress.source_offset)])


def _read_from(translation: Translation, way: Way, progress: Progress) -> int:
    """Return the same kind of offset for the log that the lane reads."""
    offset = translation.offset or 0
    return (
        max(offset, progress.source_offset) if translation.kind == "at_end" and _is_all(way.lane, progress) else offset
    )


def _is_all(lane: LaneState, progress: Progress) -> bool:
    """Return whether every record before the source offset of the resume position is below it, and none must be copied
    again."""
    last = lane.source_runs.last
    is_last = last is not None and last.ordinal <= progress.ordinal
    return progress.settled and is_last and not any(ordinal >= progress.ordinal for ordinal, _ in lane.truncations)


class CrossedAtlas(Atlas):
    """The maps of all lanes whose topics are copied back under the same names."""

    def __init__(
        self,
        lanes: Mapping[TopicAndPartition, LaneState],
        progress_by_lane: Mapping[LaneId, Progress],
        backs: Mapping[TopicAndPartition, tuple[Way, Way] | str],
    ) -> None:
        """`backs` holds both directions of each partition, or why its positions are unknown.

        Heartbeats have other names.
        """
        super().__init__(lanes, progress_by_lane)
        self._backs = backs

    def mapped(self, place: TopicAndPartition, position: SourcePosition) -> Mapped:
        """Return the position at the target."""
        lane = self.lane(place)
        if lane is None or lane.source_topic != lane.target_topic:
            return super().mapped(place, position)
        if position.topic_id not in {None, lane.key.source_topic_id}:
            return super().mapped(place, position)
        ways = self._backs.get(place, NOT_BACK)
        return Mapped(None, 0, ways) if isinstance(ways, str) else across(position.offset, *ways)

    def back(self, place: TopicAndPartition, offset: int) -> Mapped:
        """Return the position at the source."""
        lane = self.lane(place)
        if lane is None:
            return Mapped(None, 0, NOT_COPIED)
        if lane.source_topic != lane.target_topic:
            return super().back(place, offset)
        ways = self._backs.get(place, NOT_BACK)
        return Mapped(None, 0, ways) if isinstance(ways, str) else across(offset, *reversed(ways))


class RecentLogEnds:
    """The log ends of both partitions of lanes within the last minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forth: dict[LaneId, deque[tuple[float, Sight]]] = {}
        self._back: dict[LaneId, deque[tuple[float, Sight]]] = {}

    def note(self, lane: LaneId, target: int, source: int, target_again: int) -> None:
        """Record three log ends, which were requested one after the other."""
        _note(self._forth.setdefault(lane, deque(maxlen=SIGHTS)), self._clock.monotonic(), Sight(target, source))
        _note(self._back.setdefault(lane, deque(maxlen=SIGHTS)), self._clock.monotonic(), Sight(source, target_again))

    def forth(self, lane: LaneId) -> tuple[Sight, ...]:
        """Return the ends for the lane itself."""
        return self._fresh(self._forth.get(lane))

    def back(self, lane: LaneId) -> tuple[Sight, ...]:
        """Return the ends for the lane of the same partitions in the opposite direction."""
        return self._fresh(self._back.get(lane))

    def _fresh(self, known: Iterable[tuple[float, Sight]] | None) -> tuple[Sight, ...]:
        since = self._clock.monotonic() - SIGHT_S
        return tuple(sight for at, sight in known or () if at >= since)


def _note(known: deque[tuple[float, Sight]], now: float, sight: Sight) -> None:
    if known and (sight.written < known[-1][1].written or sight.read < known[-1][1].read):
        known.clear()  # a log went back
    known.append((now, sight))


class Crossings:
    """The questions that a follower of groups asks both clusters, in addition to reading its own ledger."""

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
        """Find out where the partitions of these lanes end."""
        first = await self._target_ends.ask(lanes)
        source = await self._source_ends.ask(lanes)
        again = await self._target_ends.ask(lanes)
        for lane in lanes:
            key = lane.key.id
            if key in first and key in source and key in again:
                self._ends.note(key, first[key], source[key], again[key])

    async def ways(
        self, lanes: Mapping[TopicAndPartition, LaneState], progress_by_lane: Mapping[LaneId, Progress]
    ) -> dict[TopicAndPartition, tuple[Way, Way] | str]:
        """Return both directions of each partition.

        The ledger of these lanes must have been read after the resume positions were taken, and `read_ends` must have
        been called before both. Raises MirrordError.
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
        """Stop reading."""
        await self._at_source.close()
        await self._at_target.close()


FoundLane = tuple[str, FlowState, LaneState]
_Place = tuple[TopicId, int]


class Backs(NamedTuple):
    """The other writers to the partitions of a flow, according to other ledgers."""

    newest: dict[tuple[TopicId, TopicId, int], tuple[str, LaneState]]
    """Lanes from the target to the source, by the topic ids there and here."""
    third: dict[_Place, str]
    """Partitions with records of a third cluster, and the flow that copies them."""

    def of(self, lane: LaneState) -> tuple[str, LaneState] | str:
        """Return the opposite lane and its flow, or why positions cannot be translated."""
        key = lane.key
        for topic in (key.source_topic_id, key.target_topic_id):
            if (flow := self.third.get((topic, key.partition))) is not None:
                return THIRD.format(flow)
        return self.newest.get((key.target_topic_id, key.source_topic_id, key.partition), NOT_BACK)


def backs(ids: tuple[ClusterId, ClusterId], at_source: Iterable[FoundLane], at_target: Iterable[FoundLane]) -> Backs:
    """Return the other writers. `ids` are the flow's source and target; the ledgers at both exclude the flow's own."""
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
