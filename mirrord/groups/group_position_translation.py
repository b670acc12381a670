"""Translates a group's position at the source into one at the target, by the current ledger."""

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

from mirrord.groups.rules.commit_plan import Mapped
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.offset_map import NOTHING, CopiedPosition, LaneMap, Translation
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.archived_runs import ArchiveLost
from mirrord.model.names import LaneId

NOT_COPIED = "the topic is not copied"
NOT_BACK = "the flow back does not copy this partition yet (groups.both_ways)"
NOT_YET = frozenset({NOTHING, NOT_BACK})
"""Reasons for a missing translation that may become available soon."""


class Lanes:
    """The newest lane of each source partition."""

    def __init__(self) -> None:
        self._of: object = None
        self._count = -1
        self._lanes: dict[TopicAndPartition, LaneState] = {}

    def of(self, state: FlowState) -> Mapping[TopicAndPartition, LaneState]:
        """Return the newest lanes by source topic and partition. A topic that was created again has new lanes."""
        if state is not self._of or len(state.lanes) != self._count:
            self._of, self._count = state, len(state.lanes)
            self._lanes = {
                (lane.source_topic, lane.partition): lane
                for lane in sorted(state.lanes.values(), key=lambda lane: lane.age)
            }
        return self._lanes


class SourcePosition(NamedTuple):
    """A position at the source that has to be translated."""

    offset: int
    topic_id: str | None = None


def ahead_of(
    lanes: Mapping[TopicAndPartition, LaneState],
    progress_by_lane: Mapping[LaneId, Progress],
    positions: Mapping[TopicAndPartition, int],
) -> list[LaneState]:
    """Return the lanes whose resume positions may lag the copy to an extent that matters for these source positions.

    The end of a target partition says how far its lane is copied only if the target's broker itself refuses gaps
    (`protected`).
    """
    found: list[LaneState] = []
    for place, offset in positions.items():
        lane = lanes.get(place)
        progress = progress_by_lane.get(lane.key.id) if lane is not None else None
        if (
            lane is not None
            and progress is not None
            and progress.protected
            and offset > progress.source_offset
            and not lane.halted
        ):
            found.append(lane)
    return found


class Atlas:
    """The maps of all lanes at one moment.

    `progress_by_lane` and `ends` must be taken before the ledger is read to its end. Then everything below them is
    explained by intents that were read, because an intent precedes its records. Resume positions are at most one second
    old. `ends` are the high watermarks of some target partitions, whose lanes are copied up to there. If others also
    write to such a partition, the answer is slightly too low until the next progress record, but never too high.
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
        """Return the lane that copies this source partition."""
        return self._lanes.get(place)

    @cached_property
    def copies(self) -> Mapping[TopicAndPartition, TopicAndPartition]:
        """The source partition of each target partition that is a copy."""
        return {(lane.target_topic, lane.partition): place for place, lane in self._lanes.items()}

    def mapped(self, place: TopicAndPartition, position: SourcePosition) -> Mapped:
        """Return the position at the target."""
        lane = self._lanes.get(place)
        if lane is None:
            return Mapped(None, 0, NOT_COPIED)
        if position.topic_id not in {None, lane.key.source_topic_id}:
            return Mapped(None, 0, f"it was committed for another topic {place[0]} than the one that is copied")
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
        """Return the source position for a position that the target has in the copy of this partition.

        Only resume positions are used. After a resume position there may be records of other writers, and counting them
        as copied records would skip records of the source.
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
    """Return how far a lane is copied, by the end of its target partition; None if the progress record says as much."""
    run = lane.target_runs.last
    if run is None or end <= progress.target_offset or end < run.offset:
        return None
    ordinal = run.ordinal + end - run.offset
    source_offset = lane.source_runs.offset_of(ordinal)
    return CopiedPosition(ordinal, end, progress.source_offset if source_offset is None else source_offset)


def line_of(translation: Translation) -> str:
    """Return for operators why an answer is not the exact record; empty if it is."""
    match translation.kind:
        case "before_map" if translation.reason == "inherited":
            return "MirrorMaker 2 copied the record there, and its target offset was not recorded"
        case "before_map":
            return "it is before everything in the map"
        case "not_copied":
            return (
                f"there is no copied record at it ({translation.reason})"
                if translation.reason
                else "there is no record at it"
            )
        case "unknown":
            return translation.reason
        case _:
            return ""
