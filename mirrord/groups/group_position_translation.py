"""Translates a group's position on the source into its position on the target, and vice versa. The translation uses the
offset maps in the ledger."""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from mirrord.groups.rules.commit_plan import Mapped
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.folding.failovers import Recoveries, is_over
from mirrord.ledger.offset_map import NOTHING, CopiedPosition, LaneMap, Translation, finished_below
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.archived_runs import ArchiveLost
from mirrord.model.names import LaneId

NOT_COPIED = "the topic is not copied"
NOT_BACK = "the flow in the opposite direction does not copy this partition yet (groups.both_ways)"
NOT_YET = frozenset({NOTHING, NOT_BACK})
"""Reasons why a position cannot be translated yet. A later translation may succeed."""


class Lanes:
    """Finds the newest lane of each source partition. The result is cached until a lane is added to the state or
    removed from it, or until a failover changes."""

    def __init__(self, *, omits_ended: bool = False) -> None:
        """`omits_ended` leaves out the topics whose failover is complete: their positions are no longer synced."""
        self._omits_ended = omits_ended
        self._of: object = None
        self._changed = -1
        self._recoveries: Recoveries = ()
        self._lanes: dict[TopicAndPartition, LaneState] = {}

    def of(self, state: FlowState) -> Mapping[TopicAndPartition, LaneState]:
        """Return the newest lane of each source topic and partition. If a topic was deleted and re-created, the
        ledger also contains the lanes of the deleted topic."""
        changed, recoveries = state.lanes_changed, state.recoveries
        if state is not self._of or changed != self._changed or recoveries is not self._recoveries:
            self._of, self._changed, self._recoveries = state, changed, recoveries
            self._lanes = {
                (lane.source_topic, lane.partition): lane
                for lane in sorted(state.lanes.values(), key=lambda lane: lane.age)
                if not (self._omits_ended and is_over(recoveries, lane.source_topic))
            }
        return self._lanes


class SourcePosition(NamedTuple):
    """A position on the source that must be translated, and the id of its topic if that id is known."""

    offset: int
    topic_id: str | None = None


def ahead_of(
    lanes: Mapping[TopicAndPartition, LaneState],
    progress_by_lane: Mapping[LaneId, Progress],
    positions: Mapping[TopicAndPartition, int],
) -> list[LaneState]:
    """Return the lanes that may have copied the records up to these source positions even though their progress records
    do not show this yet.

    To find out how far these lanes have copied, the caller requests the ends of their target partitions. For an
    unprotected lane, the end of the target partition proves nothing, because the target broker may have accepted a
    batch that leaves a gap. Unprotected lanes and halted lanes are therefore omitted.
    """
    found: list[LaneState] = []
    for place, offset in positions.items():
        lane = lanes.get(place)
        progress = progress_by_lane.get(lane.key.id) if lane is not None else None
        if (
            lane is not None
            and progress is not None
            and progress.protected
            and offset > finished_below(lane, CopiedPosition.by(progress))
            and not lane.halted
        ):
            found.append(lane)
    return found


class Atlas:
    """The offset maps of all lanes at one point in time.

    The caller must determine `progress_by_lane` and `ends` before it reads the ledger to its end. An intent is written
    before its records, so the ledger then explains every record below the resume positions and below `ends`.

    A lane's resume position may be up to one second old. `ends` therefore holds the current high watermarks of some
    target partitions, by lane. A lane's records below the high watermark of its target partition are known to have been
    copied. If other clients also write to the target partition, a translated position may be slightly too low until the
    lane writes its next progress record. A translated position is never too high.
    """

    def __init__(
        self,
        lanes: Mapping[TopicAndPartition, LaneState],
        progress_by_lane: Mapping[LaneId, Progress],
        ends: Mapping[LaneId, int] | None = None,
    ) -> None:
        self._lanes = lanes
        self._progress_by_lane = progress_by_lane
        self._ends = ends or {}
        self._maps: dict[LaneId, LaneMap] = {}

    def lane(self, place: TopicAndPartition) -> LaneState | None:
        """Return the lane that copies this source partition, or None if the partition is not copied."""
        return self._lanes.get(place)

    @cached_property
    def copies(self) -> Mapping[TopicAndPartition, TopicAndPartition]:
        """Maps the target partition of each lane to the lane's source partition."""
        return {(lane.target_topic, lane.partition): place for place, lane in self._lanes.items()}

    def mapped(self, place: TopicAndPartition, position: SourcePosition) -> Mapped:
        """Return the position on the target that matches a position in this source partition."""
        lane = self._lanes.get(place)
        if lane is None:
            return Mapped(None, 0, NOT_COPIED)
        if position.topic_id not in {None, lane.key.source_topic_id}:
            return Mapped(None, 0, f"it was committed for a different topic {place[0]}, not for the one that is copied")
        progress = self._progress_by_lane.get(lane.key.id)
        try:
            translation = self._map(lane, progress).to_target(position.offset)
        except ArchiveLost as fault:
            return Mapped(None, 0, str(fault))
        end = self._ends.get(lane.key.id)
        if translation.ahead and progress is not None and end is not None:
            newer = _by_end(lane, progress, end)
            sooner = LaneMap(lane, newer).to_target(position.offset) if newer is not None else translation
            if sooner.offset is not None and not sooner.ahead and sooner.kind in {"exact", "at_end"}:
                return Mapped(sooner.offset, 0, "", provisional=True)
        return Mapped(translation.offset, translation.ahead, line_of(translation))

    def back(self, place: TopicAndPartition, offset: int) -> Mapped:
        """Return the position in this source partition that matches an offset in its target partition.

        Only records below the resume position count as copied. The target partition may hold records from other writers
        above the resume position. If these records counted as copied, a group would skip records on the source.
        """
        lane = self._lanes.get(place)
        if lane is None:
            return Mapped(None, 0, NOT_COPIED)
        progress = self._progress_by_lane.get(lane.key.id)
        try:
            translation = self._map(lane, progress).to_source(offset)
        except ArchiveLost as fault:
            return Mapped(None, 0, str(fault))
        if translation.kind != "at_end" or progress is None:
            return Mapped(translation.offset, 0, line_of(translation))
        return Mapped(translation.offset, max(0, offset - progress.target_offset))

    def _map(self, lane: LaneState, progress: Progress | None) -> LaneMap:
        known = self._maps.get(lane.key.id)
        if known is None:
            known = self._maps[lane.key.id] = LaneMap(
                lane, CopiedPosition.by(progress) if progress is not None else None
            )
        return known


def _by_end(lane: LaneState, progress: Progress, end: int) -> CopiedPosition | None:
    """Return how far a lane has copied, according to the end of its target partition. Return None if the end of the
    target partition shows no more copied records than the lane's progress record."""
    run = lane.target_runs.last
    if run is None or end <= progress.target_offset or end < run.offset:
        return None
    ordinal = run.ordinal + end - run.offset
    source_offset = lane.source_runs.offset_of(ordinal)
    return CopiedPosition(ordinal, end, progress.source_offset if source_offset is None else source_offset)


def line_of(translation: Translation) -> str:
    """Return one line for operators that explains why no copy of the record at the requested position is known. Return
    an empty string if there is nothing to explain."""
    match translation.kind:
        case "before_map" if translation.reason == "inherited":
            return "MirrorMaker 2 copied the record there, and its target offset was not recorded"
        case "before_map":
            return "it is before the beginning of the map"
        case "not_copied":
            return (
                f"there is no copied record at this position ({translation.reason})"
                if translation.reason
                else "there is no record at this position"
            )
        case "unknown":
            return translation.reason
        case _:
            return ""
