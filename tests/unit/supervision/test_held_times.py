"""Up to which time the target held all records of a source partition, according to the progress records."""

from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Progress, SourceRun, TargetRun
from mirrord.ledger.fold import fold
from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnd
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.state import FlowState
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from mirrord.supervision.flow_stats import Behind
from mirrord.supervision.unfetched_partition_ends import held_times
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
WHERE = SourcePartition("orders", TopicId("source-topic"), 0)
WALL_MS = 1_000_000


def state(position: int | None) -> FlowState:
    """A lane that has copied all records below `position`. If it is None, the lane has copied nothing yet."""
    made = FlowState()
    runs = () if position is None else (SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 0))
    entries = (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(LANE, 1, "r-1"), *runs))
    for offset, each in enumerate(entries):
        fold(made, each, offset)
    if position is not None:
        record = Progress(LANE, 1, 1, position, position, 0, position, -1, -1, 1, protected=True, state="copying")
        made.accept_progress(record)
    return made


def held_ms(recorded: Behind, position: int | None, end: int, now_s: float, age_ms: int = 0) -> int:
    """The time in milliseconds on the clock of `now_s`, or -1."""
    now_ms = WALL_MS + int(now_s * 1000)
    found = held_times(state(position), {WHERE: SeenEnd(end, now_ms - age_ms)}, recorded, now_s, now_ms)
    return found[WHERE].held_ms - WALL_MS if WHERE in found else -1


def test_a_lane_that_has_copied_everything() -> None:
    assert held_ms(Behind(), 7, 7, 5.0, age_ms=400) == 4_600


def test_a_busy_lane_has_copied_what_was_there_a_moment_ago() -> None:
    recorded = Behind()
    assert held_ms(recorded, 7, 9, 5.0) == -1
    assert held_ms(recorded, 9, 12, 6.0) == 5_000
    assert held_ms(recorded, 11, 15, 7.0) == 5_000
    assert held_ms(recorded, 14, 15, 8.0) == 6_000
    assert held_ms(recorded, 15, 15, 9.0) == 9_000


def test_a_lane_that_copies_some_records_again_holds_nothing_for_sure() -> None:
    """The target has lost records that it had acknowledged."""
    recorded = Behind()
    assert held_ms(recorded, 9, 9, 5.0) == 5_000
    assert held_ms(recorded, 4, 9, 6.0) == -1
    assert held_ms(recorded, 9, 9, 7.0) == 7_000


def test_a_wall_clock_that_is_set_back_makes_nothing_newer() -> None:
    recorded, ledger = Behind(), state(9)
    held_times(ledger, {WHERE: SeenEnd(9, WALL_MS)}, recorded, 5.0, WALL_MS)
    back_ms = WALL_MS - 60_000
    found = held_times(ledger, {WHERE: SeenEnd(12, back_ms)}, recorded, 8.0, back_ms)
    assert found[WHERE].held_ms == back_ms - 3_000


def test_nothing_is_known_without_a_log_end_or_a_position() -> None:
    assert held_ms(Behind(), None, 7, 5.0) == -1
    assert held_times(state(7), {WHERE: NEVER}, Behind(), 5.0, WALL_MS) == {}
