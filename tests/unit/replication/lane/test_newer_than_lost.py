"""Which records of other clients count as newer than a missing one of their key."""

import pytest

from mirrord.ledger.facts.core import Displaced, TargetRun
from mirrord.replication.lane.signals import OwnBatch, TargetMoved
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_eighth_faults import again, bound, judged, read
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_ninth_faults import equal
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, one, opened


@pytest.mark.parametrize("ordinal", [18, 20])
def test_a_record_of_another_client_before_the_place_of_a_lost_one_is_older(ordinal: int) -> None:
    """LOSS. The target's cleaner has removed ordinals 0 to 17, because of another client's records at 18 to 20.
    Ordinals 18 to 20 were acknowledged after these, at 21 to 23 in leader epoch 2. An election removed them. The leader
    of epoch 4 has no record of epoch 2. Ordinals 0 to 20 are lost as one range, and are compared with the place of
    ordinal 0."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 2, 1), TargetRun(LANE, 1, 18, 21, 2))
    retake(play, 21, 24, 21, epoch=2)
    effects = read(play, play.ask_target(21, epoch=4), (1, 21), own=(), others=((18, 21),))
    asked = one(effects, AskSuperseded)
    assert ordinal in again(judged(asked, {ordinal: b"key"}, (20, b"key", 1, -1)))


# Ordinal 5 was cleaned, because of another client's record at 6. Ordinals 6 to 10 were acknowledged at 7 to 11. An
# election removed them, and a late batch of ordinals 11 and 12 was appended at 7. The leader has no record of epoch 2.
APART = (TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 6, 7, 2))
AFTER_LOSS = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(7, 2, 11, 0, 3))


def test_a_record_before_the_place_of_one_that_is_missing_between_own_batches_is_older() -> None:
    """LOSS. The other client's record supersedes ordinal 5, but not the later ones."""
    play = opened(BEGUN[0], *APART)
    retake(play, 11, 12, 11, epoch=2)
    asked = one(read(play, play.ask_target(9, epoch=3), (1, 7), own=AFTER_LOSS, others=((6, 7),)), AskSuperseded)
    answer = judged(asked, {5: b"a", 7: b"a", 10: b"a"}, (6, b"a", 1, -1), (7, b"b", 3, 11), (8, b"b", 3, 12))
    assert again(answer) == {6, 7, 8, 9, 10}


def test_a_record_where_a_lookup_placed_ordinals_is_older_than_those_after_them() -> None:
    """LOSS. Only a lookup took ordinals 5 to 8 for appended. Another client's record is at 6, and the target run
    extends over it: ordinals 9 and 10 were acknowledged at 9 and 10. An election removed them, and a late batch of
    ordinals 11 and 12 was appended at 9."""
    looked_up = Displaced(5, 8, 5, 2, by_look_up=True)
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 9, 9, 2, (looked_up,)))
    retake(play, 11, 11, 11, epoch=2)
    own = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(9, 2, 11, 0, 3))
    asked = one(read(play, play.ask_target(11, epoch=3), (2, 9), own=own, others=((6, 7),)), AskSuperseded)
    keys: dict[int, bytes] = dict.fromkeys((5, 6, 7, 8, 9, 10), b"a")
    answer = judged(asked, keys, (6, b"a", 2, -1), (9, b"b", 3, 11), (10, b"b", 3, 12))
    assert again(answer) == {9, 10}


def test_displaced_ordinals_are_recorded_with_their_own_places() -> None:
    """LOSS. A newer record of the key of ordinals 5 and 7 is at 9. The next election removes it, and the older one at 6
    is left. It supersedes ordinal 5, but not ordinal 7."""
    play = opened(BEGUN[0], *APART)
    retake(play, 11, 12, 11, epoch=2)
    effects = read(play, play.ask_target(10, epoch=3), (1, 7), own=AFTER_LOSS, others=((6, 7), (9, 10)))
    asked = one(effects, AskSuperseded)
    keys: dict[int, bytes] = dict.fromkeys((5, 6, 7, 8, 9, 10), b"a")
    play.bind_all(equal(play, bound(play, play.tell(judged(asked, keys, (6, b"a", 1, -1), (9, b"a", 3, -1)))), 10))
    play.tell(TargetMoved(5))
    effects = read(play, play.ask_target(9, epoch=5), (3, 9), own=AFTER_LOSS, others=((6, 7),))
    asked = one(effects, AskSuperseded)
    assert again(judged(asked, keys, (6, b"a", 1, -1))) == {6, 7, 8, 9, 10}


def test_a_record_that_the_target_refused_is_not_superseded_by_one_that_was_written_instead() -> None:
    """Ordinals 5 and 6 were refused. Another client wrote at offset 5, and a broker that had forgotten the
    producer accepted ordinal 7 at offset 6. The leader epoch is the same, and the log has no empty offsets: ordinals 5
    and 6 were never in it."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1))
    retake(play, 5, 5, 5, epoch=1)
    own = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(6, 1, 7, 0, 1))
    effects = read(play, play.ask_target(7, epoch=1), (1, 7), own=own, others=((5, 6),))
    asked = one(effects, AskSuperseded)
    assert again(judged(asked, {6: b"key"}, (5, b"key", 1, -1), (6, b"other", 1, 7))) == {5, 6}
