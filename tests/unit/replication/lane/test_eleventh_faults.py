"""Displaced ordinals that are recorded with a run that the ledger has already, and those that look like gaps of the
cleaner, and lookups after a loss that only one of several proofs shows."""

import pytest

from mirrord.ledger.facts.core import Displaced, HoleFound, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, Effects, OwnBatch, TargetMoved
from mirrord.replication.lane.source.recorded_epochs import recorded_at
from mirrord.replication.lane.target.scan_result import Log
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from mirrord.replication.lane.target.target_scan import walk
from tests.unit.replication.lane.test_eighth_faults import bound, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_ninth_faults import equal
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

OTHERS = ((0, 1), (3, 20), (27, 28), (32, 33))
LOG = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(20, 7, 5, 0, 3), OwnBatch(28, 4, 12, 0, 3))


def displaced_twice() -> Faulty:
    """Ordinals 0 to 4 were acknowledged in epoch 1. The leader of epoch 3 has lost 2 to 4, and another writer's records
    are at 3 to 19. Ordinals 5 to 11 were acknowledged at 20, and 12 to 19 at 28, before the lane saw the election. The
    log has lost ordinals 16 to 19 again: another record is at 32. Ordinals 18 and 19 are displaced."""
    runs = (TargetRun(LANE, 1, 0, 1, 1), TargetRun(LANE, 1, 5, 20, 1), TargetRun(LANE, 1, 12, 28, 1))
    play = opened(BEGUN[0], *runs, TargetRun(LANE, 1, 20, 36, 1, (Displaced(18, 19, 34, 1),)))
    retake(play, 22, 38, 22, epoch=1)
    return play


def resumed(play: Faulty, effects: Effects) -> Effects:
    asked = one(effects, AskSuperseded)
    keys = {each: b"key" for part in asked.missing for each in range(part.first, part.last + 1)}
    return play.tell(judged(asked, keys, (37, b"key", 3, -1)))


def test_a_fact_about_displaced_ordinals_changes_no_run_and_keeps_the_other_displaced_ordinals() -> None:
    play = displaced_twice()
    log, others = (*LOG, OwnBatch(36, 1, 20, 0, 3)), (*OTHERS, (33, 36), (37, 38))
    effects = resumed(play, read(play, play.ask_target(38, epoch=3), (1, 3), own=log, others=others))
    known = list(play.record.target_runs)
    play.bind_all(bound(play, effects))
    assert play.lane.phase is Phase.COPYING
    assert list(play.record.target_runs) == known
    assert [(each.first, each.last, each.leader_epoch) for each in play.record.displaced] == [
        (2, 4, 1),
        (16, 17, 1),
        (18, 19, 1),
    ]


def test_displaced_ordinals_are_recorded_once() -> None:
    play = displaced_twice()
    log, others = (*LOG, OwnBatch(36, 1, 20, 0, 3)), (*OTHERS, (33, 36), (37, 38))
    effects = resumed(play, read(play, play.ask_target(38, epoch=3), (1, 3), own=log, others=others))
    play.bind_all(bound(play, effects))
    known = play.record.displaced
    play.tell(TargetMoved(5))
    effects = resumed(play, read(play, play.ask_target(38, epoch=5), (3, 3), own=log, others=others))
    facts = [fact for each in effects if isinstance(each, Append) for fact in each.facts]
    assert not [fact for fact in facts if isinstance(fact, TargetRun)]
    play.bind_all(bound(play, effects))
    assert play.record.displaced == known


def test_displaced_ordinals_are_recorded_if_the_cleaner_has_removed_all_others_records_there() -> None:
    """LOSS. Ordinals 0 to 9 were acknowledged in epoch 1, at offsets 1 to 10. The leader of epoch 3 has 0 and 1, and a
    late batch of ordinals 5 to 11 at 7 to 13. Others' records were at 3 to 6. The cleaner has removed all of them. The
    newer record of ordinals 2 to 4 is at 14."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    log = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(7, 7, 5, 0, 3))
    effects = read(play, play.ask_target(15, epoch=3), (1, 3), own=log, others=((0, 1), (14, 15)))
    asked = one(effects, AskSuperseded)
    effects = play.tell(judged(asked, dict.fromkeys((2, 3, 4), b"key"), (14, b"key", 3, -1)))
    play.bind_all(equal(play, bound(play, effects), 12))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    assert [(each.first, each.last, each.leader_epoch) for each in play.record.displaced] == [(2, 4, 1)]


def test_cleaned_records_next_to_a_hole_are_not_displaced() -> None:
    """NEEDLESS FACTS. Ordinals 2 and 3 are a hole, mended as 12 and 13. The cleaner has removed ordinal 4 at 2."""
    play = opened(*BEGUN)
    play.fold(TargetRun(LANE, 1, 4, 2, 1), HoleFound(LANE, 1, 2, 3, 12, 14))
    play.fold(SourceRun(LANE, 1, (Run(12, 2), Run(14, 12)), (), ((12, 0),)))
    retake(play, 20, 18, 18, epoch=1)
    own = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(3, 15, 5, 0, 3))
    effects = read(play, play.ask_target(18, epoch=4), (1, 2), own=own, others=())
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last, each.has_room) for each in asked.missing] == [(4, 4, True)]
    play.bind_all(play.tell(judged(asked, {4: b"key"}, (17, b"key", 3, 19))))
    assert play.record.displaced == ()


def far(position: int, epoch: int) -> Faulty:
    """Ordinals 2 to 4 are displaced, and the log is much longer than the part that is read at first. The lane resumes
    after another writer's last record, in this leader epoch."""
    runs = (TargetRun(LANE, 1, 0, 1, 1), TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)))
    play = opened(BEGUN[0], *runs)
    retake(play, 200_000, position, 200_000, epoch=3)
    effects = read(play, play.ask_target(position, epoch=epoch), (3, position), own=FAR, others=FAR_OTHERS)
    play.bind_all(bound(play, effects))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 200_000)
    return play


FAR = (OwnBatch(1, 2, 0, 0, 1), *(OwnBatch(4 + at, 5, 5 + at, 0, 3) for at in range(0, 199_995, 5)))
FAR_OTHERS = ((0, 1), (3, 4), (199_999, 200_000))


@pytest.mark.parametrize(("epoch_end", "is_looked_up"), [(199_999, True), (200_000, False)])
def test_displaced_ordinals_are_looked_up_if_an_epoch_is_gone_and_the_log_has_grown_again(
    epoch_end: int, *, is_looked_up: bool
) -> None:
    """LOSS. The newer record of the displaced ordinals is the only record of epoch 5. An election removes it, and
    another writer writes in epoch 7, before the lane asks. Without a loss, the log has other records of epoch 7 only
    after the offset at which the lane resumed."""
    play = far(200_000, epoch=5)
    play.tell(TargetMoved(7))
    others = (*FAR_OTHERS[:2], (199_999, 200_003))
    effects = read(play, play.ask_target(200_003, epoch=7), (3, epoch_end), own=FAR, others=others)
    asked = [each for each in effects if isinstance(each, AskSuperseded)]
    assert bool(asked) is is_looked_up
    if asked:
        play.bind_all(play.tell(judged(asked[0], dict.fromkeys((2, 3, 4), b"key"))))
        assert {2, 3, 4} <= set(offsets(play, 200_000, 200_010))


def test_records_at_the_end_of_a_plain_log_are_copied_again_after_displaced_ordinals() -> None:
    """LOSS. The topic is no longer compacted. An election removes the lane's last record, too, and nothing supersedes
    ordinals 2 to 4. All of these records are copied again."""
    play = far(200_000, epoch=3)
    play.tell(TargetMoved(7))
    own = (*FAR[:-1], OwnBatch(199_994, 4, 199_995, 0, 3))
    effects = read(play, play.ask_target(199_998, epoch=7), (3, 0), own=own, others=FAR_OTHERS[:2], compacts=False)
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(2, 4)]
    play.bind_all(play.tell(judged(asked, {})))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 199_999)
    assert offsets(play, 199_999, 200_003) == [2, 3, 4, 199_999, 200_000]


@pytest.mark.parametrize(
    ("holes", "found"),
    [
        ([(2, 3), (4, 4)], []),
        ([(2, 4)], []),
        ([(1, 6)], []),
        ([(2, 2)], [(3, 4)]),
        ([(3, 3)], [(2, 2), (4, 4)]),
        ([(3, 2)], [(2, 4)]),
        ([], [(2, 4)]),
    ],
)
def test_only_ordinals_outside_the_holes_of_the_ledger_are_a_new_hole(
    holes: list[tuple[int, int]], found: list[tuple[int, int]]
) -> None:
    """FALSE HOLE. The batches of a plain log lack ordinals 2 to 4."""
    play = opened(*BEGUN)
    play.fold(*(HoleFound(LANE, 1, *hole, 12, 15) for hole in holes))
    retake(play, 20, 20, 17, epoch=3)
    own = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(5, 13, 5, 0, 3))
    assert walk(play.lane, own, 0, Log(0, 18, ((2, 5),), compacts=False)).holes == tuple(found)


def test_lost_records_are_looked_up_with_the_source_epochs_with_which_they_were_acknowledged() -> None:
    """STALE VALUE. Ordinals 5 to 13 are lost. Epoch 1 of the source begins with ordinal 12. The ledger has these epochs
    when they are looked up first, and keeps them after the resume at 5."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (12, 1))), TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 14, 15, 14, epoch=1)
    asked = one(read(play, play.ask_target(6, epoch=3), (1, 6), others=((0, 1),)), AskSuperseded)
    assert (asked.epochs, play.record.epochs) == (None, ((0, 0), (12, 1)))
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, ((5, 13),))))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 5)
    play.tell(TargetMoved(4))
    asked = one(read(play, play.ask_target(7, epoch=4), (3, 6)), AskSuperseded)
    assert asked.epochs is not None
    assert [recorded_at(asked.epochs, ordinal) for ordinal in (0, 4, 5, 11, 12, 13)] == [0, 0, 0, 0, 1, 1]
    assert recorded_at(asked.epochs, 14) == recorded_at(play.record.epochs, 14)


@pytest.mark.parametrize(
    ("last", "keeps_all"), [(OwnBatch(199_992, 2, 199_990, 0, 3), True), (OwnBatch(199_990, 4, 199_991, 0, 3), False)]
)
def test_lost_records_of_a_plain_topic_are_all_copied_again_although_displaced_ordinals_are_looked_up(
    last: OwnBatch, *, keeps_all: bool
) -> None:
    """LOSS. The topic is no longer compacted, but its log still has empty offsets. An election removes the lane's last
    records, and the leader's log has no record of the resume position's epoch. Only if the cleaner has removed ordinal
    199990, which is not certain, are the lost records compared with newer ones. The lane knows no earlier epoch that
    would settle this (`epoch_ends`)."""
    play = far(200_000, epoch=5)
    play.lane.log.epoch_ends = ()
    play.tell(TargetMoved(7))
    own = (*FAR[:-2], last)
    effects = read(
        play, play.ask_target(199_994, epoch=7), (3, 199_994), own=own, others=FAR_OTHERS[:2], compacts=False
    )
    asked = one(effects, AskSuperseded)
    assert (asked.missing[0].first, asked.missing[-1].last) == (2, 199_999)
    assert asked.keeps_all is keeps_all
