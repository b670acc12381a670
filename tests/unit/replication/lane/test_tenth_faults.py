"""Regressions of the ninth round of fixes: displaced ordinals below the first target run, lookups without a loss, and
displaced ordinals that are none."""

import pytest

from mirrord.ledger.facts.core import Displaced, TargetRun
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import OwnBatch, TargetMoved
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_eighth_faults import bound, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_ninth_faults import OTHERS, equal
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, one, opened


def test_displaced_ordinals_below_the_first_target_run_are_looked_up() -> None:
    """LOSS. A new lane's first holder sent ordinals 0 to 11, and was killed before it recorded where they are. An
    election removed ordinals 0 to 4, others wrote at 0 to 4, and a late batch of ordinals 5 to 11 followed. The newer
    record of ordinals 0 to 4 is at 12. The first target run in the ledger is that of ordinal 5, so the ledger's
    displaced ordinals 0 to 4 count as pruned. An election removes the log from 10 on: the only value of these keys."""
    play = opened(BEGUN[0])
    retake(play, 0, 0, 0, epoch=1)
    log = (OwnBatch(5, 7, 5, 0, 3),)
    others = ((0, 5), (12, 13))
    effects = read(play, play.ask_target(13, epoch=3), (1, 0), own=log, others=others)
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(0, 4)]
    keys: dict[int, bytes] = dict.fromkeys(range(5), b"key")
    play.bind_all(equal(play, bound(play, play.tell(judged(asked, keys, (12, b"key", 3, -1)))), 12))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    assert [(each.first, each.last) for each in play.record.displaced] == [(0, 4)]
    play.tell(TargetMoved(5))
    log = (OwnBatch(5, 5, 5, 0, 3),)
    effects = read(play, play.ask_target(10, epoch=5), (3, 10), own=log, others=others[:1])
    asked = one(effects, AskSuperseded)
    play.bind_all(play.tell(judged(asked, keys)))
    assert set(range(5)) <= set(offsets(play, 10, 30))


def test_an_ordinary_resume_in_a_plain_topic_does_not_copy_displaced_ordinals() -> None:
    """STALE VALUE. Ordinals 2 to 4 are displaced. Their keys were deleted later: by the tombstones 20 to 22 of the
    source, which the target's cleaner has removed since. The source's cleaner has not run yet. The topic's
    `cleanup.policy` is `delete` by now. The next holder resumes after another writer's record
    and a clean election. Nothing was lost."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)),
    )
    retake(play, 200_000, 200_000, 200_000, epoch=3)
    own = (OwnBatch(1, 2, 0, 0, 1), *(OwnBatch(4 + at, 5, 5 + at, 0, 3) for at in range(0, 199_995, 5)))
    others = (*OTHERS, (199_999, 200_000))
    effects = read(play, play.ask_target(200_000, epoch=5), (3, 200_000), own=own, others=others, compacts=False)
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], {}))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 200_000, 200_000)


@pytest.mark.parametrize("epoch_ends", [((3, 200_000),), ()], ids=["known", "of an earlier version"])
def test_an_ordinary_resume_after_an_epoch_without_records_does_not_copy_displaced_ordinals(
    epoch_ends: tuple[tuple[int, int], ...],
) -> None:
    """STALE VALUE. As above, but the topic is compacted, and the leader of epoch 7 has no record of epoch 5, in which
    the lane resumed before. Both elections were clean: nothing was lost."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)),
    )
    retake(play, 200_000, 200_000, 200_000, 5, epoch_ends)
    own = (OwnBatch(1, 2, 0, 0, 1), *(OwnBatch(4 + at, 5, 5 + at, 0, 3) for at in range(0, 199_995, 5)))
    others = (*OTHERS, (199_999, 200_000))
    effects = read(play, play.ask_target(200_000, epoch=7), (3, 200_000), own=own, others=others)
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], {}))
    if not epoch_ends:  # Nothing shows that the log of epoch 5 had these batches.
        effects = equal(play, effects, 200_000)
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 200_000, 200_000)


def test_ordinary_resumes_record_no_displaced_ordinals_for_what_the_cleaner_removed() -> None:
    """NEEDLESS FACTS. Ordinals 0 to 19 were acknowledged, 10 to 19 in epoch 3 after a clean election that the lane did
    not see. The cleaner removes 12 to 14 and the lane sees the next clean election."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1))
    retake(play, 20, 20, 20, epoch=1)
    own = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(10, 2, 10, 0, 3), OwnBatch(15, 5, 15, 0, 3))
    effects = read(play, play.ask_target(20, epoch=4), (1, 10), own=own, others=())
    if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(asked[0], dict.fromkeys((12, 13, 14), b"key"), (18, b"key", 3, 18)))
    play.bind_all(effects)
    assert play.record.displaced == ()


def test_cleaned_records_do_not_displace_displaced_ordinals_from_the_ledger() -> None:
    """LOSS. Ordinals 2 to 4 are displaced; the newer record of their keys, another writer's, is the last one in the
    log. The log has epoch 5 from offset 199000 on: a clean election that the former holder did not see. The cleaner has
    removed 140 single records there, because of the lane's last record. Nothing is lost, but the resume records the 140
    as displaced, and the ledger keeps 128. Then an election removes the last record: the only value of the keys of 2 to
    4."""
    play = opened(
        BEGUN[0],
        TargetRun(LANE, 1, 0, 1, 1),
        TargetRun(LANE, 1, 5, 4, 3, (Displaced(2, 4, 4, 1),)),
    )
    retake(play, 200_000, 200_000, 200_000, epoch=3)
    gaps = range(199_003, 199_003 + 4 * 140, 4)
    own = [OwnBatch(1, 2, 0, 0, 1), OwnBatch(4, 198_996, 5, 0, 3), OwnBatch(199_000, 2, 199_001, 0, 5)]
    own += [OwnBatch(at, 3, at + 1, 0, 5) for at in gaps]
    own[-1] = OwnBatch(gaps[-1], 199_999 - gaps[-1], gaps[-1] + 1, 0, 5)
    others = (*OTHERS, (199_999, 200_000))
    effects = read(play, play.ask_target(200_000, epoch=5), (3, 199_000), own=tuple(own), others=others)
    asked = one(effects, AskSuperseded)
    keys = dict.fromkeys(gaps, b"own") | dict.fromkeys((2, 3, 4), b"key")
    effects = play.tell(judged(asked, keys, (199_998, b"own", 5, 199_999), (199_999, b"key", 5, -1)))
    play.bind_all(bound(play, effects))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 200_000, 200_000)
    play.tell(TargetMoved(7))
    effects = read(play, play.ask_target(199_999, epoch=7), (5, 199_999), own=tuple(own), others=others[:2])
    asked = one(effects, AskSuperseded)
    play.bind_all(play.tell(judged(asked, keys, (199_998, b"own", 5, 199_999))))
    assert {2, 3, 4} <= set(offsets(play, 200_000, 200_010))
