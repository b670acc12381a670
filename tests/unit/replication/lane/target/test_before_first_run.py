"""A target log that was truncated below the lane's first target run, although records before this run were in it."""

import pytest

from mirrord.ledger.facts.core import HoleFound, TargetRun
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from mirrord.replication.lane.target.target_scan import ordinal_before
from tests.unit.replication.lane.test_eighth_faults import again, judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


@pytest.fixture
def play() -> Faulty:
    """According to a lookup, ordinals 0 to 15 were appended below target offset 20, and then removed by the cleaner:
    another client had written newer records with their keys at 20 to 39. Ordinal 16 was acknowledged at 40."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 16, 40, 3))
    retake(play, 17, 41, 17, epoch=3)
    return play


def test_records_before_the_first_target_run_are_looked_up_if_the_log_lost_them(play: Faulty) -> None:
    """LOSS. The leader of epoch 5 has only another client's record, and a batch that arrived late. None of the newer
    records is left, and the key of ordinal 7 has no other value."""
    own = (OwnBatch(1, 3, 17, 0, 5),)
    asked = one(read(play, play.ask_target(4, epoch=5), (3, 0), own=own, others=((0, 1),)), AskSuperseded)
    assert again(judged(asked, {8: b"key"}, (0, b"key", 5, -1))) == {*range(17)} - {8}


def test_records_before_the_first_target_run_are_looked_up_if_the_leader_has_no_epoch_of_theirs(play: Faulty) -> None:
    """LOSS. As before, but the leader has no record of any epoch that the lane knows of."""
    own = (OwnBatch(1, 2, 17, 0, 5),)
    asked = one(read(play, play.ask_target(3, epoch=5), (2, 1), own=own, others=((0, 1),)), AskSuperseded)
    assert again(judged(asked, {8: b"key"}, (0, b"key", 4, -1))) == {*range(17)} - {8}


def test_records_before_the_first_target_run_are_looked_up_if_nothing_of_the_lane_is_left(play: Faulty) -> None:
    asked = one(read(play, play.ask_target(1, epoch=5), (3, 0), own=(), others=((0, 1),)), AskSuperseded)
    assert again(judged(asked, {}, (0, b"key", 5, -1))) == {*range(17)}


@pytest.mark.parametrize(("target_offset", "ordinal"), [(23, 0), (24, 0), (25, 1), (39, 15), (40, 16), (41, 17)])
def test_at_most_as_many_records_are_looked_up_as_the_log_lost_before_the_first_run(
    play: Faulty, target_offset: int, ordinal: int
) -> None:
    assert ordinal_before(play.lane, target_offset) == ordinal


@pytest.mark.parametrize(("last", "ordinal"), [(4, 5), (15, 16)])
def test_records_of_a_hole_were_not_before_the_first_run(play: Faulty, last: int, ordinal: int) -> None:
    play.fold(HoleFound(LANE, play.record.grant, 0, last, 17, 18 + last))
    assert ordinal_before(play.lane, 0) == ordinal


def test_a_record_that_is_older_than_those_of_the_first_run_supersedes_none_of_them(play: Faulty) -> None:
    """LOSS. The leader of epoch 5 has no record of epoch 3, and another client's records of epoch 1. These were in the
    log before ordinal 16 was acknowledged. Whether the records before the first run followed them is not known."""
    asked = one(read(play, play.ask_target(20, epoch=5), (1, 20), own=(), others=((0, 20),)), AskSuperseded)
    answer = judged(asked, {4: b"key", 16: b"key"}, (19, b"key", 1, -1))
    assert again(answer) == {*range(17)} - {4}
    play.bind_all(play.tell(answer))
    assert offsets(play, 0, 5) == [0, 1, 2, 3, 5, 6]


def test_records_before_the_first_run_that_another_replica_still_has_are_not_lost(play: Faulty) -> None:
    """LEDGER. If newer records superseded them, other records would get their ordinals."""
    own = (OwnBatch(0, 15, 0, 0, 3),)
    asked = one(read(play, play.ask_target(25, epoch=5), (3, 25), own=own, others=((20, 25),)), AskSuperseded)
    kinds = [(each.kind, each.first, each.last) for each in asked.missing]
    assert kinds == [("lost", 15, 15), ("lost", 16, 16), ("last", 17, 19)]
