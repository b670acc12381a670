"""Batches that were appended before the log was read for a resume position. That log did not show them: an election
brings back a log that has them."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import MapRebuilt, Rewound, SourceRun, TakeoverChecked, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    CheckAnswer,
    Chunk,
    Effects,
    FetchFrom,
    OwnBatch,
    TargetMoved,
)
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.evidence import note_earlier, reassigned_since
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

OTHERS = ((10, 13),)
# Ordinals 7 to 9, appended by the first holder in epoch 1.
CAME_BACK = (OwnBatch(7, 3, 7, 0, 1),)


def compared(play: Faulty, effects: Effects) -> AskCheck:
    """The leader of epoch 3 has ordinals 7 to 9. Its cleaner has removed the others."""
    asked = one(read(play, effects, (1, 10), own=CAME_BACK, others=OTHERS), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("between", 0, 6)]
    return one(play.tell(SupersededAnswer(asked.question, 0)), AskCheck)


@pytest.fixture
def play() -> Faulty:
    """The leader of epoch 2 has none of the lane's records, and the source has deleted those that were copied. The lane
    resumes at ordinal 0, and assigns it to source offset 11. Nothing is produced."""
    play = opened(*BEGUN)
    play.take(None, cleanly=False)
    asked = one(read(play, play.ask_target(13, epoch=2), (1, 10), own=(), others=OTHERS), AskSuperseded)
    effects = play.tell(SupersededAnswer(asked.question, 0))
    play.bind_all(effects)
    play.bind_all(play.tell(Chunk(one(effects, FetchFrom).question, 1, 17, 17, 11, (), bytearray(), 0, 0)))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 0, 11)
    return play


def test_a_batch_that_is_older_than_the_map_is_not_taken_for_the_records_in_the_map(play: Faulty) -> None:
    """LOSS. According to the map, the batch has source offsets 18 to 20. The source has records of a later epoch there,
    so the comparison could not show a difference. Offsets 11 to 17 were never copied."""
    play.tell(TargetMoved(3))
    check = compared(play, play.ask_target(13, epoch=3))
    play.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable", replaced=((7, 10),)))
    assert play.lane.phase is Phase.REBUILDING


def test_the_next_holder_does_not_take_it_for_them_either(play: Faulty) -> None:
    play.take(None, cleanly=False)
    check = compared(play, play.ask_target(13, epoch=3))
    play.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable", replaced=((7, 10),)))
    assert play.lane.phase is Phase.REBUILDING


def test_it_is_believed_if_its_records_are_the_ones_in_the_map(play: Faulty) -> None:
    play.tell(TargetMoved(3))
    check = compared(play, play.ask_target(13, epoch=3))
    play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=10))
    assert play.lane.phase is not Phase.REBUILDING


def earlier(position: ResumePosition, *own: OwnBatch, rewound: Rewound | None = None) -> tuple[tuple[int, int], ...]:
    play = opened(*BEGUN)
    if rewound is not None:
        play.fold(SourceRun(LANE, 1, (Run(8, 9),), (Verdict(8, 9, "expired"),), rewound=rewound))
    play.take(None)
    play.lane.resume_position = position
    note_earlier(play.lane, own)
    return play.lane.log.earlier


def test_a_batch_at_or_above_the_position_is_earlier_if_its_epoch_is() -> None:
    position = ResumePosition(5, 5, 3)
    assert earlier(position, OwnBatch(0, 5, 0, 0, 1), OwnBatch(5, 2, 5, 0, 3), OwnBatch(7, 1, 7, 0, 4)) == ()
    assert earlier(position, OwnBatch(0, 9, 0, 0, 2), OwnBatch(9, 1, 9, 0, 3)) == ((5, 9),)
    assert earlier(position, OwnBatch(0, 9, 0, 0, -1)) == ()
    assert earlier(ResumePosition(0, 0), OwnBatch(0, 9, 0, 0, 1)) == ()


def test_a_position_that_revoked_another_one_counts_too() -> None:
    rewound = Rewound(8, 8, 20, 6)
    assert earlier(ResumePosition(0, 0), OwnBatch(0, 9, 0, 0, 5), rewound=rewound) == ((8, 9),)
    assert earlier(ResumePosition(0, 0), OwnBatch(0, 9, 0, 0, 6), rewound=rewound) == ()


def test_what_a_rebuild_has_read_is_not_compared_because_of_an_older_position() -> None:
    """NEEDLESS HALT. With each new difference, the map was rebuilt from these ordinals on, too. If the source had lost
    other records since, their places were not known."""
    play = opened(*BEGUN)
    play.fold(SourceRun(LANE, 1, (Run(3, 4),), (), rewound=Rewound(3, 3, 20, 6)), SourceRun(LANE, 1, (Run(3, 5),)))
    found = MapRebuilt(LANE, 1, 3, 6, 7, leader_epoch=7, found_epochs=((3, 5),))
    play.fold(found, SourceRun(LANE, 1, (Run(7, 20),)))
    play.take(None)
    play.lane.resume_position = ResumePosition(7, 20, 7)
    read = OwnBatch(3, 4, 3, 0, 5), OwnBatch(7, 2, 7, 0, 7)
    note_earlier(play.lane, read)
    assert play.lane.log.earlier == ()
    play.fold(SourceRun(LANE, play.record.grant, (Run(5, 40),), (), rewound=Rewound(5, 5, 20, 8)))
    note_earlier(play.lane, read)
    assert play.lane.log.earlier == ((5, 9),)


def test_the_leader_that_had_none_of_the_ordinals_may_be_later_than_the_position() -> None:
    rewound = replace(Rewound(8, 8, 20, 3), log_epoch=6)
    assert earlier(ResumePosition(0, 0), OwnBatch(0, 9, 0, 0, 5), rewound=rewound) == ((8, 9),)
    assert earlier(ResumePosition(0, 0), OwnBatch(0, 9, 0, 0, 6), rewound=rewound) == ()


@pytest.fixture
def copied() -> Faulty:
    """Ordinals 0 to 9 were assigned to source offsets 11 to 20 while the leader of epoch 2 had none of the lane's
    records, and were acknowledged. A comparison has found that they are the records in the map. The leader of epoch 3
    has lost them."""
    play = opened(*BEGUN)
    rewound, gone = Rewound(0, 0, 13, 2), Verdict(0, 11, "expired")
    play.fold(SourceRun(LANE, 1, (Run(0, 11),), (gone,), ((0, 0),), regiven=True, rewound=rewound))
    play.fold(TargetRun(LANE, 1, 0, 13, 2), TakeoverChecked(LANE, 1, 0, 9, "equal"))
    mark = progress_at(10, state="copying", epoch=2)
    play.take(replace(mark, grant=play.record.grant, target_offset=23, source_offset=21, rewinds=1))
    return play


def compared_again(play: Faulty) -> AskCheck:
    """The leader has ordinals 7 to 9. Its cleaner has removed those before them."""
    asked = one(read(play, play.ask_target(13, epoch=3), (1, 10), own=CAME_BACK, others=OTHERS), AskSuperseded)
    return one(play.tell(SupersededAnswer(asked.question, 0)), AskCheck)


def test_acknowledged_records_are_compared_if_the_log_has_earlier_batches_of_their_ordinals(copied: Faulty) -> None:
    """LOSS. The lane took the batch of ordinals 7 to 9 for the acknowledged records of source offsets 18 to 20."""
    check = compared_again(copied)
    assert check.first <= 7
    assert (check.last, check.start) == (9, 7)
    copied.tell(CheckAnswer(check.question, 0, check.first, check.last, "different"))
    assert copied.lane.phase is Phase.REBUILDING


def test_records_that_a_policy_may_have_changed_are_not_taken_for_those_of_an_earlier_batch(copied: Faulty) -> None:
    """FALSE MAP. With policies, the lane did not doubt what the target holds, because no other batch could arrive."""
    copied.lane.has_policies = True
    check = compared_again(copied)
    assert check.reassigned == ((7, 10),)
    copied.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable", gone=((7, 10),)))
    assert copied.lane.phase is Phase.REBUILDING


def test_records_that_the_source_has_deleted_are_not_taken_for_those_of_an_earlier_batch(copied: Faulty) -> None:
    """FALSE MAP. The source has neither the records in the map nor those of the batch. The ledger said that the target
    has those in the map."""
    check = compared_again(copied)
    copied.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable", gone=((7, 10),)))
    assert copied.lane.phase is Phase.REBUILDING


def test_a_rebuilt_map_has_the_records_of_earlier_batches(copied: Faulty) -> None:
    """FALSE LOSS. The map was rebuilt because of the batch, so its records are those in the map. When the source had
    deleted them, the ledger said that nothing shows which records the target has."""
    copied.fold(SourceRun(LANE, 2, (Run(8, 5),)), MapRebuilt(LANE, 2, 8, 9, 10), SourceRun(LANE, 2, (Run(10, 21),)))
    assert list(reassigned_since(copied.record, CAME_BACK, 10)) == [(7, 8)]
    copied.fold(SourceRun(LANE, 2, (Run(9, 30),), rewound=Rewound(9, 9, 20, 4)))
    assert list(reassigned_since(copied.record, CAME_BACK, 10)) == [(7, 8), (9, 10)]


def test_a_later_rebuild_does_not_say_what_the_target_has_under_lower_ordinals(copied: Faulty) -> None:
    """LIE. The map was rebuilt from ordinal 7 on, ordinal 8 was then assigned to another record, and the map was
    rebuilt from ordinal 9 on. The reassignment of ordinal 8 was taken for one before its rebuild."""
    copied.fold(SourceRun(LANE, 2, (Run(7, 5),)), MapRebuilt(LANE, 2, 7, 9, 10))
    copied.fold(SourceRun(LANE, 2, (Run(8, 30),), rewound=Rewound(8, 8, 20, 4)), MapRebuilt(LANE, 2, 9, 9, 10))
    assert list(reassigned_since(copied.record, CAME_BACK, 10)) == [(8, 9)]
    copied.fold(MapRebuilt(LANE, 2, 8, 9, 10))
    assert list(reassigned_since(copied.record, CAME_BACK, 10)) == []


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (OwnBatch(7, 3, 7, 0, 1), [(7, 8), (9, 10)]),
        (OwnBatch(7, 3, 7, 0, 2), [(8, 9)]),
        (OwnBatch(7, 3, 7, 0, 3), [(7, 10)]),
        (OwnBatch(7, 3, 7, 0, 4), []),
        (OwnBatch(10, 2, 10, 0, 3), [(11, 12)]),
    ],
    ids=["first", "second", "neither", "since", "lacked, and behind"],
)
def test_a_rebuilt_map_has_only_the_batches_that_were_in_the_log(
    copied: Faulty, own: OwnBatch, others: list[tuple[int, int]]
) -> None:
    """LIE. The log of epoch 4 had ordinals 7 and 9 in batches of epoch 2, and ordinal 8 in one of epoch 1. A log that
    comes back later has batches of the same ordinals that the rebuild had not read."""
    found = ((7, 2), (8, 1), (9, 2), (10, -1), (11, 4))
    copied.fold(MapRebuilt(LANE, 2, 7, 10, 11, leader_epoch=4, found_epochs=found))
    assert list(reassigned_since(copied.record, (own,), 10)) == others
