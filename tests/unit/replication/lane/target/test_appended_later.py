"""The leader epoch changes while a lane copies, and no answer shows that: the same broker continues to lead."""

import pytest

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskEnd,
    Effects,
    EndAnswer,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    TargetMoved,
    Wake,
    Woken,
)
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import again, chunk, judged, read
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

OTHERS = ((6, 7),)


def acknowledged() -> Faulty:
    """The lane resumes in epoch 1, at ordinal 5. Ordinal 5 is acknowledged at 5, and others write at 6. Then ordinals 6
    to 9 are acknowledged at 7 to 10."""
    play = opened(*BEGUN)
    retake(play, 5, 5, 5, epoch=1)
    effects = read(play, play.ask_target(5, last=4), (1, 5), others=())
    play.bind_all(effects)
    effects = sent(play, effects, (5, 5, 0), 5)
    for first, last, base_offset in ((6, 6, 7), (7, 9, 8)):
        effects = sent(play, effects, (first, last, 0), base_offset)
    assert (play.lane.phase, play.lane.acked, play.lane.notes) == (Phase.COPYING, 10, set())
    return play


def sent(play: Faulty, effects: Effects, records: tuple[int, int, int], base_offset: int) -> Effects:
    """These source records are fetched, sent and acknowledged. Return what follows."""
    effects = play.tell(chunk(one(effects, FetchFrom).question, records))
    if asked := [each for each in effects if isinstance(each, AskEnd)]:
        effects += play.tell(EndAnswer(asked[0].question, 0, 1, base_offset))
    produce = one(effects, Produce)
    effects += play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, base_offset))
    return [*(each for each in effects if isinstance(each, FetchFrom)), *play.bind_all(effects)]


def lost_again(play: Faulty, epoch: int, own: tuple[OwnBatch, ...], shared: tuple[int, int]) -> AskSuperseded:
    """An election removes everything from 8 on, and with it ordinals 7 to 9."""
    play.tell(TargetMoved(epoch))
    return one(read(play, play.ask_target(8, epoch=epoch), shared, own=own, others=OTHERS), AskSuperseded)


def own_from(epoch: int) -> tuple[OwnBatch, ...]:
    """All up to ordinal 4 is of epoch 1."""
    return (OwnBatch(0, 5, 0, 0, 1), OwnBatch(5, 1, 5, 0, epoch), OwnBatch(7, 1, 6, 0, epoch))


def test_records_appended_after_an_unnoticed_epoch_change_are_newer_than_earlier_foreign_ones() -> None:
    """LOSS. Epoch 2 began at 5. Others' record at 6 is of that epoch, and older than ordinal 7."""
    play = acknowledged()
    asked = lost_again(play, 3, own_from(2), (1, 5))
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(7, 9, 2)]
    assert again(judged(asked, {7: b"key"}, (6, b"key", 2, -1))) == {7, 8, 9}


def test_foreign_records_of_a_later_epoch_are_newer() -> None:
    """Epoch 2 began at 8, and nothing was acknowledged in it."""
    play = acknowledged()
    asked = lost_again(play, 2, own_from(1), (1, 8))
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(7, 9, 1)]
    assert again(judged(asked, {7: b"key"}, (8, b"key", 2, -1))) == {8, 9}


@pytest.mark.parametrize("is_recorded", [True, False])
def test_the_later_epoch_is_still_known_after_a_further_election(*, is_recorded: bool) -> None:
    """The further leader lacks ordinal 6 as well, and so all records of the lane from epoch 2."""
    play = acknowledged()
    asked = lost_again(play, 3, own_from(2), (1, 5))
    if is_recorded:
        play.bind_all(play.tell(judged(asked, {})))
        assert play.lane.phase is Phase.COPYING
        play.tell(TargetMoved(4))
    effects = play.ask_target(7, epoch=4) if is_recorded else interrupted(play)
    shared = (3, 7) if is_recorded else (1, 5)
    asked = one(read(play, effects, shared, own=own_from(2)[:2], others=OTHERS), AskSuperseded)
    assert (asked.missing[-1].last, asked.missing[-1].leader_epoch) == (9, 2)
    assert 7 in again(judged(asked, {7: b"key"}, (6, b"key", 2, -1)))


def interrupted(play: Faulty) -> Effects:
    """The lookup fails, because the leader changes."""
    wake = one(play.tell(SupersededAnswer(play.lane.asked, 6)), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    return play.ask_target(7, epoch=4)
