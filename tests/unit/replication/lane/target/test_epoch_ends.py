"""A new leader that does not know the leader epoch of the resume position: earlier epochs show what is the same."""

import pytest

from mirrord.ledger.facts.core import TargetRun
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskScan, Effects, OwnBatch, ScanAnswer, TargetMoved
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.superseded_records import (
    AskShared,
    AskSuperseded,
    SharedAnswer,
    SupersededAnswer,
)
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


@pytest.fixture
def play() -> Faulty:
    """Ordinals 0 to 9 were copied. The log of leader epoch 5 has only 0 to 7, of epoch 1. A newer value of ordinals 8
    and 9 was written while these were looked up, so ordinal 8 is source offset 10 now."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=3)
    effects = read(play, play.ask_target(8, epoch=5), (1, 8), own=(OwnBatch(0, 8, 0, 0, 1),), others=())
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(8, 9)]
    play.bind_all(play.tell(judged(asked, dict.fromkeys((8, 9), b"key"), (8, b"key", 6, -1))))
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


def test_what_the_log_proved_to_have_is_known_at_the_next_election(play: Faulty) -> None:
    """The log of epoch 6 has none of the lane's batches, and the next leader does not know epoch 6."""
    play.bind_all(cleaned(play, 9, {1: 8}))
    play.tell(TargetMoved(7))
    effects = play.ask_target(8, epoch=7)
    effects = read(play, effects, (1, 8), own=(), others=())
    assert not [each for each in effects if isinstance(each, AskSuperseded)]
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 8, 10)


def test_what_follows_the_end_of_the_epoch_is_lost(play: Faulty) -> None:
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
