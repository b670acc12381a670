"""A new leader that does not know the leader epoch of the resume position: earlier epochs show what is the same."""

import msgspec
import pytest

from mirrord.ledger.facts.core import Progress, Rewound, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskCheck, AskScan, CheckAnswer, Effects, OwnBatch, ScanAnswer, TargetMoved
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target import epoch_ends
from mirrord.replication.lane.target.superseded_records import AskShared, AskSuperseded, SharedAnswer, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at


@pytest.fixture
def play() -> Faulty:
    """Ordinals 0 to 9 were copied. The log of leader epoch 5 has only 0 to 7, of epoch 1. A newer value of ordinals 8
    and 9 was written while these were looked up, so ordinal 8 is source offset 10 now."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=3)
    effects = read(play, play.ask_target(8, epoch=5), (1, 8), own=(OwnBatch(0, 8, 0, 0, 1),), others=())
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(8, 9)]
    # Nothing shows that the log of epoch 3 had this batch.
    check = one(play.tell(judged(asked, dict.fromkeys((8, 9), b"key"), (8, b"key", 6, -1))), AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=8)))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 8, 10)
    play.tell(TargetMoved(6))
    return play


def cleaned(play: Faulty, end: int, ends: dict[int, int]) -> Effects:
    """The leader of epoch 6 has only the records of others from offset 8 on: its cleaner has removed the lane's. `ends`
    are its leader epochs and where they end."""
    effects = play.ask_target(end, epoch=6)
    while asked := [each for each in effects if isinstance(each, AskScan | AskShared)]:
        (each,) = asked
        if isinstance(each, AskShared):
            epoch = max((known for known in ends if known <= each.epoch), default=-1)
            effects = play.tell(SharedAnswer(each.question, 0, epoch, ends.get(epoch, -1)))
        else:
            others = ((max(each.start, 8), end),) if end > 8 else ()
            effects = play.tell(ScanAnswer(each.question, 0, each.purpose, each.start, end, (), others, compacts=True))
    return effects


def test_nothing_is_lost_if_the_epoch_of_the_lanes_last_batch_ends_behind_it(play: Faulty) -> None:
    """STALE VALUE. The leader of epoch 5 appended nothing, so the next one does not know its epoch. Ordinals 0 to 7
    counted as lost. The source has deleted them by now, and offsets 8 and 9 were copied over the newer value."""
    play.bind_all(cleaned(play, 9, {1: 8}))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 8, 10)


def test_an_epoch_that_only_others_used_does_not_hide_the_earlier_one(play: Faulty) -> None:
    play.bind_all(cleaned(play, 10, {1: 8, 4: 9}))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 8, 10)


def test_an_epoch_end_that_a_log_confirmed_is_known_at_the_next_election(play: Faulty) -> None:
    """The log of epoch 6 has none of the lane's batches, and the next leader does not know epoch 6."""
    play.bind_all(cleaned(play, 9, {1: 8}))
    play.tell(TargetMoved(7))
    effects = play.ask_target(8, epoch=7)
    effects = read(play, effects, (1, 8), own=(), others=())
    assert not [each for each in effects if isinstance(each, AskSuperseded)]
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 8, 10)


def test_records_after_the_end_of_the_epoch_are_lost(play: Faulty) -> None:
    asked = one(cleaned(play, 9, {1: 4}), AskSuperseded)
    assert [(each.kind, each.first, each.last, each.above) for each in asked.missing] == [("lost", 4, 7, 4)]


def test_a_log_without_any_known_epoch_shows_nothing(play: Faulty) -> None:
    asked = one(cleaned(play, 9, {}), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 0, 7)]


def of_others(play: Faulty, end: int, begins: dict[int, int]) -> AskSuperseded:
    """The log of the newest epoch in `begins` has only records of others. `begins` are its leader epochs and where they
    begin. The leader answers as `LeaderEpochFileCache.endOffsetFor` does."""
    effects = play.ask_target(end, epoch=max(begins))
    while asked := [each for each in effects if isinstance(each, AskScan | AskShared)]:
        (each,) = asked
        if isinstance(each, AskShared):
            epoch = max((known for known in begins if known <= each.epoch), default=each.epoch)
            epoch_end = min((start for known, start in begins.items() if known > each.epoch), default=end)
            effects = play.tell(SharedAnswer(each.question, 0, epoch, epoch_end))
        else:
            others = ((each.start, end),) if end > each.start else ()
            effects = play.tell(ScanAnswer(each.question, 0, each.purpose, each.start, end, (), others, compacts=True))
    return one(effects, AskSuperseded)


def test_an_epoch_that_a_log_does_not_have_is_not_noted_as_one_of_its_epochs(play: Faulty) -> None:
    """LOST VALUE. The log of epoch 7 has only records of others, which an earlier leader, of epoch 6, appended. The
    lane copies ordinals 0 to 7 again, as offsets 10 to 17. The next log has the records of epoch 6, too, but not the
    copies. The records of epoch 6 are older than the copies, so they do not supersede them."""
    asked = of_others(play, 10, {6: 0, 7: 10})
    assert [(each.kind, each.first, each.last, each.above) for each in asked.missing] == [("lost", 0, 7, 0)]
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, ((0, 7),))))
    play.fold(TargetRun(LANE, play.record.grant, 0, 10, 7))
    play.tell(TargetMoved(8))
    play.lane.resume_position, play.lane.acked = ResumePosition(8, 18, 7), 8
    asked = of_others(play, 11, {6: 0, 8: 10})
    assert [(each.kind, each.first, each.last, each.above) for each in asked.missing] == [("lost", 0, 7, 10)]


# --- another holder ---------------------------------------------------------------------------------------------------


def saved_without_a_record_of_its_epoch() -> tuple[Faulty, Progress]:
    """Ordinals 0 to 9 were copied in epoch 1. The lane resumed in epoch 2, in which nothing was appended, and saved its
    resume position."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    play.bind_all(read(play, play.ask_target(10, epoch=2), (1, 10), own=(OwnBatch(0, 10, 0, 0, 1),), others=()))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 10)
    saved = progress_record(play.lane, 1, 1)
    assert saved is not None
    assert (saved.ordinal, saved.leader_epoch) == (10, 2)
    return play, saved


def all_cleaned(play: Faulty, ends: tuple[int, int]) -> AskSuperseded:
    """The leader of epoch 3 has only others' records from 20 on: its cleaner has removed the lane's. It does not know
    epoch 2. `ends` is the epoch that it knows instead, and where it ends. Return the lookup."""
    return one(read(play, play.ask_target(23, epoch=3), ends, own=(), others=((20, 23),)), AskSuperseded)


def test_the_next_holder_knows_the_epoch_of_the_last_batch() -> None:
    """STALE VALUE. The former holder appended ordinals 10 to 19 in epoch 3, and then others wrote newer records of all
    keys. Ordinals 0 to 9 counted as lost, so ordinals 10 to 19 were not looked up, and were copied over the newer
    records."""
    play, saved = saved_without_a_record_of_its_epoch()
    play.take(saved, cleanly=False)
    asked = all_cleaned(play, (1, 10))
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 10, 19)]


def test_the_next_holder_finds_what_is_lost_by_the_epoch_of_the_last_batch() -> None:
    play, saved = saved_without_a_record_of_its_epoch()
    play.take(saved, cleanly=False)
    asked = all_cleaned(play, (1, 4))
    kinds = [(each.kind, each.first, each.last, each.above) for each in asked.missing]
    assert kinds == [("lost", 4, 9, 4), ("last", 10, 19, 4)]


def test_a_progress_record_of_an_earlier_version_shows_no_other_epoch() -> None:
    play, saved = saved_without_a_record_of_its_epoch()
    play.take(msgspec.structs.replace(saved, epoch_ends=()), cleanly=False)
    asked = all_cleaned(play, (1, 10))
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 0, 9), ("last", 10, 19)]


def test_what_a_progress_record_shows_is_saved_again() -> None:
    """The next holder saves a position before it has read the log."""
    play, saved = saved_without_a_record_of_its_epoch()
    assert saved.epoch_ends == ((1, 10),)
    play.take(saved, cleanly=False)
    again = progress_record(play.lane, 1, 1)
    assert again is not None
    assert again.epoch_ends == saved.epoch_ends


def test_only_the_newest_earlier_epochs_are_saved() -> None:
    play, _ = saved_without_a_record_of_its_epoch()
    play.lane.log.epoch_ends = tuple((30, epoch, 10 * epoch) for epoch in (12, *range(1, 12), 30, 31))
    assert epoch_ends.earlier(play.lane, 30) == tuple((epoch, 10 * epoch) for epoch in range(5, 13))
    assert epoch_ends.earlier(play.lane, 29) == ()


def test_a_position_that_revokes_a_saved_one_comes_with_its_epochs() -> None:
    """The lane resumes at ordinal 6 in epoch 2, because epoch 1 ends there, and dies before it saves a position. The
    leader of epoch 3 does not know epoch 2."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    log = (OwnBatch(0, 6, 0, 0, 1),)
    asked = one(read(play, play.ask_target(8, epoch=2), (1, 6), own=log, others=((6, 8),)), AskSuperseded)
    play.bind_all(play.tell(judged(asked, dict.fromkeys(range(6, 10), b"key"), (7, b"key", 2, -1))))
    ((_, rewound),) = play.record.rewinds
    assert rewound == Rewound(6, 6, 8, 2, ((1, 6),))
    play.take(msgspec.structs.replace(progress_at(10, state="copying"), target_offset=10), cleanly=False)
    assert play.lane.resume_position.ordinal == 6
    effects = read(play, play.ask_target(9, epoch=3), (1, 6), own=(), others=((6, 9),))
    assert [each for each in effects if isinstance(each, AskSuperseded)] == []


def test_the_epochs_of_other_positions_do_not_count() -> None:
    play, saved = saved_without_a_record_of_its_epoch()
    revoked = SourceRun(LANE, 2, (Run(8, 20),), rewound=Rewound(8, 8, 8, 7, ((4, 8),)))
    play.fold(revoked, SourceRun(LANE, 2, (Run(12, 30),), rewound=Rewound(12, 12, 30, 9, ((8, 20),))))
    play.take(saved, cleanly=False)
    assert play.lane.resume_position.leader_epoch == 7
    assert play.lane.log.epoch_ends == ((7, 4, 8),)
