"""What lanes without a host have copied: the target is read once former holders can no longer write."""

from collections.abc import Mapping, Sequence

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Progress, SourceRun
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.rules.unrecorded_copies import Written, WrittenBatch
from mirrord.supervision.settled_lanes import SettledLanes
from mirrord.supervision.unrecorded_copies import BatchQuestion
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
FLOWING = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))


class Clock(SystemClock):
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Target:
    """A target partition to which the lane has written ten records, or more, since its last progress record."""

    def __init__(self) -> None:
        self.records = 10
        self.reads = 0

    async def find_written(self, _: FlowConfig, questions: Sequence[BatchQuestion]) -> Mapping[LaneId, Written | None]:
        self.reads += 1
        written = Written((WrittenBatch(10, self.records, base_offset=10),))
        return {each.lane: written for each in questions}


async def test_the_target_is_read_again_without_another_wait() -> None:
    """After a fence, nothing more arrives. What has arrived since the first reading counts."""
    state = FlowState()
    begun = (opened(0), LaneTaken(LANE, 1, "r-1", (5_000, 4_000)), SourceRun(LANE, 1, (Run(0, 0),)))
    for each in (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(*begun)):
        fold(state, each, state.next_offset)
    state.accept_progress(Progress(LANE, 1, 1, 10, 10, 0, 10, 10, 1, 1, protected=True, state="copying", settled=True))
    lane, target, clock = state.lanes[LANE], Target(), Clock()
    topics = {lane.target_topic: Topic(lane.target_topic, lane.key.target_topic_id, 1, 1)}
    settled = SettledLanes((3_000, 4_000), target.find_written, clock)

    async def position() -> int | None:
        await settled.settle(FLOWING, state, [lane], topics)
        part = settled.of(LANE)
        return None if part is None else part.position

    assert await position() is None
    clock.now = 8.9
    assert (await position(), target.reads) == (None, 0)
    clock.now = 9.1
    assert await position() == 20
    target.records = 13
    assert (await position(), target.reads) == (20, 1)
    settled.read_again()
    assert (settled.of(LANE), settled.written(LANE)) == (None, None)
    assert (await position(), target.reads) == (23, 2)
