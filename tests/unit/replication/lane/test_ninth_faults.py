"""Faults of the eighth round of fixes: displaced ordinals that the ledger does not get, and runs that are kept."""

import msgspec
import pytest

from mirrord.ledger.facts.core import Displaced, HoleFound, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.ledger.prune import prune
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskDivergence,
    CheckAnswer,
    DivergenceAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Halted,
    OwnBatch,
    ProducersAnswer,
    TargetMoved,
    VisibleAnswer,
)
from mirrord.replication.lane.target.superseded_records import MOST_RANGES, AskSuperseded, SupersededAnswer
from tests.fixtures.superseded_logs import FakeLog, lookup, written
from tests.unit.replication.lane.test_eighth_faults import again, bound, chunk, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

OTHERS = ((0, 1), (3, 4))


def equal(play: Faulty, effects: Effects, until: int) -> Effects:
    check = one(effects, AskCheck)
    return play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=until))


def test_displaced_ordinals_are_recorded_if_others_used_as_many_offsets() -> None:
    """LOSS. Ordinals 0 to 9 were acknowledged in epoch 1, at offsets 0 to 9. The leader of epoch 3 has 0 and 1, three
    records of another writer at 2 to 4, a late batch of ordinals 5 to 11 at 5 to 11, where the run expects it, and the
    newer record of ordinals 2 to 4 at 12. An election removes the log from 10 on: the only value of these keys."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    log = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(5, 7, 5, 0, 3))
    others = ((2, 5), (12, 13))
    effects = read(play, play.ask_target(13, epoch=3), (1, 2), own=log, others=others)
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(2, 4, 1)]
    keys: dict[int, bytes] = dict.fromkeys((2, 3, 4), b"key")
    play.bind_all(equal(play, bound(play, play.tell(judged(asked, keys, (12, b"key", 3, -1)))), 12))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    play.tell(TargetMoved(5))
    log = (log[0], OwnBatch(5, 5, 5, 0, 3))
    effects = read(play, play.ask_target(10, epoch=5), (3, 10), own=log, others=others[:1])
    asked = one(effects, AskSuperseded)
    effects = play.tell(judged(asked, keys))
    play.bind_all(effects)
    assert {2, 3, 4} <= set(offsets(play, 10, 30))


def test_displaced_ordinals_are_recorded_if_the_run_after_them_is_known() -> None:
    """LOSS. Ordinals 0 to 4 were acknowledged in epoch 1. The leader of epoch 3 has lost 2 to 4, another writer's
    records are at 3 to 19, and ordinals 5 to 11 were acknowledged at 20 to 26, before the lane saw the election. So the
    ledger has the run of ordinal 5 already. Another writer's newer record of ordinals 2 to 4 is at 27. An election
    removes the log from 25 on: the only value of these keys."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1), TargetRun(LANE, 1, 5, 20, 1))
    retake(play, 12, 27, 12, epoch=1)
    log = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(20, 7, 5, 0, 3))
    others = ((0, 1), (3, 20), (27, 28))
    effects = read(play, play.ask_target(28, epoch=3), (1, 3), own=log, others=others)
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(2, 4, 1)]
    keys: dict[int, bytes] = dict.fromkeys((2, 3, 4), b"key")
    play.bind_all(bound(play, play.tell(judged(asked, keys, (27, b"key", 3, -1)))))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    play.tell(TargetMoved(5))
    log = (log[0], OwnBatch(20, 5, 5, 0, 3))
    effects = read(play, play.ask_target(25, epoch=5), (3, 25), own=log, others=others[:2])
    asked = one(effects, AskSuperseded)
    play.bind_all(play.tell(judged(asked, keys)))
    assert {2, 3, 4} <= set(offsets(play, 10, 30))


def test_displaced_ordinals_are_recorded_if_the_cleaner_has_removed_others_records_there() -> None:
    """LOSS. Ordinals 0 to 9 were acknowledged in epoch 1, at offsets 1 to 10. The leader of epoch 3 has 0 and 1, then
    another writer's record at 3, three offsets whose records the cleaner has removed, a late batch of ordinals 5 to 11
    at 7 to 13, and the newer record of ordinals 2 to 4 at 14. The old epoch ends at 3, so the log has lost 2 to 4. An
    election removes the log from 12 on: the only value of these keys."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    log = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(7, 7, 5, 0, 3))
    others = ((0, 1), (3, 4), (14, 15))
    effects = read(play, play.ask_target(15, epoch=3), (1, 3), own=log, others=others)
    asked = one(effects, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 2, 4)]
    keys: dict[int, bytes] = dict.fromkeys((2, 3, 4), b"key")
    play.bind_all(equal(play, bound(play, play.tell(judged(asked, keys, (14, b"key", 3, -1)))), 12))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    play.tell(TargetMoved(5))
    log = (log[0], OwnBatch(7, 5, 5, 0, 3))
    effects = read(play, play.ask_target(12, epoch=5), (3, 12), own=log, others=others[:2])
    asked = one(effects, AskSuperseded)
    play.bind_all(play.tell(judged(asked, keys)))
    assert {2, 3, 4} <= set(offsets(play, 10, 30))


@pytest.mark.parametrize("epoch_ends", [((3, 199_999),), ()], ids=["known", "of an earlier version"])
def test_displaced_ordinals_are_looked_up_far_below_the_end_of_the_log(epoch_ends: tuple[tuple[int, int], ...]) -> None:
    """LOSS. Ordinals 2 to 4 are displaced, and their newer record, another writer's, is the last one in the log, alone
    in epoch 5. The lane resumes there. An election removes it. The leader of epoch 7 has no record of epoch 5, so it
    answers with epoch 3. The log is much longer than the part that is read at first."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)),
    )
    retake(play, 200_000, 200_000, 200_000, 5, epoch_ends)
    own = (OwnBatch(1, 2, 0, 0, 1), *(OwnBatch(4 + at, 5, 5 + at, 0, 3) for at in range(0, 199_995, 5)))
    others = ((0, 1), (3, 4))
    effects = read(play, play.ask_target(199_999, epoch=7), (3, 199_999), own=own, others=others)
    asked = one(effects, AskSuperseded)
    effects = play.tell(judged(asked, dict.fromkeys((2, 3, 4), b"key")))
    if not epoch_ends:  # Nothing shows that the log of epoch 5 had these batches.
        effects = equal(play, effects, 200_000)
    play.bind_all(effects)
    assert {2, 3, 4} <= set(offsets(play, 200_000, 200_010))


def lost_after_a_gap() -> tuple[Faulty, Effects]:
    """The source is compacted: offsets 5 and 9 had been removed when the lane copied ordinals 5 to 13. Epoch 1 of the
    source begins with ordinal 12. The target loses the ordinals from 5 on, and holds no newer record of them."""
    gone = (Verdict(5, 6, "compacted"), Verdict(9, 10, "compacted"))
    play = opened(
        SourceRun(LANE, 1, (Run(0, 0), Run(5, 6), Run(8, 10)), gone, ((0, 0), (12, 1))), TargetRun(LANE, 1, 0, 1, 1)
    )
    retake(play, 14, 15, 16, epoch=1)
    effects = read(play, play.ask_target(7, epoch=3), (1, 6))
    asked = one(effects, AskSuperseded)
    effects = bound(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 13),))))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 5, 6)
    while found := [each for each in effects if isinstance(each, AskDivergence)]:
        effects.remove(found[0])
        effects += bound(play, play.tell(DivergenceAnswer(found[0].question, 0, 0, 14)))
    return play, effects


def copied_with_one_more() -> Faulty:
    """The source's leader is another replica now, whose cleaner has not removed offset 9. The lane copies offsets 6 to
    11 as ordinals 5 to 10."""
    play, effects = lost_after_a_gap()
    play.bind_all(play.tell(chunk(one(effects, FetchFrom).question, (6, 11, 0))))
    assert (play.lane.next_ordinal, play.lane.position) == (11, 12)
    return play


def test_runs_that_are_recorded_again_are_those_that_the_lane_copies() -> None:
    """WRONG MAP: the ledger has ordinals 8 to 10 at offsets 10 to 12, and so does the offset map of groups."""
    assert offsets(copied_with_one_more(), 5, 11) == [6, 7, 8, 9, 10, 11, 12]


def test_the_next_holder_continues_after_the_records_that_were_copied() -> None:
    """LOSS. The next holder resumes after ordinal 10. Retention on the source has removed what it could compare."""
    play = copied_with_one_more()
    mark = progress_at(11, epoch=3)
    known = {"grant": play.record.grant, "rewinds": len(play.record.rewinds)}
    play.take(msgspec.structs.replace(mark, target_offset=13, source_offset=12, **known))
    check = one(play.ask_target(13, epoch=3, last=10), AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 5, 10, "unverifiable", "", 12)))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 11, 12)


def test_displaced_ordinals_below_the_first_run_are_not_looked_up() -> None:
    """NEEDLESS HALT. Ordinals 2 to 4 are displaced: others' records are at 3 to 9, and ordinal 5 is at 10. Retention
    removed source offset 3 and lower ones, and target offsets below 4. The runs of ordinals 0 to 2 are pruned. The log
    has lost ordinal 5 and later ones already, and the next holder resumes at ordinal 5, behind others' record at 9. An
    election removes the log from 8 on. The source still has ordinals 3 and 4, and nothing supersedes them."""
    play = opened(
        SourceRun(LANE, 1, (Run(0, 0), Run(3, 4)), (), ((0, 0),)),
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 10, 3, (Displaced(2, 4, 3, 1),)),
    )
    assert prune(play.state, LANE, 4, 4) == 1
    retake(play, 5, 10, 6, epoch=4)
    others = ((4, 8),)
    effects = read(play, play.ask_target(8, epoch=5), (4, 8), own=(), others=others)
    asked = [each for each in effects if isinstance(each, AskSuperseded)]
    effects = play.tell(judged(asked[0], {})) if asked else effects
    play.bind_all(effects)
    assert not [each for each in effects if isinstance(each, Halted)]
    assert play.lane.phase is Phase.COPYING


def many_gaps(count: int) -> Faulty:
    """The source is compacted: it has every other offset. Its epoch 1 begins with the last record."""
    runs = tuple(Run(at, 2 * at) for at in range(count))
    play = opened(SourceRun(LANE, 1, runs, (), ((0, 0), (count - 1, 1))), TargetRun(LANE, 1, 0, 0, 1))
    retake(play, count, count, 2 * count, epoch=1)
    return play


@pytest.mark.parametrize("again", [((0, MOST_RANGES + 999),), ()], ids=["nothing is superseded", "all is superseded"])
def test_an_entry_has_a_limited_number_of_runs_and_verdicts(again: tuple[tuple[int, int], ...]) -> None:
    """The lane waits for ever: from about 2 million runs or verdicts on, the ledger topic refuses the entry, even
    compressed. The target has lost everything. The limit on what is copied again does not count the runs."""
    count = MOST_RANGES + 1_000
    play = many_gaps(count)
    effects = read(play, play.ask_target(0, epoch=3), (1, 0), own=(), others=())
    asked = one(effects, AskSuperseded)
    effects = play.tell(SupersededAnswer(asked.question, 0, again))
    facts = [fact for each in effects if isinstance(each, Append) for fact in each.facts]
    runs = [len(each.runs) for each in facts if isinstance(each, SourceRun)]
    verdicts = [len(each.verdicts) for each in facts if isinstance(each, VerdictGiven)]
    assert max([*runs, *verdicts], default=0) <= MOST_RANGES


def test_a_log_that_ends_below_the_first_run_is_copied_again_from_there() -> None:
    """NEEDLESS HALT. Retention has removed the records below ordinal 100 from both logs, and their runs are pruned. An
    unclean election elects a replica that is empty. The topic is not compacted."""
    play = opened(
        SourceRun(LANE, 1, (Run(0, 0), Run(100, 105)), (), ((0, 0),)),
        TargetRun(LANE, 1, 0, 0, 1),
        TargetRun(LANE, 1, 100, 105, 1),
    )
    assert prune(play.state, LANE, 105, 105) == 2
    retake(play, 150, 155, 155, epoch=1)
    effects = read(play, play.ask_target(0, epoch=2), (-1, -1), own=(), others=(), compacts=False)
    play.bind_all(effects)
    assert not [each for each in effects if isinstance(each, Halted)]
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 100)


def test_records_below_the_first_run_are_not_missed() -> None:
    """FALSE LOSS, or needless halt with `on_loss = "halt"`. As above, but the source has no gaps, and the new leader's
    log starts at 60, lower than its predecessor's did, and has lost the records from 140 on. The lane takes ordinals 0
    to 59 for a hole, and wants to copy them again: the source has deleted them."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 0, 1),
        TargetRun(LANE, 1, 100, 105, 1),
    )
    assert prune(play.state, LANE, 105, 105) == 1
    retake(play, 150, 155, 150, epoch=1)
    own = (OwnBatch(60, 40, 60, 0, 1), OwnBatch(105, 35, 100, 0, 1))
    others = ((100, 105),)
    play.tell(EndAnswer(play.lane.asked, 0, 2, 140))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 2, 140))
    effects = play.tell(VisibleAnswer(play.lane.asked, 0, 140, 60))
    effects = read(play, effects, (-1, -1), own=own, others=others, compacts=False)
    play.bind_all(effects)
    assert play.record.holes == ()
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 135, 135)


def test_displaced_ordinals_that_are_in_the_log_again_are_not_copied() -> None:
    """DOUBLE. Ordinals 2 to 4 are displaced. A replica is elected whose log the first election had discarded: it has
    ordinals 0 to 199989 of epoch 1, at offsets 1 to 199990. The lane reads only the end of this long log. The lane
    copies 20 records, an election removes 10 of them, and the lane looks the displaced ordinals up."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)),
    )
    retake(play, 200_000, 199_999, 200_000, 3, ((1, 3),))
    own = tuple(OwnBatch(1 + at, 10, at, 0, 1) for at in range(0, 199_990, 10))
    effects = read(play, play.ask_target(199_991, epoch=5), (1, 199_991), own=own, others=((0, 1),))
    asked = one(effects, AskSuperseded)
    assert (asked.missing[-1].first, asked.missing[-1].last) == (199_990, 199_999)
    standing = [(3 + at, b"%d" % (2 + at), 1, 2 + at) for at in range(3)]
    effects = play.tell(judged(asked, {}, *standing))
    # Other batches have these ordinals in the log of epoch 3.
    play.bind_all(equal(play, effects, 199_990))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 199_990)
    retake(play, 200_010, 200_011, 200_010, epoch=5)
    own = (*own, OwnBatch(199_991, 10, 199_990, 0, 5))
    effects = read(play, play.ask_target(200_001, epoch=7), (5, 200_001), own=own, others=((0, 1),))
    asked = one(effects, AskSuperseded)
    assert {2, 3, 4}.isdisjoint(again(judged(asked, {}, *standing)))


def test_more_displaced_ordinals_than_the_ledger_keeps_are_looked_up() -> None:
    """LOSS. After many elections, 130 ordinals are displaced, each by a record of another writer and a late batch. The
    last record of the log is newer than all of them. An election removes it."""
    gaps = range(2, 2 + 2 * 130, 2)
    runs = [TargetRun(LANE, 1, each + 1, 2 * each, 3, (Displaced(each, each, 2 * each, 1),)) for each in gaps]
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 1, 1), *runs)
    retake(play, 262, 522, 262, epoch=3)
    effects = read(play, play.ask_target(521, epoch=5), (3, 521), own=(), others=((0, 1), (520, 521)))
    asked = one(effects, AskSuperseded)
    assert set(gaps) <= again(judged(asked, {}))


def test_holes_that_touch_explain_a_gap_together() -> None:
    """FALSE HOLE. Ordinals 2 and 3 were lost in another leader epoch than 4: two holes, both mended as 12 to 14. The
    topic is no longer compacted. An election removes ordinals 18 and 19."""
    play = opened(*BEGUN)
    play.fold(HoleFound(LANE, 1, 2, 3, 12, 15), HoleFound(LANE, 1, 4, 4, 14, 15))
    play.fold(SourceRun(LANE, 1, (Run(12, 2), Run(15, 12)), (), ((12, 0),)))
    retake(play, 20, 20, 17, epoch=3)
    own = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(5, 13, 5, 0, 3))
    effects = read(play, play.ask_target(18, epoch=5), (3, 18), own=own, others=((2, 5),), compacts=False)
    play.bind_all(effects)
    assert play.lane.phase is Phase.COPYING
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(2, 3), (4, 4)]


def test_displaced_ordinals_are_copied_again_if_the_topic_is_no_longer_compacted() -> None:
    """LOSS. As in the test far below the end, but the topic's `cleanup.policy` is now `delete`, and the log has no
    empty offsets."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)),
    )
    retake(play, 200_000, 200_000, 200_000, epoch=3)
    own = (OwnBatch(1, 2, 0, 0, 1), *(OwnBatch(4 + at, 5, 5 + at, 0, 3) for at in range(0, 199_995, 5)))
    effects = read(play, play.ask_target(199_999, epoch=7), (3, 199_999), own=own, others=OTHERS, compacts=False)
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], {}))
    play.bind_all(effects)
    assert {2, 3, 4} <= set(offsets(play, 200_000, 200_010))


@pytest.mark.asyncio
async def test_a_record_of_a_later_epoch_is_still_known_after_its_epoch_was_revoked() -> None:
    """STALE VALUE. The source has not changed. Before anything is copied again, another writer writes a newer record of
    the key of ordinal 12, which is of epoch 1 of the source, and the target has another leader."""
    play, _ = lost_after_a_gap()
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(9, epoch=4), (3, 9), others=((0, 1), (6, 9)))
    asked = one(effects, AskSuperseded)
    assert any(each.first <= 12 <= each.last for each in asked.missing)
    batches = [written(first, keys, leader_epoch=0) for first, keys in ((0, "abcde"), (6, "fgh"), (10, "ijkl"))]
    source = FakeLog([*batches, written(14, "yz", leader_epoch=1)], 16, 16)
    target = FakeLog([written(7, "fy", leader_epoch=3)], 9, 9)
    search = lookup(source, target, play.record)
    found = again(await search.run(asked))
    assert 5 not in found
    assert 12 not in found
