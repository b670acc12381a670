"""A lane is halted because the source has lost copied records (`on_loss = "halt"`), and an operator lets it continue
further ahead. The source has other records at the lost offsets by now. They are not copied, and the ledger names
them."""

import pytest
from msgspec.structs import replace

from mirrord.config.schema import OnLoss
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import SourceRun, TargetRun, Verdict
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.seeks import Seek, accepts_loss, cut, sought
from mirrord.model.errors import ConfigError
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskDivergence,
    AskScan,
    CheckAnswer,
    Chunk,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    OwnBatch,
    Released,
    ScanAnswer,
    Wake,
    Woken,
)
from mirrord.supervision.rules.seek_orders import rule
from tests.sim import toy
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

ADA = Origin("ada@host", "investigated", 0)
OUT_OF_RANGE = 1
TRUNCATED, SKIPPED = Verdict(7, 10, "truncated"), Verdict(7, 13, "skipped")
UNKNOWN = -1


def halted(on_loss: OnLoss = "halt") -> Faulty:
    """Offsets 0 to 9 were copied in epoch 0. The source has lost 7 to 9, and has offsets 7 to 14 in epoch 1."""
    play = opened(*BEGUN)
    play.take(progress_at(10))
    play.lane.on_loss = on_loss
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    play.bind_all(play.tell(Chunk(fetch.question, 0, 15, 15, 0, (), bytearray(), 0, 0, None, 0, 7)))
    assert play.lane.phase is Phase.HALTED
    play.state.accept_progress(progress_at(10, state="halted"))
    return play


def order(play: Faulty, end: int, lost_from: int = -1) -> Effects:
    """The ledger holds a command, and the lane resumes."""
    start = lost_from if lost_from >= 0 else 10
    assert play.fold(LaneSought(LANE, start, end, 0, ADA, lost_from)) == (True,)
    play.bind_all(play.tell(Released(ahead=True)))
    return resume(play)


def resume(play: Faulty) -> Effects:
    return told(play, play.ask_target(10, last=9))


def told(play: Faulty, effects: Effects) -> Effects:
    """What is appended takes effect at once."""
    return [*effects, *play.bind_all(effects)]


def answer(play: Faulty, effects: Effects, start: int = -1, error: int = 0) -> Effects:
    """The source says whether it has lost offsets from `start` on. Its leader epoch 1 begins below all that is
    skipped."""
    asked = one(effects, AskDivergence)
    diverging = 0 if start >= 0 else -1
    effects = told(play, play.tell(DivergenceAnswer(asked.question, error, diverging, start, -1 if error else 1)))
    while searches := [each for each in effects if isinstance(each, AskDivergence) and each.position == NEVER]:
        found = (1, 100) if searches[0].epoch else (0, 7)
        effects = told(play, play.tell(DivergenceAnswer(searches[0].question, 0, *found, 1)))
    return effects


def verdicts(play: Faulty) -> list[Verdict]:
    return list(play.record.newest_verdicts)


def test_the_records_at_the_lost_offsets_are_named() -> None:
    """LOST. The ledger said only that [10, 13) was skipped, and the lane stood still without a word until the next
    record arrived."""
    play = halted()
    effects = answer(play, order(play, 13, 7), 7)
    assert verdicts(play) == [TRUNCATED]
    effects = answer(play, resume(play))
    assert verdicts(play) == [TRUNCATED, SKIPPED]
    assert play.record.halted is None
    assert play.record.seeks == (Seek(7, 13, 0, ADA, done=True, lost_from=7, epoch=1, epochs=((7, 1),)),)
    effects = answer(play, effects)
    assert (one(effects, FetchFrom).position, play.record.source_runs.offset_of(10)) == (13, 13)
    # The lane continues, and does not find the same loss again.
    data = bytearray(toy.encode(13, 14, [(13, 113), (14, 114)], newest_ms=1, leader_epoch=1))
    chunk = Chunk(one(effects, FetchFrom).question, 0, 15, 15, 0, (), data, 0, len(data))
    effects = told(play, play.tell(chunk))
    assert (one(effects, AskDivergence).position, one(effects, AskDivergence).epoch) == (13, 1)
    answer(play, effects)
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)


def test_a_command_can_end_within_the_lost_offsets() -> None:
    play = halted()
    answer(play, order(play, 8, 7), 7)
    effects = answer(play, resume(play))
    assert verdicts(play) == [TRUNCATED, Verdict(7, 8, "skipped")]
    assert one(answer(play, effects), FetchFrom).position == 8


def test_another_holder_carries_out_the_command() -> None:
    play = halted()
    answer(play, order(play, 13, 7), 7)
    play.take(progress_at(10))
    play.lane.on_loss = "halt"
    fetch = one(resume(play), FetchFrom)
    data = bytearray(toy.encode(7, 9, [(at, 200 + at) for at in (7, 8, 9)], newest_ms=1, leader_epoch=1))
    told(play, play.tell(Chunk(fetch.question, 0, 15, 15, 0, (), data, 0, len(data))))
    answer(play, resume(play))
    assert verdicts(play) == [TRUNCATED, SKIPPED]


def test_a_command_that_knows_of_no_loss_does_not_hide_it() -> None:
    """LOST. The lane skipped [10, 13) and then waited for a record at offset 13 before it asked the source."""
    play = halted()
    answer(play, order(play, 13), 7)
    assert verdicts(play) == []
    assert play.record.halted is not None
    assert (play.record.halted.reason, play.record.halted.start, play.record.halted.end) == ("truncated", 7, 10)
    # The next command takes the place of this one.
    answer(play, order(play, 12, 7), 7)
    answer(play, resume(play))
    assert verdicts(play) == [TRUNCATED, Verdict(7, 12, "skipped")]


def test_a_loss_of_more_records_halts_the_lane_again() -> None:
    play = halted()
    answer(play, order(play, 13, 7), 5)
    assert verdicts(play) == []
    assert play.record.halted is not None
    assert (play.record.halted.start, play.lane.phase) == (5, Phase.HALTED)


def test_a_source_that_has_the_records_again_has_lost_nothing() -> None:
    """A replica that had been out of sync has become the leader."""
    play = halted()
    effects = answer(play, order(play, 13, 7))
    assert verdicts(play) == [Verdict(10, 13, "skipped")]
    assert one(answer(play, effects), FetchFrom).position == 13


def test_a_flow_that_no_longer_halts_carries_out_the_command_as_well() -> None:
    """Without the loss in the command, the new records would be copied."""
    play = halted()
    play.lane.on_loss = "continue"
    answer(play, order(play, 13, 7), 7)
    answer(play, resume(play))
    assert verdicts(play) == [TRUNCATED, SKIPPED]


def test_a_question_that_fails_is_repeated() -> None:
    play = halted()
    effects = order(play, 13, 7)
    wake = one(answer(play, effects, error=3), Wake)
    play.now = wake.at
    effects = play.tell(Woken(wake.question))
    assert not [each for each in effects if isinstance(each, FetchFrom)]
    answer(play, effects, 7)
    assert verdicts(play) == [TRUNCATED]


def leapt(*facts: SourceRun) -> Faulty:
    """The lane stands at offset 17 after deleted records, and the source log ends at offset 12 by now."""
    play = opened(*facts, TargetRun(LANE, 1, 0, 0, 1))
    play.take(progress_at(10, state="copying"))
    play.lane.on_loss = "halt"
    play.lane.history.epochs_recorded = False
    effects = told(play, play.ask_target(10, last=9))
    if any(isinstance(each, AskDivergence) for each in effects):
        effects = answer(play, effects)
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (17, -1)
    play.bind_all(play.tell(Chunk(fetch.question, OUT_OF_RANGE, 12, 12, 0, (), bytearray(), 0, 0)))
    halt = play.record.halted
    assert halt is not None
    assert (halt.reason, halt.start, halt.end) == ("truncated", 12, 17)
    return play


def test_a_source_that_has_lost_only_what_was_not_copied() -> None:
    """LOST. The lane went on at offset 20, and the ledger did not say what happened to offsets 12 to 16."""
    expired = Verdict(10, 17, "expired")
    play = leapt(
        SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)), SourceRun(LANE, 1, (Run(10, 17),), (expired,), ((10, -1),))
    )
    play.lane.source_end = 20
    effects = order(play, 20, 12)
    assert one(effects, AskDivergence).position == 10
    effects = answer(play, effects)
    assert verdicts(play) == [Verdict(10, 12, "expired"), Verdict(12, 20, "skipped")]
    assert one(answer(play, effects), FetchFrom).position == 20


@pytest.mark.parametrize("lost_from", [12, 8])
def test_a_source_without_epochs_that_ends_below_the_position(lost_from: int) -> None:
    """The source cannot be asked about copied records, but its log has ended there."""
    play = leapt(
        SourceRun(LANE, 1, (Run(0, 0),), (), ((0, -1),)),
        SourceRun(LANE, 1, (Run(10, 17),), (Verdict(10, 17, "expired"),), ((10, -1),)),
    )
    play.lane.source_end = 20
    effects = order(play, 20, lost_from)
    if lost_from < 10:
        assert verdicts(play)[-1] == Verdict(8, 10, "truncated")
        effects = resume(play)
    effects = answer(play, effects)
    assert verdicts(play)[-1] == Verdict(lost_from, 20, "skipped")
    assert one(answer(play, effects), FetchFrom).position == 20


def test_a_log_that_ends_below_the_end_of_the_command_does_not_halt_the_lane_again() -> None:
    """The lane halted again and again, although the operator had accepted the loss: the command could be carried out
    only after the source had grown to its end."""
    play = leapt(
        SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)),
        SourceRun(LANE, 1, (Run(10, 17),), (Verdict(10, 17, "expired"),), ((10, -1),)),
    )
    effects = order(play, 20, 12)
    if any(isinstance(each, AskDivergence) for each in effects):
        effects = answer(play, effects)
    fetch = one(effects, FetchFrom)
    effects = told(play, play.tell(Chunk(fetch.question, OUT_OF_RANGE, 12, 12, 0, (), bytearray(), 0, 0)))
    effects = answer(play, effects)
    assert play.record.halted is None
    assert verdicts(play)[-1] == Verdict(12, 17, "truncated")
    assert one(effects, FetchFrom).position == 10


def test_a_log_that_is_still_short_does_not_halt_the_lane_again() -> None:
    """Another holder has to compare what was copied. The source log ends below its position."""
    play = opened(*BEGUN)
    play.take(progress_at(8, state="copying"))
    play.lane.on_loss = "halt"

    def compare() -> Effects:
        scan = one(play.ask_target(10), AskScan)
        own = (OwnBatch(0, 8, 0, 0, 1), OwnBatch(8, 2, 8, 0, 1))
        check = one(play.tell(ScanAnswer(scan.question, 0, "resume", scan.start, scan.end, own)), AskCheck)
        found = CheckAnswer(
            check.question, 0, check.first, check.last, "unverifiable", source_end=7, replaced=((8, 10),)
        )
        return told(play, play.tell(found))

    compare()
    assert play.record.halted is not None
    assert (play.record.halted.start, play.record.halted.end) == (7, 10)
    play.fold(LaneSought(LANE, 7, 8, 0, ADA, 7))
    play.bind_all(play.tell(Released(ahead=True)))
    answer(play, compare(), 7)
    assert verdicts(play) == [TRUNCATED]


def test_commands_that_know_of_a_loss() -> None:
    done, pending = Seek(2, 8, 0, ADA, done=True), Seek(10, 20, 0, ADA)
    known = LaneSought(LANE, 5, 15, 0, ADA, 5)
    seeks = sought((done, pending), known)
    assert seeks is not None
    assert seeks == (done, Seek(5, 15, 0, ADA, lost_from=5))
    assert sought(seeks, known) is None
    assert sought(seeks, LaneSought(LANE, 10, 14, 0, ADA)) is None
    # The source may lose the same offsets again after the lane has carried out the command.
    again = Seek(5, 15, 0, ADA, done=True, lost_from=5)
    assert sought((again,), replace(known, end=12)) == (Seek(5, 12, 0, ADA, lost_from=5), again)
    assert accepts_loss(seeks, 5)
    assert accepts_loss(seeks, 7)
    assert not accepts_loss(seeks, 4)
    assert not accepts_loss((done, pending), 5)
    assert cut(seeks, 5) == (Seek(5, 15, 0, ADA, lost_from=5),)
    assert cut(seeks, 4) == ()


def test_which_commands_a_halted_lane_can_get() -> None:
    play = halted()
    at = play.state.standing(LANE)
    assert (at.position, at.lost_from) == (10, 7)
    fact, line = rule("orders-0", LANE, at, 13, 2, ADA)
    assert fact == LaneSought(LANE, 7, 13, 2, ADA, 7)
    assert "skips what the source has in [7, 13) now" in line
    with pytest.raises(ConfigError, match="has lost the records from offset 7 on: a seek must go further"):
        rule("orders-0", LANE, at, 7, 2, ADA)
    play.fold(LaneSought(LANE, 7, 13, 2, ADA, 7))
    fact, line = rule("orders-0", LANE, play.state.standing(LANE), 12, 2, ADA)
    assert fact is None
    assert "already has a command to continue at source offset 13" in line
