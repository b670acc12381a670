"""What would be lost of a source partition."""

from msgspec.structs import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Progress, SourceRun, TargetRun
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.fold import fold
from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnd, SeenEnds, end_records
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.state import FlowState
from mirrord.model.names import TopicId, TopicPartition
from mirrord.model.readiness import PartitionReadiness
from mirrord.model.runs import Run
from mirrord.model.status import LaneStatus
from mirrord.recovery.rules.headroom import RetentionLimits
from mirrord.recovery.rules.partitions import SourceRetention, has_expired, observed_lanes, partitions_of
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE, TOPIC = lane_id(0), TopicId("source-topic")
WHERE = SourcePartition("orders", TOPIC, 0)
HOUR_MS = 3_600_000


def state(seen: SeenEnd = NEVER) -> FlowState:
    """A lane that has copied 100 records, the last of them with the timestamp 59,000."""
    made = FlowState()
    runs = SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 0)
    entries = (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(LANE, 1, "r-1"), *runs))
    for offset, each in enumerate(entries):
        fold(made, each, offset)
    made.accept_progress(
        Progress(LANE, 1, 1, 100, 100, 0, 100, 100, 59_000, 60_000, protected=True, state="copying", settled=True)
    )
    for record in end_records(SeenEnds(made), {WHERE: seen}, {}, (), 1, 60_000):
        made.accept_progress(record)
    return made


def status(state_: str = "copying", source_offset: int | None = 100, source_end: int | None = 100) -> LaneStatus:
    return LaneStatus(
        topic="orders",
        partition=0,
        target_topic="eu.orders",
        state=state_,  # pyright: ignore[reportArgumentType]
        source_offset=source_offset,
        source_end=source_end,
        target_offset=source_offset,
        lag_records=0,
        lag_s=0.0,
    )


def only(
    ledger: FlowState, reported: list[LaneStatus] | None = None, live: SeenEnd | None = None
) -> PartitionReadiness:
    ends = {} if live is None else {TopicPartition("orders", 0): live}
    (found,) = partitions_of(SeenEnds(ledger), list(ledger.lanes.values()), ends, reported)
    return found


def test_what_was_seen_last_counts_whether_or_not_a_daemon_answers() -> None:
    """The source died an hour ago: the daemon only repeats what it last fetched."""
    ledger = state(SeenEnd(160, 60_000))
    for reported in (None, [status()], [status("unknown")], [status(source_end=None)]):
        found = only(ledger, reported)
        assert (found.source_end, found.seen_ms, found.lag_records, found.lag_s) == (160, 60_000, 60, 1.0), reported


def test_a_daemon_knows_newer_positions() -> None:
    found = only(state(SeenEnd(160, 60_000)), [status(source_offset=150)])
    assert (found.source_offset, found.target_offset, found.lag_records, found.state) == (150, 150, 10, "copying")


def test_the_source_itself_knows_best() -> None:
    found = only(state(SeenEnd(160, 60_000)), live=SeenEnd(500, HOUR_MS))
    assert (found.source_end, found.seen_ms, found.lag_records) == (500, HOUR_MS, 400)


def test_the_end_in_a_progress_record_has_no_known_time() -> None:
    found = only(state())
    assert (found.source_end, found.seen_ms, found.lag_records, found.lag_s) == (100, None, 0, 0.0)


def test_nothing_is_known_without_a_record() -> None:
    ledger = state()
    ledger.progress.clear()
    assert (only(ledger).source_end, only(ledger).lag_records) == (None, None)


def test_timestamps_in_the_future_give_no_age() -> None:
    ledger = state(SeenEnd(160, 50_000))
    assert (only(ledger).lag_records, only(ledger).lag_s) == (60, None)


def test_a_paused_partition_without_a_daemon() -> None:
    ledger = state(SeenEnd(100, 60_000))
    fold(ledger, entry(CopyingPaused("orders", -1, Origin("ada", "", 1))), ledger.next_offset)
    assert only(ledger).state == "paused"


def test_partitions_that_were_never_copied() -> None:
    ledger, new = state(SeenEnd(100, 60_000)), SourcePartition("orders", TOPIC, 1)
    for record in end_records(
        SeenEnds(ledger), {WHERE: SeenEnd(100, 60_000), new: SeenEnd(0, 60_000)}, {}, (), 1, 60_000
    ):
        ledger.accept_progress(record)
    for reported in (None, [status()]):
        found = list(partitions_of(SeenEnds(ledger), list(ledger.lanes.values()), {}, reported))
        assert [(each.partition, each.state) for each in found][1:] == [(1, "not copied")]
    other = LaneStatus(topic="bills", partition=0, target_topic="eu.bills", state="unknown")
    found = list(partitions_of(SeenEnds(ledger), list(ledger.lanes.values()), {}, [status(), other]))
    assert (found[-1].topic, found[-1].state) == ("bills", "not copied")


def test_lanes_of_topics_that_are_gone_or_no_longer_selected() -> None:
    ledger = state(SeenEnd(100, 60_000))
    lanes = list(ledger.lanes.values())
    assert observed_lanes(SeenEnds(ledger), lanes, None) == lanes
    assert observed_lanes(SeenEnds(FlowState()), lanes, None) == lanes
    ledger.source_ends.clear()
    other = SourcePartition("bills", TopicId("other"), 0)
    for record in end_records(SeenEnds(ledger), {other: SeenEnd(1, 60_000)}, {}, (), 1, 60_000):
        ledger.accept_progress(record)
    assert observed_lanes(SeenEnds(ledger), lanes, None) == []
    assert observed_lanes(SeenEnds(ledger), lanes, []) == []
    assert observed_lanes(SeenEnds(ledger), lanes, [status()]) == lanes, "the daemon knows more than is recorded"
    for record in end_records(SeenEnds(ledger), {}, {"orders": "hidden"}, (), 1, 61_000):
        ledger.accept_progress(record)
    assert observed_lanes(SeenEnds(ledger), lanes, None) == []


def test_the_age_of_what_would_be_lost_does_not_begin_with_the_newest_copied_record() -> None:
    """It was written an hour before the others, and the target held everything until a second before the end."""
    assert only(state(SeenEnd(160, HOUR_MS, held_ms=HOUR_MS - 1_000))).lag_s == 1.0
    assert only(state(SeenEnd(160, HOUR_MS, held_ms=50_000))).lag_s == (HOUR_MS - 59_000) / 1000
    assert only(state(SeenEnd(160, 50_000, held_ms=49_000))).lag_s == 1.0, "the timestamps are in the future"
    assert only(state(SeenEnd(160, 50_000, held_ms=51_000))).lag_s is None, "the clock was set back"
    assert only(state(SeenEnd(160, 60_000, held_ms=59_900)), live=SeenEnd(160, 62_000)).lag_s == 2.1


def test_the_headroom_of_the_source_without_a_daemon() -> None:
    ledger = state(SeenEnd(160, 60_000, start=40, held_ms=59_000))
    retention = SourceRetention(90_000, {"orders": RetentionLimits(HOUR_MS)}, RetentionLimits(is_known=False))
    for reported, forecast_s in ((None, None), ([replace(status(), retention_left_s=9.0)], 9.0)):
        (found,) = partitions_of(SeenEnds(ledger), list(ledger.lanes.values()), {}, reported, retention)
        headroom = found.source_headroom
        assert headroom is not None
        assert (headroom.offsets, headroom.left_s, headroom.forecast_s) == (60, 3_600.0 - 30 - 1, forecast_s)


def test_records_that_the_source_had_deleted_too() -> None:
    ledger = state(SeenEnd(160, 60_000, start=40))
    (lane,) = ledger.lanes.values()
    known = SeenEnds(ledger)
    assert [has_expired(known, lane, offset) for offset in (0, 39, 40, 100)] == [True, True, False, False]
    assert not has_expired(SeenEnds(state(SeenEnd(160, 60_000))), lane, 0)
    ledger.progress.clear()
    assert not has_expired(SeenEnds(ledger), lane, 0)
