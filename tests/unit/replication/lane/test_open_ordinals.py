"""Ordinals under which other records may have been sent: nothing counts as known before it is seen."""

import msgspec
import pytest

from mirrord.ledger.facts.core import HoleFound, MapRebuilt, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskRebuild,
    AskScan,
    EndAnswer,
    FetchFrom,
    OwnBatch,
    ProducersAnswer,
    ScanAnswer,
    VisibleAnswer,
)
from mirrord.replication.lane.source.declared_runs import rest
from mirrord.replication.lane.source.recorded_epochs import UNKNOWN, recorded_before
from mirrord.replication.lane.source.source_epochs import epochs_again, mended
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target.target_scan import walk
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.fixture
def play() -> Play:
    """Ten ordinals belong to the offsets 0 to 9; the ledger says that epoch 4 begins with ordinal 10."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3), (10, 4))), TargetRun(LANE, 1, 0, 0, 1))
    return play


def resumed_at_its_end(play: Play) -> FetchFrom:
    """The next holder finds nothing after ordinal 9, and copies."""
    play.begin("second")
    effects = play.sandwich(10)
    assert not [each for each in effects if isinstance(each, Append)]
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    return fetch


def test_the_epoch_of_records_that_may_still_arrive_is_kept(play: Play) -> None:
    """FALSE TRUNCATION. The former holder has sent ordinal 10, whose epoch is 4. If the batch arrives later, the next
    holder compares it. The ledger said that its epoch was 3, so the source seemed to have lost the record."""
    fetch = resumed_at_its_end(play)
    assert (fetch.position, fetch.last_epoch) == (10, 3)  # the one before
    assert play.record.epochs == ((0, 3), (10, 4))


@pytest.mark.parametrize("epoch", [3, 5])
def test_another_epoch_is_recorded_before_the_record_is_produced(play: Play, epoch: int) -> None:
    """The source has another history. Even if its epoch is the one before the position, the ledger has a later one."""
    fetch = resumed_at_its_end(play)
    effects = step(play.lane, 0.0, chunk(fetch, data((10, 2, epoch, 0), (12, 1, epoch, 0))))
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert append.facts == (SourceRun(LANE, 2, (Run(10, 10),), (), ((10, epoch),)),)
    assert play.lane.history.recorded_epoch == play.lane.epoch == epoch


def test_the_recorded_epoch_is_not_recorded_again(play: Play) -> None:
    fetch = resumed_at_its_end(play)
    effects = step(play.lane, 0.0, chunk(fetch, data((10, 2, 4, 0), (12, 1, 4, 0))))
    assert not [each for each in effects if isinstance(each, Append)]
    assert (play.lane.history.recorded_epoch, play.lane.history.recorded_epoch_since) == (4, 10)


@pytest.mark.parametrize(
    ("batches", "recorded"),
    [
        (((10, 2, 4, 0), (12, 1, 6, 0)), ()),
        (((10, 2, 4, 0), (12, 1, 4, 0)), ((12, 4),)),
        (((10, 3, 4, 0),), ((10, 4),)),
        (((10, 1, 4, 0), (11, 1, 6, 0)), ((11, 6),)),
        (((10, 2, 6, 0),), ((10, 6),)),
        (((10, 1, 4, 0), (12, 1, 6, 0)), ((11, 6),)),
    ],
)
def test_later_epochs_are_kept_until_the_records_differ(
    play: Play, batches: tuple[tuple[int, int, int, int], ...], recorded: tuple[tuple[int, int], ...]
) -> None:
    """Ordinals 10 and 11 are of epoch 4, and those from 12 on of epoch 6."""
    play.fold(SourceRun(LANE, 1, (Run(12, 12),), (), ((12, 6),)))
    fetch = resumed_at_its_end(play)
    effects = step(play.lane, 0.0, chunk(fetch, data(*batches)))
    facts = [fact for each in effects if isinstance(each, Append) for fact in each.facts]
    assert tuple(pair for fact in facts if isinstance(fact, SourceRun) for pair in fact.epochs) == recorded


def test_the_epochs_of_revoked_runs_are_not_known(play: Play) -> None:
    """Ordinal 12 follows a gap. It is not certain that a record after the gap gets the same ordinal again. If a batch
    with the former one arrives, nothing may be assumed about its epoch."""
    play.fold(SourceRun(LANE, 1, (Run(12, 14),), (Verdict(12, 14, "control"),), ((12, 6),)))
    play.begin("second")
    lane = play.lane
    lane.resume_ordinal = lane.position = 9
    lane.epoch = 3
    assert epochs_again(lane) == ((9, 3), (10, 4), (12, UNKNOWN))
    assert epochs_again(lane, (), (Run(12, 14),)) == ((9, 3), (10, 4), (12, 6))
    lane.position = 8  # the source has lost the record of ordinal 9
    assert epochs_again(lane) == ((9, UNKNOWN),)


def test_the_record_before_an_unknown_epoch_is_known(play: Play) -> None:
    play.fold(SourceRun(LANE, 1, (Run(10, 10),), (), ((10, UNKNOWN),)))
    assert recorded_before(play.record, play.record.epochs, 10) == 3
    assert recorded_before(play.record, play.record.epochs, 11) == UNKNOWN
    fetch = resumed_at_its_end(play)
    assert (fetch.position, fetch.last_epoch) == (10, 3)


def test_a_resume_position_is_not_trusted_where_other_records_may_have_been_sent(play: Play) -> None:
    play.fold(SourceRun(LANE, 1, (Run(6, 7),), regiven=True))
    play.begin("second")
    (check,) = play.sandwich(10)
    assert isinstance(check, AskCheck)
    assert (check.first, check.last, check.start, check.end) == (6, 9, 6, 10)


def test_a_comparison_begins_where_batches_were_read(play: Play) -> None:
    """The log went back and grew again: the last ordinals are at lower offsets than ledger and resume position say."""
    play.begin("second")
    play.lane.resume_position = ResumePosition(10, 12, 0)
    play.lane.acked = play.lane.trusted = 8
    play.sandwich(11)
    own = (OwnBatch(0, 7, 0, 0), OwnBatch(7, 4, 7, 0))
    (check,) = [
        each for each in play.tell(ScanAnswer(play.lane.asked, 0, "verify", 0, 11, own)) if isinstance(each, AskCheck)
    ]
    assert (check.first, check.last, check.start, check.end) == (8, 10, 7, 11)


def test_the_records_of_a_hole_are_found_in_the_source_again(play: Play) -> None:
    """The log went back to the middle of a hole, and bytes of one of its records came late."""
    hole = HoleFound(LANE, 1, 4, 5, 8, 10)
    play.fold(hole, SourceRun(LANE, 1, (Run(8, 4), Run(10, 8)), (), ((8, 3),)))
    play.begin("second")
    own = (OwnBatch(0, 4, 0, 0), OwnBatch(4, 1, 4, 0))
    assert walk(play.lane, own[:1], 0).void == NEVER
    assert walk(play.lane, own, 0).void == 4
    play.lane.resume_position = ResumePosition(10, 12, 0)
    play.sandwich(5)
    effects = play.tell(ScanAnswer(play.lane.asked, 0, "verify", 0, 5, own))
    assert play.lane.phase is Phase.REBUILDING
    for effect in [each for each in effects if isinstance(each, Append)]:
        play.bind([effect])
    (again,) = play.sandwich(5)
    assert isinstance(again, AskScan)  # the log may have gone back further since
    (ask,) = play.tell(ScanAnswer(again.question, 0, "verify", 0, 5, own))
    assert isinstance(ask, AskRebuild)
    assert (ask.first, ask.end) == (4, 5)


def test_the_mending_of_a_rebuilt_map_is_no_hole_that_contains_batches(play: Play) -> None:
    play.fold(MapRebuilt(LANE, 1, 6, 9, 12))
    play.begin("second")
    assert len(play.record.holes) == 1
    assert walk(play.lane, (OwnBatch(0, 10, 0, 0),), 0).void == NEVER


def test_records_lost_before_a_difference_are_found_as_well(play: Play) -> None:
    play.bind(play.differ())
    play.lane.log.end_epoch = 1
    play.tell(EndAnswer(play.lane.asked, 0, 2, 6))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, 6))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 6, 0))
    assert isinstance(scan, AskScan)
    (ask,) = play.tell(ScanAnswer(scan.question, 0, "verify", 0, 6, (OwnBatch(0, 6, 0, 0),)))
    assert isinstance(ask, AskRebuild)
    assert (ask.first, ask.end) == (6, 6)


def test_the_epochs_of_a_map_that_ends_as_it_began(play: Play) -> None:
    """The rewritten map up to its end is one run with what follows, and the epoch changes within it."""
    play.bind(play.differ())
    play.sandwich(16)
    answer = play.relocated()
    assert answer.located is not None
    located = msgspec.structs.replace(
        answer.located, runs=(Run(10, 10),), doubled=(), missing=(), next_offset=16, epochs=((0, 3), (13, 4))
    )
    play.bind(play.tell(msgspec.structs.replace(answer, located=located)))
    assert play.record.epochs == ((0, 3), (10, 3), (13, 4))


def test_the_records_of_an_open_hole_are_not_copied_twice() -> None:
    # The ordinal of a hole is given again, and its record was to follow under later ones, too.
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 1), Run(1, 1))), HoleFound(LANE, 1, -1, -2, 0, 1))
    left = rest(play.record, 0)
    assert left is not None
    assert (left.runs, left.pieces) == ([Run(0, 1)], [(0, 0, 1), (1, 2, 1)])
    play.fold(SourceRun(LANE, 1, (Run(4, 10), Run(8, 12), Run(14, 30))), HoleFound(LANE, 1, 3, 2, 4, 14))
    left = rest(play.record, 4)
    assert left is not None
    assert (left.runs, left.pieces) == ([Run(4, 10), Run(12, 30)], [(4, 4, 4), (8, 10, 4), (12, 14, 1)])


def test_the_epochs_after_a_hole_that_late_bytes_made(play: Play) -> None:
    """Ordinals 8 and 9 came alone and late; in the source they are of an epoch that the ledger does not name."""
    play.begin("second")
    lane = play.lane
    lane.resume_ordinal, lane.log.holes = 10, [(6, 7)]
    lane.history.found_epoch = (10, 5)
    assert mended(lane, [(10, 6, 2), (12, 10, 1)]) == ((10, 3), (12, 4))
    play.fold(SourceRun(LANE, 2, (Run(10, 10),), (), ((10, UNKNOWN),)))
    lane.history.found_equal = True
    assert mended(lane, [(10, 6, 2), (12, 9, 1)]) == ((6, UNKNOWN), (9, 5), (10, UNKNOWN), (12, 5))
    lane.history.found_epoch = (10, 3)
    assert mended(lane, [(10, 6, 2), (12, 9, 1)]) == ((10, 3),)


def test_a_new_epoch_after_the_holes_is_not_that_of_the_records_before_it(play: Play) -> None:
    """LOSS. Epoch 4 begins with ordinal 10, which has not been sent. A comparison has read epoch 3 before it, and the
    epochs from the first hole onward were revoked. Nothing asked whether the source still had these records."""
    play.begin("second")
    lane = play.lane
    lane.resume_ordinal, lane.log.holes = 10, [(6, 7)]
    lane.history.found_epoch, lane.history.found_equal = (10, 3), True
    assert mended(lane, [(10, 6, 2), (12, 9, 1)]) == ((10, 3),)


def test_a_log_that_went_back_is_recorded_again_with_the_note_that_others_were_sent(play: Play) -> None:
    play.fold(HoleFound(LANE, 1, 6, 6, 10, 11), SourceRun(LANE, 1, (Run(10, 6), Run(11, 10)), (), ((10, 3),)))
    play.begin("second")
    play.lane.resume_position = ResumePosition(10, 10, 0)
    play.sandwich(5)
    effects = play.tell(ScanAnswer(play.lane.asked, 0, "verify", 0, 5, (OwnBatch(0, 5, 0, 0),)))
    runs = [fact for each in effects if isinstance(each, Append) for fact in each.facts if isinstance(fact, SourceRun)]
    again = SourceRun(LANE, 2, (Run(5, 5),), (), ((5, 3), (10, UNKNOWN)), True)
    assert [msgspec.structs.replace(each, rewound=None) for each in runs] == [again]


def test_a_hole_of_which_the_source_has_lost_everything_is_not_an_open_one(play: Play) -> None:
    """It is empty, and nothing follows: bytes that come late are found there all the same."""
    play.fold(HoleFound(LANE, 1, 4, 5, 8, 10), SourceRun(LANE, 1, (Run(8, 4), Run(10, 8))))
    play.fold(SourceRun(LANE, 1, (Run(8, 3),), (Verdict(3, 8, "truncated"),)))
    play.begin("second")
    (hole,) = play.record.holes
    assert (hole.until, hole.is_open) == (8, False)
    own = (OwnBatch(0, 4, 0, 0), OwnBatch(4, 1, 4, 0))
    assert walk(play.lane, own, 0).void == 4
