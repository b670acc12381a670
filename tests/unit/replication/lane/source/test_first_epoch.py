"""The ledger has the leader epoch of the first copied records before they are produced, even if the lane knows the
epoch only from a comparison with the source."""

import pytest

from mirrord.ledger.facts.core import SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskSuperseded,
    Bound,
    CheckAnswer,
    Chunk,
    Effects,
    FetchFrom,
    Produce,
    ScanAnswer,
    Start,
    StopFetch,
    SupersededAnswer,
    TargetMoved,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import Lane
from tests.sim import toy
from tests.unit.replication.lane.test_rebuilding import LANE, Play


def fetch_of(effects: Effects) -> FetchFrom:
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchFrom)]
    return fetch


def take_effect(play: Play, effects: Effects) -> None:
    for each in effects:
        if isinstance(each, Append):
            play.tell(Bound(each.tag, play.fold(*each.facts), play.record))


def compares(play: Play, epoch: int = -1) -> AskCheck:
    """Look up in a compacted target log, which has no record of the lane, that ordinals 0 to 6 are superseded. In the
    source, ordinal 6 has the given epoch. The ledger has no epoch, and there is no resume position."""
    play.sandwich(10)
    (asked,) = play.tell(ScanAnswer(play.lane.asked, 0, "resume", 0, 10, (), ((9, 10),), compacts=True))
    assert isinstance(asked, AskSuperseded)
    effects = play.tell(SupersededAnswer(asked.question, 0, until=7, until_epoch=epoch))
    take_effect(play, effects)
    (check,) = [effect for effect in effects if isinstance(effect, AskCheck)]
    return check


def copies(play: Play, epoch: int = -1) -> FetchFrom:
    """Resume at ordinal 7. In the source, the record before offset 7 has epoch 4. It had the given epoch when it was
    looked up."""
    check = compares(play, epoch)
    effects = play.tell(CheckAnswer(check.question, 0, 0, 6, "equal", source_epoch=4))
    take_effect(play, effects)
    return fetch_of(effects)


def batch(fetch: FetchFrom, epoch: int) -> Chunk:
    found = toy.encode(7, 9, [(at, at) for at in (7, 8, 9)], newest_ms=1, leader_epoch=epoch, attributes=0)
    return Chunk(fetch.question, 0, 10, 10, 0, (), bytearray(found), 0, len(found))


def recorded(effects: Effects) -> tuple[tuple[int, int], ...]:
    """Return the epochs in the only fact of the only append, and check that nothing is produced yet."""
    assert not [effect for effect in effects if isinstance(effect, Produce)]
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    return fact.epochs


@pytest.fixture
def play() -> Play:
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    play.bind(play.tell(Start(play.record, None, "second", 0.0, False)))
    return play


def test_an_epoch_that_only_the_source_told_is_recorded_with_the_next_record(play: Play) -> None:
    fetch = copies(play)
    assert (fetch.position, fetch.last_epoch) == (7, 4)
    effects = play.tell(batch(fetch, 4))
    assert recorded(effects) == ((7, 4),)
    play.bind(effects)
    assert play.record.epochs == ((7, 4),)


def test_it_is_recorded_if_the_lane_resumes_once_more_before_that(play: Play) -> None:
    copies(play)
    play.tell(TargetMoved(2))
    assert recorded(play.tell(batch(fetch_of(play.sandwich(10)), 4))) == ((7, 4),)


def test_it_is_recorded_if_the_append_failed(play: Play) -> None:
    (append,) = [each for each in play.tell(batch(copies(play), 4)) if isinstance(each, Append)]
    play.tell(AppendFailed(append.tag, play.record))
    play.bind(play.tell(Woken(play.lane.asked)))
    assert recorded(play.tell(batch(fetch_of(play.sandwich(10)), 4))) == ((7, 4),)


def test_a_resume_position_that_was_saved_before_that_does_not_replace_the_fact(play: Play) -> None:
    copies(play)
    saved = progress_record(play.lane, 1, 1)
    assert saved is not None
    assert (saved.source_offset, saved.source_epoch) == (7, 4)
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    play.bind(play.tell(Start(play.record, saved, "third", 0.0, True)))
    fetch = fetch_of(play.sandwich(10))
    assert (fetch.position, fetch.last_epoch) == (7, 4)
    assert recorded(play.tell(batch(fetch, 4))) == ((7, 4),)


def test_records_that_the_source_has_lost_since_the_lookup_are_looked_up_again(play: Play) -> None:
    check = compares(play)
    effects = play.tell(CheckAnswer(check.question, 0, 0, 6, "equal", source_end=3))
    assert [type(effect) for effect in effects] == [StopFetch, Wake]
    assert play.lane.phase is Phase.WAITING


def test_a_position_above_the_source_end_is_not_looked_up_again_if_the_source_has_the_last_record(play: Play) -> None:
    """Source offsets 7 to 15 were skipped. The source still has the records of ordinals 0 to 6, so another lookup
    would end at the same ordinal."""
    play.fold(SourceRun(LANE, 2, (Run(7, 16),)))
    check = compares(play)
    assert check.position == 16
    play.tell(CheckAnswer(check.question, 0, 0, 6, "equal", source_end=8))
    assert play.lane.phase is Phase.HALTED


def test_what_has_replaced_the_records_since_the_look_up_is_copied(play: Play) -> None:
    """LOSS. After the look-up, the source loses its records from offset 2 on, and grows past offset 7. The comparison
    finds epoch 4 before offset 7. The fetch carries the epoch of the record that was looked up, so the source reports
    the divergence."""
    fetch = copies(play, epoch=3)
    assert (fetch.position, fetch.last_epoch) == (7, 3)
    effects = play.tell(Chunk(fetch.question, 0, 20, 20, 0, (), bytearray(), 0, 0, None, 3, 2))
    assert fetch_of(effects).position == 2


def test_in_a_gap_the_epoch_before_the_position_counts(play: Play) -> None:
    """Source offsets 7 to 15 were skipped. They may be of a later epoch than the last record that was looked up."""
    play.fold(SourceRun(LANE, 2, (Run(7, 16),)))
    fetch = copies(play, epoch=3)
    assert (fetch.position, fetch.last_epoch) == (16, 4)
