"""Faults of what a lane remembers as acknowledged after its target log went back (`missing_ordinals.note_lost`)."""

import pytest

from mirrord.kafka.protocol.record_batch import TRANSACTIONAL
from mirrord.ledger.facts.core import TargetRun
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskEnd,
    CheckAnswer,
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
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import (
    AskSuperseded,
    SupersededAnswer,
)
from tests.fixtures.superseded_logs import FakeLog, lookup, written
from tests.unit.replication.lane.test_eighth_faults import LOG, OTHERS, chunk, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

CLEANED = ((6, 7),)  # the cleaner has removed the record at 0


TAKEN = [True]


@pytest.fixture(autouse=True, params=[True, False], ids=["by a former holder", "by the lane"])
def acknowledged_by(request: pytest.FixtureRequest) -> None:
    """The records that the target loses were acknowledged to a former holder, or to the lane itself."""
    TAKEN[:] = [request.param]


def went_back_to_five(
    count: int = 10, *, others: tuple[tuple[int, int], ...] = OTHERS, compacts: bool = True
) -> tuple[Faulty, Effects]:
    """Return a lane whose ordinals up to `count` were acknowledged in epoch 1. The leader of epoch 3 has 0 to 4, and a
    record of another writer. None of the lost records is superseded, so all are copied again."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, count, count + 1, count, epoch=1)
    if not TAKEN[-1]:  # the lane has resumed there, so that the resume position itself tells the epoch
        play.lane.recorded_position, play.lane.acknowledged = play.lane.resume_position, ()
    effects = read(play, play.ask_target(7, epoch=3), (1, 6), others=others, compacts=compacts)
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        assert [(each.kind, each.first, each.last) for each in asked[0].missing] == [("lost", 5, count - 1)]
        assert asked[0].keeps_all is not compacts
        effects = play.tell(SupersededAnswer(asked[0].question, 0, ((5, count - 1),)))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 5, 5)
    return play, effects


def test_a_new_record_of_the_source_is_not_taken_for_the_acknowledged_one_of_its_ordinal() -> None:
    """LOSS. While ordinals 5 to 9 are copied again, the source turns out to have lost offsets 7 to 9 and to have other
    records there, under a later epoch. The ledger gets that epoch, but no other runs (7 is still 7), so the lane still
    takes ordinals 7 to 9 for acknowledged. Another writer's record of the same key, from epoch 3, is older than these
    new records, which were never copied. If the target's leader changes before they are, they are left out."""
    play, effects = went_back_to_five()
    play.bind_all(play.tell(chunk(one(effects, FetchFrom).question, (5, 6, 0))))
    play.bind_all(play.tell(chunk(play.lane.asked, (7, 9, 1))))
    assert play.record.epochs == ((0, 0), (5, 0), (7, 1))
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(7, epoch=4), (3, 7))
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], {7: b"new", 8: b"new", 9: b"new"}, (6, b"new", 3, -1)))
    play.bind_all(effects)
    assert play.lane.phase is Phase.COPYING
    assert {7, 8, 9} <= set(offsets(play, 5, 20))


def test_nothing_is_left_out_of_a_topic_that_is_no_longer_compacted() -> None:
    """LOSS. The topic was compacted once, so that its log has an empty offset. All records that an election removed are
    copied again (`keeps_all`). Before they are, yet another leader lacks epoch 3: the lookup must keep all again."""
    play, _ = went_back_to_five(others=CLEANED, compacts=False)
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(7, epoch=4), (1, 6), others=CLEANED, compacts=False)
    assert all(each.keeps_all for each in effects if isinstance(each, AskSuperseded))


def test_a_round_without_a_loss_does_not_report_that_the_log_went_back() -> None:
    """WRONG REPORT. The leader of epoch 4 has the whole log of epoch 3."""
    play, _ = went_back_to_five()
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(7, epoch=4), (3, 7))
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], {8: b"key"}, (6, b"key", 3, -1)))
    notes = [fact.note for each in effects for fact in getattr(each, "facts", ()) if hasattr(fact, "note")]
    assert not [each for each in notes if "went back" in each]


def test_records_that_were_acknowledged_again_count_as_of_that_epoch_in_the_round_after_next() -> None:
    """STALE VALUE. The log was not compacted when it lost ordinals 5 to 9; another writer's record at 6 is of epoch 3.
    Ordinals 5 to 7 were acknowledged again, at 7 to 9, after that record. The topic becomes compacted. Two further
    elections lose ordinals 6 and 7, which were never acknowledged in between."""
    play, effects = went_back_to_five(compacts=False)
    effects = play.tell(chunk(one(effects, FetchFrom).question, (5, 7, 0)))
    if asked := [each for each in effects if isinstance(each, AskEnd)]:
        play.bind_all(effects)
        effects = play.tell(EndAnswer(asked[0].question, 0, 3, 7))
    (batch,) = one(effects, Produce).batches
    play.bind_all(effects)
    play.bind_all(play.tell(ProduceAnswer(play.lane.round, batch, 0, 7)))
    assert (play.lane.acked, play.lane.recorded_position.ordinal) == (8, 8)
    log = (*LOG, OwnBatch(7, 1, 5, 0, 3))
    epochs: list[list[tuple[int, int, int]]] = []
    for epoch, shared in ((4, (3, 8)), (5, (4, 8))):
        play.tell(TargetMoved(epoch))
        effects = read(play, play.ask_target(8, epoch=epoch), shared, own=log)
        (asked_now,) = [each for each in effects if isinstance(each, AskSuperseded)]
        epochs.append([(each.first, each.last, each.leader_epoch) for each in asked_now.missing])
        play.bind_all(play.tell(SupersededAnswer(asked_now.question, 0, ((6, 9),))))
    assert epochs[0] == [(6, 7, 3), (8, 9, 1)]
    assert epochs[1][0] == epochs[0][0]


def test_ordinals_that_the_log_of_the_resume_position_held_are_not_mistaken_for_displaced_ones() -> None:
    """LOSS. Ordinals 0 to 9 were acknowledged in epoch 1. The leader of epoch 3 has 0 and 1, and then a late batch of
    ordinals 5 to 11 at offset 2. Others' record, from epoch 3, supersedes ordinals 2 to 4. The ledger has the new place
    of ordinal 5, but while the source cannot be read for the comparison, the resume position stays that of epoch 1.
    Then an election removes all that epoch 3 has added. Ordinals 2 to 4 were in the log of epoch 1, so that
    others' records of that epoch below them are older."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))  # another writer's record of epoch 1 is at offset 0
    retake(play, 10, 11, 10, epoch=1)
    log = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(3, 7, 5, 0, 3))
    effects = read(play, play.ask_target(11, epoch=3), (1, 3), own=log, others=((0, 1), (10, 11)))
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(2, 4, 1)]
    effects = play.tell(judged(asked, dict.fromkeys((2, 3, 4), b"key"), (10, b"key", 3, -1)))
    play.bind_all(effects)
    assert play.record.target_runs.offset_of(5) == 3
    wake = one(play.tell(CheckAnswer(one(effects, AskCheck).question, 7, 0, 10, "unverifiable")), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    effects = read(play, play.ask_target(3, epoch=5), (1, 3), own=log[:1], others=((0, 1),))
    answer = judged(one(effects, AskSuperseded), dict.fromkeys((2, 3, 4), b"key"), (0, b"key", 1, -1))
    assert set(range(2, 10)) == {each for first, last in answer.again for each in range(first, last + 1)}


@pytest.mark.asyncio
async def test_records_above_an_open_transaction_are_looked_up_if_they_were_copied_uncommitted() -> None:
    """STALE VALUE. The user changes `isolation` from read_uncommitted to read_committed, while a transaction of the
    source that began at offset 2 hangs. Offset 5 was copied, the target has lost it, and another writer has a newer
    record of its key, from a later epoch."""
    source = FakeLog(
        [
            written(0, "ab", leader_epoch=0),
            written(2, "cde", attributes=TRANSACTIONAL, leader_epoch=0),
            written(5, "f", leader_epoch=0),
        ],
        6,
        2,
    )
    target = FakeLog([written(6, "f")], 7, 7)
    play = opened(*BEGUN)
    search = lookup(source, target, play.record)
    missing = Missing("lost", 5, 5, 0, has_room=False, leader_epoch=1)
    assert (await search.run(AskSuperseded(1, (missing,), 7))).again == ()
