"""Finds out what lanes have copied that no replicator hosts any longer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.source_ends import CopiedPart, lane_end
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import longer_times, longest_s
from mirrord.runtime.clock import Clock
from mirrord.supervision.rules.unrecorded_copies import Written, is_final, is_plan_open, settled_by
from mirrord.supervision.unrecorded_copies import BatchQuestion, FindWritten, batch_question

LOOK_S = 0.5
"""Interval, in seconds, at which lanes are looked at again."""

log = structlog.get_logger()


@dataclass
class _Left:
    """A lane that no replicator hosts any longer."""

    grant: int
    since: float
    """The time on the monotonic clock at which the lane was first seen without a host."""
    settled: CopiedPart | None = None
    """What the lane has copied, or None if this is not known yet."""
    written: Written | None = None
    """The batches of the lane beyond its progress record, if the target was read."""
    failures: int = 0
    """How often the target partition could not be read."""


class SettledLanes:
    """What lanes have copied that no replicator hosts any longer.

    The progress record of a lane that was not drained is up to a second older than its last batch, and batches in
    flight may still arrive. The target is therefore read, but not before the former holder can no longer write.
    """

    def __init__(self, times: tuple[int, int], find_written: FindWritten, clock: Clock) -> None:
        """`times` are the length of the lease and the request timeout in milliseconds. A lane whose last holder had
        longer ones is awaited longer."""
        self._times = times
        self._find_written = find_written
        self._clock = clock
        self._left: dict[LaneId, _Left] = {}

    @property
    def known(self) -> dict[LaneId, CopiedPart]:
        """What lanes have copied according to the last call to `settle`. Lanes for which this is not known are
        omitted."""
        return {lane: left.settled for lane, left in self._left.items() if left.settled is not None}

    def of(self, lane: LaneId) -> CopiedPart | None:
        """Return what a lane has copied according to the last call to `settle`, or None if this is not known."""
        left = self._left.get(lane)
        return None if left is None else left.settled

    def written(self, lane: LaneId) -> Written | None:
        """Return the batches of a lane beyond its progress record, or None if the target was not read."""
        left = self._left.get(lane)
        return None if left is None else left.written

    def read_again(self) -> None:
        """Forget what the lanes have copied. The next call to `settle` reads the target again, without another wait for
        the former holders."""
        for left in self._left.values():
            left.settled = left.written = None

    async def settle(
        self, flow: FlowConfig, state: FlowState, lanes: Sequence[LaneState], targets: Mapping[str, Topic]
    ) -> None:
        """Find out what these lanes have copied. They must have no hosts. `targets` are the topics of the target.

        A lane whose result is not known yet is looked at again in a later call.
        """
        now = self._clock.monotonic()
        known, self._left = self._left, {}
        questions: list[BatchQuestion] = []
        for lane in lanes:
            lane_id, progress = lane.key.id, state.progress.get(lane.key.id)
            left = known.get(lane_id)
            if left is None or left.grant != lane.grant:
                left = _Left(lane.grant, now)
            self._left[lane_id] = left
            position = state.standing(lane_id).position
            target = targets.get(lane.target_topic)
            if left.settled is not None:
                continue
            if is_final(lane, progress):
                left.settled = CopiedPart(position)
            elif target is None or target.topic_id != lane.key.target_topic_id:
                left.settled = settled_by(lane, progress, position, Written(trouble=f"{lane.target_topic} is gone"))
            elif now - left.since >= longest_s(longer_times(self._times, lane.times)):
                questions.append(batch_question(lane, progress))
        if questions:
            await self._look(flow, state, questions)

    async def until_settled(
        self,
        flow: FlowConfig,
        ledger: Callable[[], FlowState],
        lanes: Sequence[LaneId],
        targets: Mapping[str, Topic],
        waits: Callable[[int], None],
    ) -> dict[LaneId, CopiedPart]:
        """Return what these lanes have copied, as soon as this is known of all of them. While it is not, `waits` is
        called with the number of the others."""
        while True:
            state = ledger()
            await self.settle(flow, state, [state.lanes[lane] for lane in lanes if lane in state.lanes], targets)
            found = {lane: part for lane in lanes if (part := self.of(lane)) is not None}
            left = sum(lane in state.lanes and lane not in found for lane in lanes)
            if not left:
                return found
            waits(left)
            await self._clock.sleep(LOOK_S)

    async def _look(self, flow: FlowConfig, state: FlowState, questions: list[BatchQuestion]) -> None:
        # Not all partitions may be read in one call. Those that cannot be read must not delay the others indefinitely.
        questions.sort(key=lambda each: self._left[each.lane].failures)
        try:
            found = await self._find_written(flow, questions)
        except EnvironmentFault as error:
            log.info("losses_not_known_yet", flow=flow.name, partitions=len(questions), reason=str(error))
            return
        for lane_id, written in found.items():
            self._left[lane_id].failures += written is None
            self._left[lane_id].written = written
            if written is not None and (lane := state.lanes.get(lane_id)) is not None:
                progress, position = state.progress.get(lane_id), state.standing(lane_id).position
                self._left[lane_id].settled = settled_by(lane, progress, position, written)


def is_at_end(state: FlowState, lane: LaneState) -> bool:
    """Return whether the lane's progress record shows that it has copied everything up to the last known end."""
    position, progress = state.standing(lane.key.id).position, state.progress.get(lane.key.id)
    return lane_end(state, lane) <= position and not is_plan_open(lane, progress)
