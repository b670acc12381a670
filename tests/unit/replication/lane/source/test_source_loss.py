"""Losses on the source among the copied records that no fetch from the position would show: the lane asks, or knows."""

import pytest

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL
from mirrord.ledger.facts.core import HoleFound, LaneHalted, SourceRun, Verdict
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskDivergence,
    Bound,
    CheckAnswer,
    DivergenceAnswer,
    Drain,
    Effects,
    FetchFrom,
    Lost,
    OwnBatch,
    ScanAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.source.declared_runs import continues_at, decided
from mirrord.replication.lane.source.last_copied import last_copied
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from tests.unit.replication.lane.source.test_source_epochs import LANE as LANE0
from tests.unit.replication.lane.source.test_source_epochs import chunk, data, fetch_of, idle
from tests.unit.replication.lane.test_answers import Record, copying
from tests.unit.replication.lane.test_rebuilding import LANE, Play

OUT_OF_RANGE, NOT_LEADER = 1, 6


Leapt = tuple[Play, FetchFrom]


@pytest.fixture
def leapt() -> Leapt:
    """Source offsets 0 to 12 were copied, of epochs 1 and 4 (from offset 8 on). A command skipped 13 and 14."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1), (8, 4))))
    play.fold(SourceRun(LANE, 1, (Run(13, 15),), (Verdict(13, 15, "skipped"),), ((13, -1),)))
    play.begin("second")
    play.sandwich(13)
    own = (OwnBatch(8, 2, 8, 0), OwnBatch(10, 3, 10, 0))
    effects = play.tell(ScanAnswer(play.lane.asked, 0, "resume", 9, 13, own))
    (check,) = [each for each in effects if isinstance(each, AskCheck)]
    # The source's records before the position may be of another history than the copied ones.
    effects = play.tell(CheckAnswer(check.question, 0, 10, 12, "unverifiable", "", 5))
    # The source still has the copied records when the lane begins to read.
    (asked,) = [each for each in effects if isinstance(each, AskDivergence)]
    assert (asked.position, asked.epoch) == (13, 4)
    (fetch,) = play.tell(DivergenceAnswer(asked.question, 0))
    assert isinstance(fetch, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (15, -1)
    return play, fetch


def fetched(play: Play, fetch: FetchFrom) -> AskDivergence:
    """The first batch after the jump has arrived."""
    (asked,) = play.tell(chunk(fetch, data((15, 2, 5, 0))))
    assert isinstance(asked, AskDivergence)
    assert (asked.position, asked.epoch) == (13, 4)
    return asked


def is_taken(play: Play) -> bool:
    """The fetched records are about to be produced as ordinals 13 and 14."""
    return (play.lane.position, play.lane.next_ordinal) == (17, 15)


@pytest.mark.parametrize("error", [0, OUT_OF_RANGE])
def test_the_lane_does_not_wait_if_the_source_still_has_the_records(leapt: Leapt, error: int) -> None:
    play, _ = leapt
    asked = fetched(*leapt)
    assert not is_taken(play)
    play.tell(DivergenceAnswer(asked.question, error))
    assert is_taken(play)


@pytest.mark.parametrize(("epoch", "end", "start"), [(4, 11, 11), (1, 10, 8), (1, 4, 4)])
def test_records_that_the_source_has_lost_are_reported_and_their_offsets_copied_again(
    leapt: Leapt, epoch: int, end: int, start: int
) -> None:
    """(1, 10): the source has records of epoch 1 instead of those of epoch 4 that were copied."""
    play, _ = leapt
    effects = play.tell(DivergenceAnswer(fetched(*leapt).question, 0, epoch, end))
    (lost,) = [each for each in effects if isinstance(each, Lost)]
    assert "and the source has lost them" in lost.line
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    assert fact.runs == (Run(13, start),)
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert fetch.position == start
    play.bind(effects)
    assert play.lane.history.unconfirmed_chunk is None


@pytest.mark.parametrize(
    ("epoch", "end", "start", "lost"), [(4, 11, 11, "[11, 13)"), (1, 10, 8, "[8, 13)"), (1, 4, 4, "[4, 13)")]
)
def test_a_flow_that_halts_for_losses_halts(leapt: Leapt, epoch: int, end: int, start: int, lost: str) -> None:
    """LIE. The line of the halt named the offsets to which the lane would go back as well."""
    play, _ = leapt
    play.lane.on_loss = "halt"
    effects = play.tell(DivergenceAnswer(fetched(*leapt).question, 0, epoch, end))
    assert play.lane.phase is Phase.HALTED
    assert lost in play.lane.halt.line
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, LaneHalted)
    assert (fact.start, fact.end) == (start, 13)


def test_a_source_that_does_not_answer_is_asked_again(leapt: Leapt) -> None:
    play, _ = leapt
    (wake,) = play.tell(DivergenceAnswer(fetched(*leapt).question, NOT_LEADER))
    assert isinstance(wake, Wake)
    (asked,) = play.tell(Woken(wake.question))
    assert isinstance(asked, AskDivergence)
    play.tell(DivergenceAnswer(asked.question, 0))
    assert is_taken(play)


def test_nothing_is_asked_before_a_record_is_there(leapt: Leapt) -> None:
    play, fetch = leapt
    (again,) = play.tell(chunk(fetch, bytearray()))
    assert isinstance(again, FetchFrom)


def test_a_lane_resumes_where_the_source_parts_if_both_sides_have_lost_a_record() -> None:
    """The source has lost offsets 8 to 12. They were copied as ordinals 8 to 12; what follows is copied from 8 on."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)))
    play.fold(SourceRun(LANE, 1, (Run(13, 8),), (Verdict(8, 13, "truncated"),), ((13, 1),)))
    assert [continues_at(play.record, ordinal) for ordinal in (7, 8, 11, 13, 14)] == [7, 8, 8, 8, 9]
    # The records of ordinals 6 and 7 are to be copied again as 11 and 12.
    play.fold(HoleFound(LANE, 1, 6, 7, 11, 13), SourceRun(LANE, 1, (Run(11, 6), Run(13, 8))))
    assert [continues_at(play.record, ordinal) for ordinal in (11, 12, 13)] == [6, 7, 8]


@pytest.mark.parametrize(("goes_on", "found"), [(5, [4, 5, 5, 5]), (7, [4, 5, 5, 7]), (9, [4, 5, 5, 9])], ids=str)
def test_a_lane_resumes_below_the_lost_records_if_it_has_skipped_others_there(goes_on: int, found: list[int]) -> None:
    """LOST RECORDS. The lane skipped offsets 5 to 7 and copied 8 and 9 as ordinals 5 and 6. The source lost these five,
    and the lane goes on below or above the first one that it had copied. Then the target loses its records as well."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)))
    play.fold(SourceRun(LANE, 1, (Run(5, 8),), (Verdict(5, 8, "filtered"),)))
    play.fold(SourceRun(LANE, 1, (Run(7, 5),), (Verdict(8, 10, "truncated"),), ((7, 1),)))
    if goes_on > 5:
        play.fold(SourceRun(LANE, 1, (Run(7, goes_on),), (Verdict(5, goes_on, "filtered"),), ((7, 1),)))
    assert [continues_at(play.record, ordinal) for ordinal in (4, 5, 6, 7)] == found


def test_decisions_on_lost_records_do_not_apply_to_the_records_at_their_offsets() -> None:
    """The filter dropped offsets 2 and 3 and kept 4. The source has lost them. Of the records that it now has there,
    the filter keeps offset 2 and drops 3 to 5."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)))
    play.fold(SourceRun(LANE, 1, (Run(2, 4),), (Verdict(2, 4, "filtered"),)))
    play.fold(SourceRun(LANE, 1, (Run(3, 2),), (Verdict(4, 5, "truncated"),), ((3, 1),)))
    play.fold(SourceRun(LANE, 1, (Run(4, 6),), (Verdict(3, 6, "filtered"),)))
    found = decided(play.record, 1)
    assert [found.keeps(offset) for offset in range(1, 7)] == [True, True, False, False, False, None]


def after_retention() -> tuple[Lane, Record, Append, Effects]:
    """Offsets 0 to 5 of epochs 1 and 3 were copied. Two of epoch 5 follow, and the ledger has not answered yet; then
    the source has deleted everything below 20."""
    lane, record, fetch = idle()
    effects = step(lane, 0.0, chunk(fetch, data((6, 2, 5, 0))))
    (append,) = [each for each in effects if isinstance(each, Append)]
    effects = step(lane, 0.0, chunk(fetch_of(effects), bytearray(), error=OUT_OF_RANGE, log_start=20))
    return lane, record, append, step(lane, 0.0, chunk(fetch_of(effects), data((20, 2, 5, 0))))


def test_the_source_is_asked_for_all_that_was_read_with_the_epoch_that_it_had() -> None:
    """With epoch 3, which is all that the ledger knows, the answer would be that offsets 6 and 7 are lost."""
    _, _, _, effects = after_retention()
    (asked,) = effects
    assert isinstance(asked, AskDivergence)
    assert (asked.position, asked.epoch) == (8, 5)


def test_records_that_were_read_and_skipped_count_after_a_leap() -> None:
    """Offsets 6 and 7 are markers. If the source has lost them, there may now be records at these offsets."""
    lane, _, fetch = idle()
    marker = CONTROL | TRANSACTIONAL
    effects = step(lane, 0.0, chunk(fetch, data((6, 1, 3, marker), (7, 1, 3, marker))))
    effects = step(lane, 0.0, chunk(fetch_of(effects), bytearray(), error=OUT_OF_RANGE, log_start=20))
    (recorded,) = [each for each in effects if isinstance(each, Append)]
    (asked,) = step(lane, 0.0, chunk(fetch_of(effects), data((20, 2, 5, 0))))
    assert isinstance(asked, AskDivergence)
    assert (asked.position, asked.epoch) == (8, 3)
    step(lane, 0.0, Bound(recorded.tag, (True,), lane.record))
    effects = step(lane, 0.0, DivergenceAnswer(asked.question, 0, 3, 7))
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert append.facts == (SourceRun(LANE0, 1, (Run(6, 7),), (Verdict(7, 8, "truncated"),), ((6, 3),)),)


def test_only_what_was_read_is_recorded_as_lost(leapt: Leapt) -> None:
    """Offsets 13 and 14 were skipped, not copied."""
    play, _ = leapt
    effects = play.tell(DivergenceAnswer(fetched(*leapt).question, 0, 4, 11))
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    assert fact.verdicts == (Verdict(11, 13, "truncated"),)
    assert [each.line for each in effects if isinstance(each, Lost)] == [
        "orders-0: source offsets [11, 13) were copied, and the source has lost them: an unclean election"
    ]


def test_a_lane_that_does_not_advance_holds_no_chunk(leapt: Leapt) -> None:
    play, _ = leapt
    fetched(*leapt)
    assert play.lane.history.unconfirmed_chunk is not None
    halt(play.lane, "unexplained", "a test", 0, 0)
    assert play.lane.history.unconfirmed_chunk is None


def test_a_lane_that_drains_holds_no_chunk(leapt: Leapt) -> None:
    play, _ = leapt
    fetched(*leapt)
    play.lane.notes.add(99)
    play.tell(Drain())
    assert play.lane.phase is Phase.DRAINING
    assert play.lane.history.unconfirmed_chunk is None


def test_an_answer_to_another_question_proves_nothing(leapt: Leapt) -> None:
    play, _ = leapt
    earlier = ask(play.lane)
    fetched(*leapt)
    play.tell(DivergenceAnswer(earlier, 0))
    assert not is_taken(play)


def test_a_confirmation_before_a_jump_does_not_count_after_it() -> None:
    lane, _, fetch = idle()
    effects = step(lane, 0.0, chunk(fetch, bytearray()))
    lane.plan.append(Run(8, 30))  # ordinals 6 and 7 are copied again, then the lane continues after a jump
    lane.history.source_confirmed = True
    effects = step(lane, 0.0, chunk(fetch_of(effects), data((6, 2, 3, 0))))
    fetch = fetch_of(effects)
    assert (fetch.position, fetch.last_epoch, lane.history.source_confirmed) == (30, -1, False)


def test_records_copied_between_holes_count() -> None:
    """Ordinals 0 to 12 are offsets 0 to 12. Those of ordinals 6 and 7 were copied again as 13 and 14."""
    lane, _ = copying()
    hole = HoleFound(LANE0, 1, 6, 7, 13, 15)
    lane.record = Record(source_runs=Runs([Run(0, 0), Run(13, 6), Run(15, 30)]), holes=(hole,), epochs=((0, 4),))
    lane.next_ordinal, lane.position = 15, 30
    assert last_copied(lane) == (13, 4)


def test_a_chunk_does_not_wait_for_what_is_known_to_be_lost_by_now(leapt: Leapt) -> None:
    play, _ = leapt
    (wake,) = play.tell(DivergenceAnswer(fetched(*leapt).question, NOT_LEADER))
    assert isinstance(wake, Wake)
    play.lane.record, play.lane.history.left_position = None, None
    (again,) = play.tell(Woken(wake.question))
    assert isinstance(again, FetchFrom)
    assert play.lane.history.unconfirmed_chunk is None


@pytest.mark.parametrize("drains", [False, True])
def test_no_position_is_saved_before_the_ledger_has_the_loss(*, drains: bool) -> None:
    """LOSS. The lane had gone on to read, and had appended a later run as well. The position contained the epoch of the
    new records. The next holder fetched with it, and did not notice the loss before it."""
    lane, record, fetch = idle()
    for tag in list(lane.notes):
        step(lane, 0.0, Bound(tag, (True,), record))
    assert progress_record(lane, 1, 1) is not None
    effects = step(lane, 0.0, chunk(fetch, bytearray(), diverging_epoch=3, diverging_end=5))
    effects += step(lane, 0.0, chunk(fetch_of(effects), data((5, 1, 4, 0))))
    fetch = fetch_of(effects[-1:])
    effects += step(lane, 0.0, chunk(fetch, data((6, 1, 4, CONTROL | TRANSACTIONAL), (7, 1, 4, 0))))
    appends = [each for each in effects if isinstance(each, Append)]
    runs = [fact.runs for each in appends for fact in each.facts if isinstance(fact, SourceRun)]
    assert runs == [(Run(6, 5),), (Run(6, 5),), (Run(7, 7),)]
    if drains:
        step(lane, 0.0, Drain())
    assert progress_record(lane, 1, 1) is None
    if not drains:
        step(lane, 0.0, Bound(appends[0].tag, (True,), record))
        assert progress_record(lane, 1, 1) is not None
