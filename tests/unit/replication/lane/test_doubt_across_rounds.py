"""Batches in doubt across halts, new rounds, elections and reassigned ordinals."""

from msgspec.structs import replace

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskDivergence,
    AskEnd,
    CheckAnswer,
    Chunk,
    DivergenceAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    Released,
    TargetMoved,
    Wake,
    Woken,
)
from tests.sim import toy
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at
from tests.unit.replication.lane.test_suspended_leader import TIMEOUT_S, Asking

OUT_OF_RANGE = 1


def records(play: "Plays", fetch: FetchFrom, end: int, *offsets: int) -> Effects:
    """The source returns one batch for each of these offsets. Its log ends at `end`."""
    data = bytearray()
    for offset in offsets:
        data += toy.encode(offset, offset, [(offset, 100 + offset)], newest_ms=1)
    return play.bind_all_too(play.tell(Chunk(fetch.question, 0, end, end, 0, (), data, 0, len(data))))


class Plays(Faulty):
    def bind_all_too(self, effects: Effects) -> Effects:
        return [*effects, *self.bind_all(effects)]


def test_a_late_batch_of_the_lane_itself_is_not_a_truncation_of_the_source() -> None:
    """The lane has sent offsets 11 and 12 in two batches, and the connection was lost. The source then
    deletes both, and its log has only offset 17. The lane waits, assigns ordinal 11 to offset 17, and sends it. The
    second of the two batches (ordinal 12) arrives later. The source never had an offset 18."""
    found = opened(*BEGUN)
    play = Plays(found.state)
    play.take(progress_at(10))
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    effects = records(play, fetch, 13, 10)
    produce, fetch = one(effects, Produce), one(effects, FetchFrom)
    play.bind_all_too(play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 10)))
    effects = records(play, fetch, 13, 11, 12)
    sent = [batch for each in effects if isinstance(each, Produce) for batch in each.batches]
    assert [(each.first, each.count) for each in sent] == [(11, 1), (12, 1)]
    assert play.lane.sent_below == 13
    round_ = play.lane.round
    play.tell(ProduceAnswer(round_, sent[0], ErrorCode.NETWORK_EXCEPTION, -1))
    wake = one(play.tell(ProduceAnswer(round_, sent[1], ErrorCode.NETWORK_EXCEPTION, -1)), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    fetch = one(play.ask_target(11, last=10), FetchFrom)
    assert (fetch.position, play.lane.late_writes.in_doubt_below) == (11, 13)
    # Retention has deleted offsets 11 to 16. The lane waits for as long as the batches may arrive. The target has
    # neither of them then.
    effects = play.tell(Chunk(fetch.question, OUT_OF_RANGE, 18, 18, 17, (), bytearray(), 0, 0))
    wake = one(effects, Wake)
    assert wake.at >= play.lane.late_writes.until
    play.now = wake.at
    play.tell(Woken(wake.question))
    fetch = one(play.ask_target(11, last=10), FetchFrom)
    assert (fetch.position, play.lane.late_writes.in_doubt_below) == (11, -1)
    effects = play.tell(Chunk(fetch.question, OUT_OF_RANGE, 18, 18, 17, (), bytearray(), 0, 0))
    effects = play.bind_all_too(effects)
    assert play.record.source_runs.offset_of(11) == 17
    assert play.lane.comparison.assigned_from == 11
    fetch = one(effects, FetchFrom)
    data = bytearray(toy.encode(17, 17, [(17, 117)], newest_ms=1))
    effects = play.bind_all_too(play.tell(Chunk(fetch.question, 0, 18, 18, 17, (), data, 0, len(data))))
    while asked := [each for each in effects if isinstance(each, AskDivergence)]:
        effects = play.bind_all_too(play.tell(DivergenceAnswer(asked[0].question, 0, 0, 18)))
    produce = one(effects, Produce)
    assert [(each.first, each.offset) for each in produce.batches] == [(11, 17)]
    effects = play.bind_all_too(play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 11)))
    for check in [each for each in effects if isinstance(each, AskCheck)]:
        answer = CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=check.last + 1)
        play.bind_all_too(play.tell(replace(answer, source_end=18)))
    # The second batch arrives now: it follows ordinal 11. The lane notices it after an election.
    play.tell(TargetMoved(2))
    log = (OwnBatch(11, 1, 11, 0, 1), OwnBatch(12, 1, 12, 0, 1))
    check = one(play.read(play.ask_target(13, epoch=2, last=12), log), AskCheck)
    assert (check.first, check.last) == (12, 12)
    answer = CheckAnswer(check.question, 0, 12, 12, "unverifiable")
    effects = play.bind_all_too(play.tell(replace(answer, source_end=18, replaced=((12, 13),))))
    for fetch in [each for each in effects if isinstance(each, FetchFrom)]:
        effects = play.bind_all_too(play.tell(Chunk(fetch.question, 0, 18, 18, 17, (), bytearray(), 0, 0, None, 0, 18)))
        assert "truncated" not in play.record.verdicts.counts


def test_an_operator_command_does_not_hide_a_suspension() -> None:
    """The leader is suspended from 6.2 to 8.15 s, and the lane waits until 8.1 s. A seek command that is
    recorded in the ledger begins a new round. The time counts from the request of 6.3 s, which is unanswered."""
    asking = Asking()
    effects = asking.answer_all()
    while asking.now < 5.0:
        asking.sleep(effects)
        effects = asking.answer_all()
    asking.sleep(effects)
    asked = asking.now
    assert asking.lane.phase is Phase.RESUMING
    asking.now = 8.12
    one(asking.tell(Released(ahead=True)), AskEnd)
    asking.now = 8.15
    asking.answer_all()
    assert asking.now - asked > TIMEOUT_S / 4
    assert asking.until == asking.now + TIMEOUT_S


def test_a_slow_answer_of_another_epoch_starts_the_wait_again() -> None:
    """A protected lane that has taken over asks for the end of the log before it compares what it has copied. The
    leader was suspended, has lost its session, and is elected again: its answer is slow, and has another epoch."""
    play = opened(*BEGUN)
    play.take(progress_at(10, state="copying"), barrier_s=14.0, cleanly=False)
    effects = play.ask_target(10, last=9)
    lane, until = play.lane, play.lane.late_writes.former_holder_until
    assert (lane.phase, lane.comparison.later_pending) == (Phase.COPYING, True)
    wake = one(effects, Wake)
    play.now = wake.at
    asked = one(play.tell(Woken(wake.question)), AskEnd)
    play.now += 3.5
    play.tell(EndAnswer(asked.question, 0, 2, 10))
    play.tell(TargetMoved(2))
    play.ask_target(10, epoch=2, last=9)
    assert lane.late_writes.former_holder_until > until


def test_batches_in_flight_are_in_doubt_after_a_halt() -> None:
    """The leader is suspended with a batch of an unprotected lane. The source loses records, and the lane halts
    (`on_loss = "halt"`) before the batch has been answered. The connection is lost. An operator then lets the lane
    continue, and the leader answers at once. The lane sends the batch again without waiting."""
    play = opened(*BEGUN)
    play.take(progress_at(10))
    play.lane.on_loss = "halt"
    fetch = one(play.ask_target(10), FetchFrom)
    effects = play.chunk(fetch, 10)
    asked = one(effects, AskEnd)
    effects = play.tell(EndAnswer(asked.question, 0, 1, 10))
    produce = one(effects, Produce)
    lane = play.lane
    assert lane.in_flight
    play.tell(Chunk(lane.asked, OUT_OF_RANGE, 17, 17, 17, (), bytearray(), 0, 0))
    assert lane.phase is Phase.HALTED
    play.now = 8.0
    play.tell(ProduceAnswer(produce.round, produce.batches[0], ErrorCode.NETWORK_EXCEPTION, -1))
    play.now = 9.0
    play.bind_all(play.tell(Released(ahead=True)))
    play.tell(EndAnswer(lane.asked, 0, 1, 10))
    assert lane.late_writes.in_doubt_below == 11
    assert lane.late_writes.until == play.now + TIMEOUT_S
