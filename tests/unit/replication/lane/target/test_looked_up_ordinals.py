"""Ordinals at the end of a compacted target log that only a lookup takes for appended: later records of another client
have their keys."""

import msgspec
import pytest

from mirrord.ledger.facts.core import Displaced, HoleFound, LaneFact, Rewound, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskCheck, CheckAnswer, Effects, OwnBatch, TargetMoved
from mirrord.replication.lane.target import displaced_ordinals
from mirrord.replication.lane.target.missing_records import pieces, without_record
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.target.test_out_of_order import resumed
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

OWN = (OwnBatch(0, 5, 0, 0, 1),)
FOREIGN = ((8, 12),)
"""The offsets 5 to 7 are empty."""


def looked_up(play: Faulty) -> AskSuperseded:
    return one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskSuperseded)


def copying(*facts: LaneFact, until: int = 7) -> Faulty:
    """A holder without a resume position finds that ordinals from 5 up to `until` were appended."""
    play = opened(*(facts or BEGUN))
    play.take(None, cleanly=False)
    asked = looked_up(play)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 5, 7)]
    effects = play.tell(SupersededAnswer(asked.question, 0, (), until))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=until)))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, until)
    return play


def lost_from(play: Faulty, end: int) -> Effects:
    """An election removes everything from this target offset on."""
    play.tell(TargetMoved(3))
    others = tuple((start, min(behind, end)) for start, behind in FOREIGN if start < end)
    return read(play, play.ask_target(end, epoch=3), (1, end), own=OWN, others=others)


def copied(play: Faulty) -> Faulty:
    """Ordinal 7, which follows them, was acknowledged at target offset 12. Another holder takes the lane."""
    play.fold(TargetRun(LANE, play.lane.grant, 7, 12, 1))
    rewinds, grant = len(play.record.rewinds), play.record.grant
    position = msgspec.structs.replace(progress_at(8, state="copying"), grant=grant, rewinds=rewinds)
    play.take(msgspec.structs.replace(position, target_offset=13), cleanly=False)
    return play


@pytest.mark.parametrize(
    ("own", "place"),
    [
        ((*OWN, OwnBatch(6, 1, 5, 0, 1)), 6),
        ((OwnBatch(0, 3, 0, 0, 1), OwnBatch(3, 3, 3, 0, 1)), 5),  # in one batch with earlier ordinals
    ],
)
def test_other_records_do_not_get_the_ordinals_that_another_replica_still_has(
    own: tuple[OwnBatch, ...], place: int
) -> None:
    """LEDGER. The log of the next leader ends where ordinal 7 was. Its cleaner has not removed ordinal 5, so only the
    ordinals after it may be assigned to other records."""
    play = copied(copying())
    asked = one(read(play, play.ask_target(12, epoch=3), (1, 12), own=own, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 6, 6), ("lost", 7, 7)]
    resumed(play, play.tell(SupersededAnswer(asked.question, 0)))
    assert [play.record.source_runs.offset_of(each) for each in (5, 6)] == [5, 8]
    assert [play.record.target_runs.offset_of(each) for each in (4, 5)] == [4, place]


def test_they_get_other_records_if_no_replica_has_them() -> None:
    play = copied(copying())
    asked = one(read(play, play.ask_target(12, epoch=3), (1, 12), own=OWN, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 5, 6), ("lost", 7, 7)]
    resumed(play, play.tell(SupersededAnswer(asked.question, 0)))
    assert [play.record.source_runs.offset_of(each) for each in (4, 5)] == [4, 8]


@pytest.mark.parametrize("facts", [BEGUN, BEGUN[:1]])
def test_they_are_recorded_as_displaced(facts: tuple[LaneFact, ...]) -> None:
    play = copying(*facts)
    assert play.record.displaced == (Displaced(5, 6, 5, 1, by_look_up=True),)
    assert [play.record.target_runs.offset_of(each) for each in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("end", [8, 10])
def test_they_are_looked_up_again_if_an_election_removes_newer_records(end: int) -> None:
    """LOSS. Without the newer record, nothing shows that the target ever had the record of ordinal 6."""
    asked = one(lost_from(copying(), end), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 5, 6)]


def test_the_next_holder_looks_them_up_again() -> None:
    """LOSS. The position that was saved is above them."""
    play = copying()
    play.take(msgspec.structs.replace(progress_at(7, state="copying"), target_offset=12), cleanly=False)
    asked = one(read(play, play.ask_target(6, epoch=3), (1, 6), own=OWN, others=()), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 5, 6)]


def test_they_are_not_looked_up_again_while_the_log_is_unchanged() -> None:
    play = copying()
    play.tell(TargetMoved(3))
    play.bind_all(read(play, play.ask_target(12, epoch=3), (1, 12), own=OWN, others=FOREIGN))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 7)


def test_they_may_have_had_offsets() -> None:
    """Unlike those whose offsets other records have."""
    play = copying()
    assert displaced_ordinals.reached(play.lane, 5, 3) == 8
    play.fold(TargetRun(LANE, play.lane.grant, 7, 7, 1, (Displaced(5, 6, 5, 1),)))
    assert displaced_ordinals.reached(play.lane, 5, 3) == 10


@pytest.mark.parametrize(
    ("rewinds", "until"),
    [
        ((), 8),
        ((Rewound(5, 5, 8, 1),), 5),
        ((Rewound(6, 5, 7, 1),), 7),
        ((Rewound(6, 5, 7, 1), Rewound(9, 9, 8, 1)), 7),
        ((Rewound(9, 9, 8, 1),), 8),
        # The log has lost its end since, and the lane has written there again.
        ((Rewound(5, 5, 8, 1), Rewound(9, 5, 6, 1)), 7),
        # Another leader's log may have lost its end, and the ledger has a lower offset. It shows nothing otherwise.
        ((Rewound(5, 5, 8, 0),), 8),
    ],
)
def test_records_that_got_these_ordinals_later_were_not_at_earlier_offsets(
    rewinds: tuple[Rewound, ...], until: int
) -> None:
    """LOSS. They were never copied."""
    runs = (SourceRun(LANE, 1, (Run(each.first, 20 + each.first),), rewound=each) for each in rewinds)
    play = opened(*BEGUN, *runs)
    play.take(None, cleanly=False)
    effects = read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN)
    missing = [(part.first, part.last) for each in effects if isinstance(each, AskSuperseded) for part in each.missing]
    assert missing == ([(5, until - 1)] if until > 5 else [])


def test_ordinals_whose_records_are_not_known_are_not_looked_up() -> None:
    """ORDER. The ledger maps them to the same source offsets as the ordinals that follow."""
    unknown = HoleFound(LANE, 1, 5, 6, 7, 7)
    play = opened(*BEGUN, unknown, SourceRun(LANE, 1, (Run(7, 5),)))
    missing = Missing("last", 4, 8, 4, has_room=True)
    assert list(pieces(play.record, missing)) == [(4, 4, 1), (7, 5, 2)]
    assert list(without_record(play.record, missing)) == [5, 6]


def test_they_are_recorded_once() -> None:
    play = copying()
    runs = list(play.record.target_runs)
    play.take(None, cleanly=False)
    asked = looked_up(play)
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, (), 7)))
    assert play.record.displaced == (Displaced(5, 6, 5, 1, by_look_up=True),)
    assert list(play.record.target_runs) == runs


MOVED = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(3, 3, 2, 0, 1))
"""The log of another leader: ordinals 0 to 4 with another client's record among them. The offsets 6 and 7 are empty."""


def test_they_stay_recorded_if_earlier_batches_have_moved() -> None:
    """LOSS. A run supersedes all displaced ordinals above it. After the next loss, nothing would show that the records
    of ordinals 5 and 6 are not in the log."""
    play = copying()
    play.take(None, cleanly=False)
    others = ((2, 3), *FOREIGN)
    asked = one(read(play, play.ask_target(12), (1, 12), own=MOVED, others=others), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 5, 6)]
    effects = play.tell(SupersededAnswer(asked.question, 0, (), 7))
    play.bind_all(effects)
    assert play.record.displaced == (Displaced(5, 6, 5, 1, by_look_up=True),)
    assert [play.record.target_runs.offset_of(each) for each in (1, 2, 4)] == [1, 3, 5]


@pytest.mark.parametrize("again", [(), ((5, 5),)])
def test_they_stay_recorded_between_batches_if_earlier_ones_have_moved(again: tuple[tuple[int, int], ...]) -> None:
    """LOSS. The log has enough empty offsets for them, so the cleaner may have removed them. The ledger shows that only
    a lookup took them for appended."""
    play = copying()
    play.fold(TargetRun(LANE, play.lane.grant, 7, 12, 1))
    play.take(None, cleanly=False)
    own, others = (*MOVED, OwnBatch(12, 1, 7, 0, 1)), ((2, 3), *FOREIGN)
    asked = one(read(play, play.ask_target(13), (1, 13), own=own, others=others), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("between", 5, 6)]
    assert asked.missing[0].has_room
    effects = play.tell(SupersededAnswer(asked.question, 0, again))
    effects += play.bind_all(effects)
    for check in [each for each in effects if isinstance(each, AskCheck)]:
        play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=8)))
    assert play.record.displaced == (Displaced(6 if again else 5, 6, 5, 1, by_look_up=True),)


def test_they_are_no_longer_recorded_if_the_log_has_them_again() -> None:
    play = copying()
    play.take(None, cleanly=False)
    own = (*MOVED, OwnBatch(6, 1, 5, 0, 1))
    asked = one(read(play, play.ask_target(12), (1, 12), own=own, others=((2, 3), *FOREIGN)), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 6, 6)]
    play.bind_all(play.tell(SupersededAnswer(asked.question, 0, (), 7)))
    assert play.record.displaced == (Displaced(6, 6, 5, 1, by_look_up=True),)


def test_all_records_for_which_the_log_has_room_are_looked_up() -> None:
    """STALE VALUES. Another client wrote newer values of 150,000 records, and the cleaner removed their copies."""
    play = opened(*BEGUN)
    play.take(None, cleanly=False)
    effects = read(play, play.ask_target(300_005), (1, 300_005), own=OWN, others=((150_005, 300_005),))
    asked = one(effects, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 5, 150_004)]
    resumed(play, play.tell(SupersededAnswer(asked.question, 0, (), 150_005)))
    assert play.lane.next_ordinal == 150_005
