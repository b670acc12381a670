"""Ordinals whose places in the target log later ordinals have taken, in a second and third election."""

from collections.abc import Sequence

import pytest

from mirrord.ledger.facts.core import Displaced, TargetRun
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
from mirrord.replication.lane.target import displaced_ordinals
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_eighth_faults import again, chunk, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

OWN = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(4, 7, 5, 0, 3))
OTHERS = ((0, 1), (3, 4), (11, 12))
KEYS: dict[int, bytes] = {2: b"key", 3: b"key", 4: b"key"}


def displaced(*seen: tuple[int, bytes, int, int]) -> tuple[Faulty, Effects]:
    """Ordinals 0 to 9 were acknowledged in epoch 1. The leader of epoch 3 has 0 and 1 at offsets 1 and 2, others'
    record at 3, a late batch of ordinals 5 to 11 at 4 to 10, and others' record at 11. One of these is newer than
    ordinals 2 to 4. The facts about that have taken effect, and the comparison with the source is open."""
    play = opened(BEGUN[0], TargetRun(BEGUN[0].lane, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    effects = read(play, play.ask_target(12, epoch=3), (1, 3), own=OWN, others=OTHERS)
    effects = play.tell(judged(one(effects, AskSuperseded), KEYS, *seen))
    play.bind_all(effects)
    return play, effects


def copying(*seen: tuple[int, bytes, int, int]) -> Faulty:
    """Return the same lane when it copies from ordinal 12 on."""
    play, effects = displaced(*seen)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=12)))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 12)
    return play


def lost(play: Faulty, end: int, epoch: int, shared: tuple[int, int], own: Sequence[OwnBatch] = OWN) -> AskSuperseded:
    """An election removes everything from an offset on. Return what the lane looks up."""
    others = tuple((start, min(behind, end)) for start, behind in OTHERS if start < end)
    play.tell(TargetMoved(epoch))
    left = tuple(batch for batch in own if batch.base_offset < end)
    return one(read(play, play.ask_target(end, epoch=epoch), shared, own=left, others=others), AskSuperseded)


def test_the_ledger_records_what_was_displaced_and_when_the_log_last_held_it() -> None:
    play, _ = displaced((3, b"key", 3, -1))
    assert play.record.displaced == (Displaced(2, 4, 4, 1),)


@pytest.mark.parametrize(
    ("keys", "left", "holes"),
    [({}, [], [(2, 4)]), ({3: b"key"}, [(3, 3)], [(2, 2), (4, 4)]), ({4: b"key"}, [(4, 4)], [(2, 3)])],
)
def test_ordinals_that_are_copied_again_are_not_displaced(
    keys: dict[int, bytes], left: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    play = opened(BEGUN[0], TargetRun(BEGUN[0].lane, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    effects = read(play, play.ask_target(12, epoch=3), (1, 3), own=OWN, others=OTHERS)
    effects = play.tell(judged(one(effects, AskSuperseded), keys, (11, b"key", 3, -1)))
    check = one(effects, AskCheck)
    effects += play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=12))
    play.bind_all(effects)
    assert play.lane.phase is Phase.COPYING
    assert [(each.first, each.last) for each in displaced_ordinals.below(play.lane, 12)] == left
    assert [(hole.first, hole.last) for hole in play.record.holes if hole.first <= hole.last] == holes


def test_a_newer_value_that_is_lost_behind_the_displaced_ordinals_is_made_up_for() -> None:
    """LOSS. Others' record at 11 is newer than ordinals 2 to 4, and the election removes only that and the last records
    of the lane. So the log still has ordinals 5 to 9, but no value of the key."""
    play = copying((11, b"key", 3, -1))
    asked = lost(play, 9, 5, (3, 9), (OWN[0], OwnBatch(4, 5, 5, 0, 3)))
    assert [(each.first, each.last, each.leader_epoch) for each in asked.missing] == [(2, 4, 1), (10, 11, 3)]
    play.bind_all(play.tell(judged(asked, KEYS)))
    assert [(hole.first, hole.last) for hole in play.record.holes][:1] == [(2, 4)]
    assert {2, 3, 4, 10, 11} <= set(offsets(play, 10, 20))


def test_a_newer_value_that_the_log_still_has_is_not_followed_by_an_older_one() -> None:
    play = copying((3, b"key", 3, -1))
    asked = lost(play, 9, 5, (3, 9), (OWN[0], OwnBatch(4, 5, 5, 0, 3)))
    assert again(judged(asked, KEYS, (3, b"key", 3, -1))) == {10, 11}


@pytest.mark.parametrize(("log_start", "missing"), [(4, [(2, 4)]), (5, [])])
def test_records_that_retention_would_have_deleted_are_not_missing(
    log_start: int, missing: list[tuple[int, int]]
) -> None:
    play = copying((11, b"key", 3, -1))
    play.lane.log.log_start = log_start
    assert [(each.first, each.last) for each in displaced_ordinals.below(play.lane, 12)] == missing


def test_the_epoch_is_known_although_the_leader_changed_before_the_resume_position_was_recorded() -> None:
    """STALE VALUE. The source cannot be read for the comparison, and the leader of epoch 4 has all of the log. Only
    then the lane resumes. The leader of epoch 6 has lost everything from 4 on."""
    play, effects = displaced((3, b"key", 3, -1))
    check = one(effects, AskCheck)
    wake = one(play.tell(CheckAnswer(check.question, 7, 0, 10, "unverifiable")), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    effects = read(play, play.ask_target(12, epoch=4), (1, 3), own=OWN, others=OTHERS)
    effects = play.tell(judged(one(effects, AskSuperseded), KEYS, (3, b"key", 3, -1)))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=12)))
    assert play.lane.resume_position.leader_epoch == 4
    asked = lost(play, 4, 6, (3, 4))
    assert again(judged(asked, KEYS, (3, b"key", 3, -1))) == set(range(5, 12))


def refused() -> Faulty:
    """Ordinals 10 to 12 were never acknowledged: the broker had forgotten the producer. Another writer's record at 10,
    of the same epoch, is newer, and ordinals 13 and 14 follow it."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    own = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(11, 2, 13, 0, 1))
    effects = read(play, play.ask_target(13, epoch=1), (1, 10), own=own, others=((10, 11),))
    asked = one(effects, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("between", 10, 12)]
    effects = play.tell(judged(asked, dict.fromkeys((10, 11, 12), b"key"), (11, b"key", 1, -1)))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", "", 0, equal_until=15)))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 15)
    return play


@pytest.mark.parametrize(
    ("seen", "is_newer"),
    [
        ((5, b"key", 1, -1), False),
        ((10, b"key", 1, -1), False),
        ((11, b"key", 1, -1), True),
        ((9, b"key", 2, -1), True),
    ],
)
def test_a_refused_record_is_newer_than_what_others_wrote_before_it_in_the_same_epoch(
    seen: tuple[int, bytes, int, int], *, is_newer: bool
) -> None:
    """LOSS. The record was not in the log before its epoch, and others' record before it is older."""
    play = refused()
    assert play.record.displaced == (Displaced(10, 12, 11, 1),)
    play.tell(TargetMoved(2))
    own = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(11, 1, 13, 0, 1))
    asked = one(read(play, play.ask_target(12, epoch=2), (1, 12), own=own, others=((10, 11),)), AskSuperseded)
    wanted = {14} if is_newer else {10, 11, 12, 14}
    assert again(judged(asked, dict.fromkeys((10, 11, 12), b"key"), seen)) == wanted


def test_displaced_ordinals_that_are_stored_again_at_consecutive_offsets_are_no_longer_displaced() -> None:
    """DOUBLE. Ordinals 2 to 4 are copied again, to the very offsets that the first run has for them, so the runs alone
    would not show that they are in the log again."""
    play = copying((3, b"key", 3, -1))
    own = (OwnBatch(1, 2, 0, 0, 1), OwnBatch(3, 3, 2, 0, 5))
    play.fold(TargetRun(BEGUN[0].lane, play.record.grant, 5, 6, 5, play.record.displaced))
    retake(play, 2, 3, 2, epoch=5)
    play.bind_all(read(play, play.ask_target(6, epoch=5), (5, 3), own=own, others=((0, 1),)))
    assert play.record.displaced == ()


def test_an_acknowledgement_of_displaced_ordinals_is_recorded() -> None:
    """The lane copies them again itself, in one batch."""
    play = copying((11, b"key", 3, -1))
    asked = lost(play, 3, 5, (3, 3))
    effects = play.tell(judged(asked, {}))
    effects = play.bind_all(effects) + effects
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 2)
    effects = play.tell(chunk(one(effects, FetchFrom).question, (2, 6, 0)))
    if asked := [each for each in effects if isinstance(each, AskEnd)]:
        effects = play.bind_all(effects) + play.tell(EndAnswer(asked[0].question, 0, 5, 3))
    produce = one(effects, Produce)
    play.bind_all(effects)
    play.bind_all(play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 3)))
    assert play.record.displaced == ()
    assert play.record.target_runs.offset_of(6) == 7


def test_the_log_is_not_interpreted_before_the_ledger_has_the_places_of_the_last_records() -> None:
    """LOSS. Others wrote at 10 to 12, and then ordinals 10 to 14 were acknowledged at 13 to 17. Before the ledger has
    that, an election removes all from 14 on. By the former runs, ordinals up to 13 would be in the log."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    own = (OwnBatch(0, 10, 0, 0, 1), OwnBatch(13, 1, 10, 0, 1))
    effects = read(play, play.ask_target(10, epoch=1, last=9), (1, 10), own=own[:1], others=())
    play.bind_all(effects)
    effects = play.tell(chunk(one(effects, FetchFrom).question, (10, 14, 0)))
    produce = one(effects, Produce)
    play.bind_all(effects)
    acknowledged = play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 13))
    play.tell(TargetMoved(2))
    effects = read(play, play.ask_target(14, epoch=2), (1, 14), own=own, others=((10, 13),))
    assert not [each for each in effects if isinstance(each, AskSuperseded)]
    wake = one(effects, Wake)
    play.bind_all(acknowledged)
    play.now = wake.at
    play.tell(Woken(wake.question))
    effects = read(play, play.ask_target(14, epoch=2), (1, 14), own=own, others=((10, 13),))
    assert [(each.first, each.last) for each in one(effects, AskSuperseded).missing] == [(11, 14)]


@pytest.mark.parametrize(
    ("ordinal", "target_offset"), [(0, 0), (4, 2), (8, 5)], ids=["before them", "in their midst", "behind them"]
)
def test_displaced_ordinals_take_none_of_the_empty_offsets(ordinal: int, target_offset: int) -> None:
    """STALE VALUE. The log had ordinals 0 and 1 at offsets 0 and 1, and ordinals 5 to 13 at 2 to 10: ordinals 2 to 4
    were displaced. Others have newer records of all keys at 11 and 12, the broker has forgotten the producer, and the
    cleaner has removed everything before. Ordinals 11 to 13 were not looked up, and copied again."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 5, 2, 3, (Displaced(2, 4, 2, 1),)))
    retake(play, ordinal, target_offset, ordinal, epoch=3)
    effects = read(play, play.ask_target(13, epoch=3), (3, 13), own=(), others=((11, 13),))
    (missing,) = one(effects, AskSuperseded).missing
    assert (missing.kind, missing.first, missing.last) == ("last", ordinal, 13)


def test_displaced_ordinals_that_cannot_be_reached_do_not_count() -> None:
    """Ordinals 2 to 4 at most fill the empty offsets, so nothing shows that any of ordinals 8 and higher was there."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 8, 5, 3, (Displaced(5, 7, 5, 1),)))
    retake(play, 2, 2, 2, epoch=3)
    effects = read(play, play.ask_target(7, epoch=3), (3, 7), own=(), others=((5, 7),))
    (missing,) = one(effects, AskSuperseded).missing
    assert (missing.kind, missing.first, missing.last) == ("last", 2, 4)


def test_records_that_followed_displaced_ordinals_are_newer_even_if_the_cleaner_removed_them() -> None:
    """STALE VALUE. An election removes everything from offset 9 on. Ordinals 5 to 9 are in the log up to there, or the
    cleaner has removed some of them."""
    play = copying((11, b"key", 3, -1))
    asked = lost(play, 9, 5, (3, 9), (OWN[0], OwnBatch(4, 5, 5, 0, 3)))
    assert [(each.first, each.last) for each in asked.missing] == [(2, 4), (10, 11)]
    assert asked.appended == ((5, 9),)
