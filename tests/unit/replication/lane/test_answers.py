"""Every Kafka error code of fetch and produce has a decided consequence: one test per row of the tables."""

from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.error_policy import FETCHED, PRODUCED, Fetched, Produced
from mirrord.ledger.facts.core import (
    Displaced,
    HoleFound,
    LaneHalted,
    LaneOpened,
    Mode,
    Rebuild,
    Rewound,
    SourceRun,
    TakeoverChecked,
    Verdict,
)
from mirrord.ledger.quarantine import Quarantine
from mirrord.ledger.seeks import Seeks
from mirrord.model.names import LaneId
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.assignment import SourceBounds
from mirrord.replication.lane.in_flight import window
from mirrord.replication.lane.lane_report import describe
from mirrord.replication.lane.limits import FAR, NEAR
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskConfigs,
    AskEnd,
    AskProducers,
    Bound,
    Chunk,
    ConfigsAnswer,
    Drain,
    Drained,
    Effects,
    EndAnswer,
    Fenced,
    FetchFrom,
    Halted,
    Lost,
    Produce,
    ProduceAccepted,
    ProduceAnswer,
    ProducerEntry,
    ProducerIdAnswer,
    ProducersAnswer,
    Start,
    StartAnswer,
    TargetFar,
    VisibleAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target.refused_retry import BY_RECORD, TOO_LARGE
from tests.sim import toy


@dataclass
class Record:
    """The ledger's state of a lane that was just opened."""

    producer_id: int = 7
    producer_epoch: int = 0
    policy: str = "p"
    grant: int = 1
    replicator: str = "r"
    times: tuple[int, int] = (0, 0)
    source_runs: Runs = field(default_factory=Runs)
    target_runs: Runs = field(default_factory=Runs)
    regiven: int = -1
    regiven_until: int = -1
    rewinds: tuple[tuple[int, Rewound], ...] = ()
    rebuilds: tuple[Rebuild, ...] = ()
    displaced: tuple[Displaced, ...] = ()
    holes: tuple[HoleFound, ...] = ()
    truncations: tuple[tuple[int, int], ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    left_out_epochs: tuple[tuple[int, int, int], ...] = ()
    halted: LaneHalted | None = None
    last_check: TakeoverChecked | None = None
    newest_verdicts: tuple[Verdict, ...] = ()
    quarantine: Quarantine = ()
    seeks: Seeks = ()


def copying(mode: Mode = "sequence", *, compacts: bool = True) -> tuple[Lane, FetchFrom]:
    """A lane that asks for its first chunk; `compacts`: the source's topic is known to be compacted."""
    lane = Lane(LaneId("a.0.b"), "orders", "eu.orders", 0, "p", True, toy.rebuild, mode=mode)
    lane.gap.compacts = compacts
    record = Record()
    step(lane, 0.0, Start(None, None, "r", 0.0, False))
    (append,) = step(lane, 0.0, ProducerIdAnswer(lane.asked, 0, 7, 0))
    assert isinstance(append, Append)
    assert isinstance(append.facts[0], LaneOpened)
    assert append.facts[0].mode == mode
    step(lane, 0.0, Bound(append.tag, (True, True), record))
    (append,) = step(lane, 0.0, StartAnswer(lane.asked, 0, 0))
    assert isinstance(append, Append)
    record.source_runs.add(0, 0)
    step(lane, 0.0, Bound(append.tag, (True,), record))
    (asked,) = step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 0))
    assert isinstance(asked, AskProducers) == (mode == "sequence")
    if isinstance(asked, AskProducers):
        step(lane, 0.0, ProducersAnswer(lane.asked, 0, None))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 0))
    effects = step(lane, 0.0, VisibleAnswer(lane.asked, 0, 0, 0))
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchFrom)]
    return lane, fetch


def chunk(lane: Lane, *, error: int = 0, log_start: int = 0, high_watermark: int = 4, first: int = 0) -> Chunk:
    """The source's answer: two batches, or an error."""
    data = bytearray()
    for base in (first, first + 2):
        data += toy.encode(base, base + 1, [(base, base), (base + 1, base + 1)], newest_ms=1)
    found = bytearray() if error else data
    return Chunk(lane.asked, error, high_watermark, high_watermark, log_start, (), found, 0, len(found))


def in_flight(mode: Mode = "sequence") -> tuple[Lane, Produce]:
    """A lane with its first batch in flight."""
    lane, _ = copying(mode)
    (append,) = [effect for effect in step(lane, 0.0, chunk(lane)) if isinstance(effect, Append)]
    assert append.facts == (SourceRun(lane.id, 1, (Run(0, 0),), (), ((0, 0),)),)
    assert isinstance(lane.record, Record)
    lane.record.epochs = ((0, 0),)
    effects = step(lane, 0.0, Bound(append.tag, (True,), lane.record))
    (ask,) = [effect for effect in effects if isinstance(effect, AskEnd)]  # unprotected: the end is read once more
    effects = step(lane, 0.0, EndAnswer(ask.question, 0, 1, 0))
    (produce,) = [effect for effect in effects if isinstance(effect, Produce)]
    assert len(produce.batches) == 1  # window 1 until the first acknowledgement
    return lane, produce


@pytest.mark.parametrize("error", sorted(PRODUCED))
def test_what_a_produce_error_leads_to(error: int) -> None:
    lane, produce = in_flight()
    effects: Effects = step(
        lane, 10.0, ProduceAnswer(produce.round, produce.batches[0], error, 0 if error == 0 else -1)
    )
    outcome = PRODUCED[error]
    for asked in [each for each in effects if isinstance(each, AskConfigs)]:
        lane.refusal.configs_seen = "settings"
        effects = step(lane, 10.0, ConfigsAnswer(asked.question, "settings"))
    if outcome is Produced.DONE:
        assert lane.phase is Phase.COPYING
        assert lane.acked == 2
        return
    assert lane.acked == 0
    if outcome is Produced.REFUSED and error not in TOO_LARGE | BY_RECORD:
        assert lane.phase is Phase.HALTED
        (halted,) = [effect for effect in effects if isinstance(effect, Halted)]
        assert "[0, 2)" in halted.line
        return
    assert lane.phase in (Phase.WAITING, Phase.RESUMING)
    if outcome is not Produced.REFUSED:
        assert describe(lane, SourceBounds(4, 0.0, 0), 2).note.endswith(f"is retried: {ErrorCode.name_of(error)}")
    if outcome is Produced.UNKNOWN:
        assert lane.late_writes.until == 10.0 + lane.limits.request_timeout_s
    if outcome is Produced.DENIED:
        (wake,) = [effect for effect in effects if isinstance(effect, Wake)]
        assert wake.at == 10.0 + lane.limits.denied_s


@pytest.mark.parametrize("base_offsets", [(2, 4, 6), (2, 5, 7), (2, 4, 0), (9, 11, 13)])
def test_answers_given_together_have_the_effect_of_answers_given_one_by_one(base_offsets: tuple[int, ...]) -> None:
    """Also if the middle one is elsewhere, the last one below the end, and none where it should be."""
    ends: list[tuple[object, ...]] = []
    for together in (True, False):
        lane, produce = in_flight()
        step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 0, 0))
        asked = min(lane.questions)  # the fetch came before the comparison after the first acknowledgement
        step(lane, 0.0, replace(chunk(lane, first=4, high_watermark=8), question=asked))
        batches = list(lane.in_flight)
        assert len(batches) == 3
        if together:
            effects = step(lane, 1.0, ProduceAccepted(lane.round, batches, list(base_offsets)))
            step(lane, 1.0, ProduceAccepted(lane.round, batches, list(base_offsets)))
        else:
            number, effects = lane.round, []
            for batch, base_offset in zip(batches, base_offsets, strict=True):
                effects += step(lane, 1.0, ProduceAnswer(number, batch, 0, base_offset))
        state = (lane.phase, lane.acked, lane.expected, lane.copied_records, lane.copied_bytes, lane.in_flight_bytes)
        ends.append(
            (*state, lane.log.must_read_log, lane.log.unread_from, lane.round, [type(effect) for effect in effects])
        )
    assert ends[0] == ends[1]


def test_far_away_more_is_on_its_way_once_something_was_acknowledged() -> None:
    lane, produce = in_flight()
    assert step(lane, 0.0, TargetFar(is_far=True)) == []
    assert window(lane) == 1
    step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 0, 0))
    assert (window(lane), lane.reach) == (FAR.batches, FAR)
    step(lane, 0.0, TargetFar(is_far=False))
    assert (window(lane), lane.reach) == (NEAR.batches, NEAR)


def test_an_at_least_once_lane_sends_one_batch_at_a_time() -> None:
    expected: dict[Mode, tuple[int, bool]] = {"sequence": (64, True), "at-least-once": (1, False)}
    for mode, found in expected.items():
        lane, produce = in_flight(mode)
        step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 0, 0))
        assert (window(lane), describe(lane, SourceBounds(4, 0.0, 0), 2).protected) == found


def test_a_corrupt_batch_is_fetched_once_more_and_then_refused() -> None:
    lane, produce = in_flight()
    step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], ErrorCode.CORRUPT_MESSAGE, -1))
    assert lane.phase is Phase.RESUMING
    assert lane.refusal.corrupt_ordinal == 0


def test_how_old_the_next_batch_is_stays_known_when_it_is_dropped() -> None:
    lane, _ = copying()
    assert describe(lane, SourceBounds(4, 0.0, 0), 2).next_record_ms == -1
    lane, produce = in_flight()
    assert describe(lane, SourceBounds(4, 0.0, 0), 2).next_record_ms == 1
    step(lane, 10.0, ProduceAnswer(produce.round, produce.batches[0], 9999, -1))
    assert lane.phase is Phase.HALTED
    assert describe(lane, SourceBounds(4, 0.0, 0), 2).next_record_ms == 1


def test_an_unlisted_code_is_a_refusal() -> None:
    lane, produce = in_flight()
    step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 9999, -1))
    assert lane.phase is Phase.HALTED


@pytest.mark.parametrize("error", sorted(FETCHED))
def test_what_a_fetch_error_leads_to(error: int) -> None:
    lane, _ = copying()
    lane.on_loss = "halt"
    effects = step(lane, 0.0, chunk(lane, error=error, log_start=5, high_watermark=9))
    outcome = FETCHED[error]
    if outcome is Fetched.TAKE:
        assert lane.position == 4
    elif outcome in (Fetched.AGAIN, Fetched.DENIED):
        assert lane.phase is Phase.COPYING
        (again,) = [effect for effect in effects if isinstance(effect, FetchFrom)]
        assert again.refresh
        assert again.delay_s == (lane.limits.denied_s if outcome is Fetched.DENIED else lane.limits.retry_s)
    else:
        assert lane.phase is Phase.HALTED
    if outcome is Fetched.RANGE:
        assert "[0, 5)" in lane.halt.line


def test_records_deleted_before_they_were_copied_are_recorded_and_skipped() -> None:
    lane, _ = copying()
    lost, append, fetch = step(
        lane, 0.0, chunk(lane, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=5, high_watermark=9)
    )
    assert lost == Lost("orders-0: source offsets [0, 5) were deleted before they were copied")
    assert isinstance(append, Append)
    assert append.facts == (SourceRun(lane.id, lane.grant, (Run(0, 5),), (Verdict(0, 5, "expired"),), ((0, -1),)),)
    assert isinstance(fetch, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (5, -1)
    # What follows waits until the ledger knows of the gap, and of the epoch after it.
    epoch, *others = step(lane, 0.0, chunk(lane, first=5))
    assert isinstance(epoch, Append)
    assert epoch.facts == (SourceRun(lane.id, lane.grant, (Run(0, 5),), (Verdict(0, 5, "expired"),), ((0, 0),)),)
    assert not [each for each in others if isinstance(each, AskEnd | Produce)]
    assert not [each for each in step(lane, 0.0, Bound(append.tag, (True,), lane.record)) if isinstance(each, AskEnd)]
    (ask,) = [each for each in step(lane, 0.0, Bound(epoch.tag, (True,), lane.record)) if isinstance(each, AskEnd)]
    (produce,) = [each for each in step(lane, 0.0, EndAnswer(ask.question, 0, 1, 0)) if isinstance(each, Produce)]
    assert [(each.first, each.offset) for each in produce.batches] == [(0, 5)]


def test_a_truncated_source_halts_the_lane_and_names_the_range() -> None:
    lane, _ = copying()
    lane.on_loss = "halt"
    lane.position = 4
    step(lane, 0.0, Chunk(lane.asked, 0, 9, 9, 0, (), bytearray(), 0, 0, diverging_end=2))
    assert lane.phase is Phase.HALTED
    assert "[2, 4)" in lane.halt.line


def test_codes_of_the_tables_are_codes_of_kafka() -> None:
    assert {*PRODUCED, *FETCHED} <= {int(code) for code in ErrorCode}


def test_an_answer_that_arrives_twice_counts_once() -> None:
    lane, produce = in_flight()
    assert step(lane, 1.0, Start(None, None, "another", 0.0, False)) == []
    answer = ProduceAnswer(produce.round, produce.batches[0], 0, 0)
    assert step(lane, 1.0, answer)
    assert step(lane, 1.0, answer) == []
    assert lane.acked == 2
    lane.notes.clear()
    lane.in_flight.clear()
    assert step(lane, 1.0, Drain())
    assert step(lane, 1.0, Drain()) == []
    lane, _ = copying()
    assert step(lane, 1.0, Fenced())
    assert step(lane, 1.0, Fenced()) == []


@pytest.mark.parametrize(
    ("answered_at", "drained_at"),
    [
        (None, 11.0),
        (None, 60.0),  # the broker may be suspended, with the batch in its socket
        (11.0, 12.0),
        (11.0, 20.0),  # the leader has not answered the next request since the end of the wait
    ],
)
def test_a_lane_whose_bytes_may_still_arrive_is_not_left_cleanly(answered_at: float | None, drained_at: float) -> None:
    lane, produce = in_flight()
    step(lane, 10.0, ProduceAnswer(produce.round, produce.batches[0], ErrorCode.NETWORK_EXCEPTION, -1))
    if answered_at is not None:
        step(lane, answered_at, Woken(lane.asked))
        step(lane, answered_at, EndAnswer(lane.asked, 0, 1, 0))
    (_, _, drained) = step(lane, drained_at, Drain())
    assert drained == Drained(clean=False)


def test_a_lane_says_that_it_waits_for_replicas() -> None:
    """The lane waits for a batch that is appended but not on enough replicas, however long that takes."""
    lane, produce = in_flight()
    step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1))
    step(lane, 60.0, Woken(lane.asked))
    step(lane, 60.0, EndAnswer(lane.asked, 0, 1, 2))
    step(lane, 60.0, ProducersAnswer(lane.asked, 0, ProducerEntry(1, 0)))
    step(lane, 60.0, EndAnswer(lane.asked, 0, 1, 2))
    for _ in range(3):
        (wake,) = step(lane, 60.0, VisibleAnswer(lane.asked, 0, 0, 0))
        assert isinstance(wake, Wake)
        note = describe(lane, SourceBounds(4, 0.0, 0), 2).note
        assert note == "target offsets [0, 2) are on fewer replicas than required: the lane is waiting for these"
        step(lane, 60.0, Woken(lane.asked))
    assert not any(isinstance(each, Wake) for each in step(lane, 60.0, VisibleAnswer(lane.asked, 0, 2, 0)))
