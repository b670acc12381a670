"""The target has deleted its oldest records, also those above the resume position of a lane."""

import pytest

from mirrord.ledger.facts.core import TargetRun
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskScan,
    CheckAnswer,
    Effects,
    EndAnswer,
    Halted,
    OwnBatch,
    ProducerEntry,
    ProducersAnswer,
    ScanAnswer,
    VisibleAnswer,
)
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


def resumed(
    last_sequence: int,
    log_start: int,
    end: int,
    *own: OwnBatch,
    others: tuple[tuple[int, int], ...] = (),
    ordinal: int = 10,
    compacts: bool = False,
    placed: tuple[tuple[int, int], ...] = (),
) -> tuple[Faulty, Effects]:
    """The next holder begins with a resume position after ordinal 9, at target offset 10. Return the effects of its
    scan of a log that begins at `log_start`. The broker remembers the last sequence. The former holder had recorded
    that it appended the ordinals and those that follow at the target offsets `placed`."""
    play = opened(*BEGUN)
    for placed_ordinal, target_offset in placed:
        play.fold(TargetRun(play.lane.id, 1, placed_ordinal, target_offset, 1))
    retake(play, ordinal, ordinal, ordinal, epoch=1)
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(last_sequence, 1000)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    scan = one(play.tell(VisibleAnswer(play.lane.asked, 0, end, log_start)), AskScan)
    return play, play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own, others, compacts))


def checked(play: Faulty, effects: Effects, first: int, last: int) -> Effects:
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (first, last)
    return play.tell(CheckAnswer(check.question, 0, first, last, "unverifiable"))


@pytest.mark.parametrize(("log_start", "end"), [(17, 17), (20, 20), (18, 20)])
def test_records_that_retention_has_deleted_are_not_missed(log_start: int, end: int) -> None:
    """NEEDLESS HALT. The lane appended ordinals 10 to 16. Then an operator empties the topic with DeleteRecords, or
    retention does; other clients may have written as well."""
    play, effects = resumed(16, log_start, end)
    play.bind_all(checked(play, effects, 10, 16))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 17)


def test_records_that_were_never_appended_are_copied_again() -> None:
    """LOSS. Ordinals 10 to 18 do not fit into offsets 10 to 13: the target refused some of them and accepted later
    ones. Retention has deleted what would show which."""
    play, effects = resumed(20, 14, 16, OwnBatch(14, 2, 19, 0, 1))
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 18)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 21, 10)


def test_other_clients_records_that_are_left_were_not_deleted() -> None:
    """LOSS. Ordinals 10 to 14 do not fit into offsets 10 and 11, which retention has deleted. Offsets 12 to 19 still
    hold records of other clients."""
    play, effects = resumed(20, 12, 26, OwnBatch(20, 6, 15, 0, 1), others=((12, 20),))
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 14)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 21, 10)


@pytest.mark.parametrize("own", [(), (OwnBatch(30, 1, 21, 0, 1),)])
def test_recorded_places_show_where_records_do_not_fit(own: tuple[OwnBatch, ...]) -> None:
    """LOSS. Ordinal 12 was at offset 25, so ordinals 12 to 20 do not fit into the deleted offsets 25 to 29, although
    all ordinals together fit into the deleted offsets 10 to 29. Ordinals 10 and 11 fit."""
    play, effects = resumed(21 if own else 20, 30, 31, *own, others=() if own else ((30, 31),), placed=((12, 25),))
    play.bind_all(checked(play, effects, 10, 21 if own else 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(12, 20)]


def test_records_that_were_never_appended_are_copied_again_if_none_is_left() -> None:
    """LOSS. As before, but retention has deleted all records of the lane."""
    play, effects = resumed(20, 16, 16)
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 20)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 21, 10)


def test_records_that_a_log_lacks_at_its_end_are_missed() -> None:
    """Retention deletes only the oldest records, so it did not delete ordinals 14 to 16."""
    _, effects = resumed(16, 12, 20, OwnBatch(12, 2, 12, 0, 1), others=((14, 20),))
    assert "remembers ordinal 16" in one(effects, Halted).line


def test_a_log_that_begins_at_0_has_deleted_nothing() -> None:
    _, effects = resumed(16, 0, 20, others=((0, 20),), ordinal=0)
    assert "remembers ordinal 16" in one(effects, Halted).line


@pytest.mark.parametrize("log_start", [10, 14])
def test_the_cleaner_may_have_removed_records_that_retention_cannot_have_deleted(log_start: int) -> None:
    """LOSS. Other clients have written newer records with the same keys at offsets 20 to 29, so the cleaner has removed
    ordinals 10 to 16, of which DeleteRecords had deleted four at most. Copies of the records would replace the newer
    ones, unless they are looked up."""
    _, effects = resumed(16, log_start, 30, others=((20, 30),), compacts=True)
    look_up = one(effects, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in look_up.missing] == [("between", 10, 16)]
