"""What the last comparison after a takeover ends: nothing more can follow of what a former holder sent."""

import pytest
from msgspec.structs import replace

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL
from mirrord.ledger.facts.core import Progress, SourceRun, TakeoverChecked, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskEnd,
    AskScan,
    Bound,
    CheckAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Produce,
    ProduceAnswer,
    ProducerEntry,
    ProducersAnswer,
    ScanAnswer,
    Start,
    VisibleAnswer,
    Woken,
)
from mirrord.replication.lane.state import Lane
from tests.sim import toy
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_rebuilding import LANE, Play

MARK = Progress(LANE, 1, 1, 10, 10, 1, 10, 20, 1, 1, True, "copying", source_epoch=4, epochs_told=True)


def take(play: Play, progress: Progress, replicator: str, *, left_cleanly: bool) -> Effects:
    """A holder takes the lane; the target ends with its resume position, and its broker remembers the producer."""
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    play.bind(play.tell(Start(play.record, progress, replicator, 8.0, left_cleanly)))
    end = progress.target_offset
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(end - 1, 0)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    return play.tell(VisibleAnswer(play.lane.asked, 0, end, 0))


def compared(play: Play, check: AskCheck) -> TakeoverChecked:
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal"))
    (append,) = [each for each in effects if isinstance(each, Append)]
    play.bind(effects)
    (fact,) = append.facts
    assert isinstance(fact, TakeoverChecked)
    return fact


@pytest.fixture
def play() -> Play:
    """Taken over from a holder that may be alive. One transaction was copied since as ordinals 10 and 11, and while
    something could still arrive the ledger was told that what follows its marker has ordinal 12."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    effects = take(play, MARK, "second", left_cleanly=False)
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    found = data((10, 2, 4, TRANSACTIONAL), (12, 1, 4, CONTROL | TRANSACTIONAL))
    effects = play.tell(chunk(fetch, found, high_watermark=13, last_stable=13))
    (append,) = [each for each in effects if isinstance(each, Append)]
    bound = play.tell(Bound(append.tag, play.fold(*append.facts), play.record))
    (produce,) = [each for each in (*effects, *bound) if isinstance(each, Produce)]
    assert play.record.regiven == 12
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 10))
    (check,) = [each for each in effects if isinstance(each, AskCheck)]
    assert compared(play, check) == TakeoverChecked(LANE, 2, 10, 11, "equal", "", more=True)
    return play


def later(play: Play) -> AskCheck:
    """The former holder's time has run out; the target still ends after ordinal 11."""
    play.now = 20.0
    (asked,) = play.tell(Woken(ask(play.lane)))
    assert isinstance(asked, AskEnd)
    (check,) = play.tell(EndAnswer(asked.question, 0, 1, 12))
    assert isinstance(check, AskCheck)
    return check


def test_the_ordinal_after_everything_in_the_log_is_no_longer_open(play: Play) -> None:
    fact = compared(play, later(play))
    assert fact == TakeoverChecked(LANE, 2, 10, 11, "equal", "", is_all=True)
    assert play.record.regiven == -1


def test_records_copied_since_are_neither_compared_again_nor_doubted(play: Play) -> None:
    """Otherwise the next holder compares all records, and if the source has since deleted them, the lane halts."""
    compared(play, later(play))
    progress = replace(MARK, grant=2, ordinal=5_000, target_offset=5_000, source_offset=5_001)
    effects = take(play, progress, "third", left_cleanly=True)
    assert not [each for each in effects if isinstance(each, AskCheck)]
    assert play.lane.phase is Phase.COPYING


def test_an_ordinal_stays_open_while_other_batches_may_arrive(play: Play) -> None:
    play.lane.late_writes.until = 30.0
    check = later(play)
    assert not compared(play, check).is_all
    assert play.record.regiven == 12


def test_ordinals_of_records_that_were_read_stay_in_doubt_until_they_are_acknowledged(play: Play) -> None:
    """WRONG MAP. A batch arrived after the lane had asked for the end of the log. The ledger no longer had the mark, so
    the next holder did not rebuild the map when the source had deleted the records."""
    check = later(play)
    play.lane.next_ordinal = 13
    assert not compared(play, check).is_all
    assert play.record.regiven == 12


def test_the_log_may_have_been_deleted_after_the_last_acknowledged_batch(play: Play) -> None:
    """STALL. Other clients have written offsets 12 to 19, and retention has deleted those below 15. The comparison
    never ended until the lane had copied another record, and its resume position was not saved."""
    play.now = 20.0
    (asked,) = play.tell(Woken(ask(play.lane)))
    assert isinstance(asked, AskEnd)
    (scan,) = play.tell(EndAnswer(asked.question, 0, 1, 20))
    assert isinstance(scan, AskScan)
    assert (scan.purpose, scan.start, scan.end) == ("later", 12, 20)
    failed = ScanAnswer(scan.question, 1, scan.purpose, scan.start, scan.end, ())
    assert any(isinstance(each, AskEnd) for each in play.tell(failed))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 20))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(11, 0)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 20))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 20, 15))
    assert isinstance(scan, AskScan)
    play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), ((15, 20),), False))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    (asked,) = play.tell(Woken(ask(play.lane)))
    assert isinstance(asked, AskEnd)
    (check,) = play.tell(EndAnswer(asked.question, 0, 1, 20))
    assert isinstance(check, AskCheck)
    assert compared(play, check) == TakeoverChecked(LANE, 2, 10, 11, "equal", "", is_all=True)
