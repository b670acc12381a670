"""A compacted target loses acknowledged records. Until they are copied again, other clients may write newer values of
their keys, and each resume looks them up: also those in a hole, and those whose ordinals are recorded again."""

import pytest

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskEnd,
    AskScan,
    CheckAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Halted,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ScanAnswer,
    TargetMoved,
)
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import again, chunk, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

OTHERS = ((0, 1),)


def told(play: Faulty, effects: Effects) -> Effects:
    """Bind the facts, and answer comparisons: everything is equal."""
    found = play.bind_all(effects)
    for each in (each for each in effects if isinstance(each, AskCheck)):
        answer = CheckAnswer(each.question, 0, each.first, each.last, "equal", "", 0, equal_until=each.last + 1)
        found += told(play, play.tell(answer))
    return found


def lost(own: tuple[OwnBatch, ...], *, known: int = 10, run: LaneFact = BEGUN[0]) -> Faulty:
    """Ordinals below `known` were acknowledged in leader epoch 1. The leader of epoch 3 has only these batches, and no
    newer record of any other ordinal."""
    play = opened(run, TargetRun(LANE, 1, 0, 1, 1))
    retake(play, known, known + 1, known, epoch=1)
    shared, end = own[0].base_offset + own[0].count, own[-1].base_offset + own[-1].count
    asked = one(read(play, play.ask_target(end, epoch=3), (1, shared), own=own, others=OTHERS), AskSuperseded)
    told(play, play.tell(judged(asked, {})))
    assert play.lane.phase is Phase.COPYING
    return play


def superseded_since(play: Faulty, own: tuple[OwnBatch, ...], source_offset: int, end: int) -> list[int]:
    """Let another client write a newer record of the key of this source offset at the end of the log, and another
    leader be elected. Return the source offsets that the lane copies next."""
    play.tell(TargetMoved(4))
    others = (*OTHERS, (end, end + 1))
    asked = one(read(play, play.ask_target(end + 1, epoch=4), (3, end), own=own, others=others), AskSuperseded)
    places = {each: offsets(play, each, each) for part in asked.missing for each in range(part.first, part.last + 1)}
    keys = {ordinal: b"key" for ordinal, found in places.items() if found == [source_offset]}
    answer = judged(asked, keys, (end, b"key", 3, -1))
    told(play, play.tell(answer))
    assert play.lane.phase is Phase.COPYING
    return offsets(play, play.lane.next_ordinal, play.lane.next_ordinal + 5)


@pytest.mark.parametrize("source_offset", [5, 6, 7])
def test_a_lost_record_in_a_hole_is_looked_up_again(source_offset: int) -> None:
    """STALE VALUE. Ordinals 5 to 7 are lost, and a late batch of ordinals 8 and 9 is there: 5 to 7 are to follow as 10
    to 12."""
    own = (OwnBatch(1, 5, 0, 0, 1), OwnBatch(6, 2, 8, 0, 3))
    play = lost(own)
    assert offsets(play, 10, 13) == [5, 6, 7, 10]
    left = [each for each in (5, 6, 7) if each != source_offset]
    assert superseded_since(play, own, source_offset, 8)[:3] == [*left, 10]


@pytest.mark.parametrize("source_offset", [5, 8])
def test_lost_records_before_and_after_a_batch_are_looked_up_again(source_offset: int) -> None:
    """STALE VALUE. Ordinals 5, 8 and 9 are lost, and ordinals 6 and 7 are there: 5, 8 and 9 are to follow as 8 to
    10."""
    own = (OwnBatch(1, 5, 0, 0, 1), OwnBatch(6, 2, 6, 0, 3))
    play = lost(own)
    assert offsets(play, 8, 11) == [5, 8, 9, 10]
    left = [each for each in (5, 8, 9) if each != source_offset]
    assert superseded_since(play, own, source_offset, 8)[:3] == [*left, 10]


def test_a_record_of_a_hole_that_was_never_acknowledged_is_copied() -> None:
    """LOSS. Ordinals 5 to 7 are a hole, of which only 5 was acknowledged. The value of 7 was never in the target."""
    own = (OwnBatch(1, 5, 0, 0, 1), OwnBatch(6, 2, 8, 0, 3))
    play = lost(own, known=6)
    assert offsets(play, 10, 13) == [5, 6, 7, 10]
    play.tell(TargetMoved(4))
    asked = one(read(play, play.ask_target(9, epoch=4), (3, 8), own=own, others=(*OTHERS, (8, 9))), AskSuperseded)
    answer = judged(asked, dict.fromkeys((10, 11, 12), b"key"), (8, b"key", 3, -1))
    assert again(answer) == set()
    told(play, play.tell(answer))
    assert offsets(play, 10, 12) == [6, 7, 10]


def test_a_run_that_is_recorded_again_keeps_its_acknowledgements() -> None:
    """STALE VALUE. The source has no record at offset 7, and another epoch from ordinal 8 on: the resume at ordinal 5
    revokes that epoch. All lost records are copied again in source order."""
    own = (OwnBatch(1, 5, 0, 0, 1),)
    play = lost(own, run=SourceRun(LANE, 1, (Run(0, 0), Run(7, 8)), (), ((0, 0), (8, 1))))
    assert offsets(play, 5, 10) == [5, 6, 8, 9, 10, 11]
    assert superseded_since(play, own, 9, 6)[:4] == [5, 6, 8, 10]


def test_a_lost_record_that_the_source_has_cleaned_is_left_out_of_the_plan() -> None:
    """STALE VALUE. Ordinals 5 to 9 are lost, and the target has a newer record of the key of 7. Before the others are
    copied again, the source's cleaner removes offset 6."""
    own = (OwnBatch(1, 5, 0, 0, 1),)
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    asked = one(read(play, play.ask_target(7, epoch=3), (1, 6), own=own), AskSuperseded)
    effects = told(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 6), (8, 9)))))
    assert offsets(play, 5, 9) == [5, 6, 8, 9, 10]
    effects = play.tell(chunk(one(effects, FetchFrom).question, (5, 5, 0), (7, 9, 0)))
    assert not [each for each in effects if isinstance(each, Halted)]
    asked = one(read(play, play.ask_target(7, epoch=3), (3, 7), own=own), AskSuperseded)
    told(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 5), (7, 8)))))
    assert play.lane.phase is Phase.COPYING
    assert offsets(play, 5, 8) == [5, 8, 9, 10]


def first_of_plan_copied() -> Faulty:
    """Ordinals 5 to 9 are lost, and the target has a newer record of the key of 7, at target offset 6: source offsets
    5, 6, 8 and 9 are to be copied again as ordinals 5 to 8. Another client writes a record at target offset 7. Then
    ordinal 5 is acknowledged at target offset 8."""
    own = (OwnBatch(1, 5, 0, 0, 1),)
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    asked = one(read(play, play.ask_target(7, epoch=3), (1, 6), own=own, others=(*OTHERS, (6, 7))), AskSuperseded)
    effects = told(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 6), (8, 9)))))
    effects = play.tell(chunk(one(effects, FetchFrom).question, (5, 5, 0)))
    scan = one(play.tell(EndAnswer(one(effects, AskEnd).question, 0, 3, 8)), AskScan)
    answer = ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), ((7, 8),), compacts=True)
    produced = one(play.tell(answer), Produce)
    told(play, play.tell(ProduceAnswer(produced.round, produced.batches[0], 0, 8)))
    return play


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_others_write_while_a_plan_is_carried_out_is_newer_than_the_rest_of_the_plan(*, is_lost: bool) -> None:
    """STALE VALUE. The record at target offset 7 has the key of source offset 8. Another leader is elected, whose log
    may have lost ordinal 5."""
    play = first_of_plan_copied()
    own, end = (OwnBatch(1, 5, 0, 0, 1), OwnBatch(8, 1, 5, 0, 3)), 8 if is_lost else 9
    play.tell(TargetMoved(4))
    effects = read(
        play, play.ask_target(end, epoch=4), (3, end), own=own[: 1 if is_lost else 2], others=((0, 1), (6, 8))
    )
    answer = judged(one(effects, AskSuperseded), {7: b"key"}, (7, b"key", 3, -1))
    told(play, play.tell(answer))
    assert offsets(play, 5, 8) == [5, 6, 9, 10]


def test_what_others_wrote_before_a_lost_record_is_older_although_the_resume_position_is_held_back() -> None:
    """STALE VALUE. The record at target offset 7 has the key of source offset 5. The log of the next leader has lost
    ordinal 5, which followed. No resume position above ordinal 5 was saved, because a comparison was pending."""
    play = first_of_plan_copied()
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(8, epoch=4), (3, 8), own=(OwnBatch(1, 5, 0, 0, 1),), others=((0, 1), (6, 8)))
    told(play, play.tell(judged(one(effects, AskSuperseded), {5: b"key"}, (7, b"key", 3, -1))))
    assert offsets(play, 5, 8) == [5, 6, 8, 9]


@pytest.mark.parametrize("refused", [5, 3])
def test_lost_records_are_copied_again_in_the_order_of_the_source(refused: int) -> None:
    """STALE VALUE. Ordinals 0 and `refused` were holes: source offset 0 was copied again as ordinal 6, and the record
    of the other hole was to follow as ordinal 7. Then an election removes everything. The record of the other hole
    gets its former place, so source offset 0 must get its former place, too."""
    plan = SourceRun(LANE, 1, (Run(6, 0), Run(7, refused), Run(8, 6)))
    holes = (HoleFound(LANE, 1, 0, 0, 6, 8), HoleFound(LANE, 1, refused, refused, 7, 8))
    play = opened(BEGUN[0], TargetRun(LANE, 1, 1, 0, 1), *holes, plan)
    retake(play, 7, 6, refused, epoch=1)
    asked = one(read(play, play.ask_target(0, epoch=3), (-1, -1), own=(), others=()), AskSuperseded)
    told(play, play.tell(judged(asked, {})))
    assert play.lane.phase is Phase.COPYING
    first = play.lane.next_ordinal
    assert offsets(play, first, first + 7) == list(range(8))
