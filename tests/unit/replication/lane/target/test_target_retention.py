"""The target has deleted its oldest records, also those above the resume position of a lane."""

import pytest

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
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


def resumed(
    last_sequence: int,
    log_start: int,
    end: int,
    *own: OwnBatch,
    others: tuple[tuple[int, int], ...] = (),
    ordinal: int = 10,
) -> tuple[Faulty, Effects]:
    """The next holder begins with a resume position after ordinal 9, at target offset 10. Return the effects of its
    scan of a log that begins at `log_start`. The broker remembers the last sequence."""
    play = opened(*BEGUN)
    retake(play, ordinal, ordinal, ordinal, epoch=1)
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(last_sequence, 1000)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    scan = one(play.tell(VisibleAnswer(play.lane.asked, 0, end, log_start)), AskScan)
    return play, play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own, others, False))


@pytest.mark.parametrize(("log_start", "end"), [(17, 17), (20, 20), (18, 20)])
def test_records_that_retention_has_deleted_are_not_missed(log_start: int, end: int) -> None:
    """NEEDLESS HALT. The lane appended ordinals 10 to 16. Then an operator empties the topic with DeleteRecords, or
    retention does; other clients may have written as well."""
    play, effects = resumed(16, log_start, end)
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (10, 16)
    effects = play.tell(CheckAnswer(check.question, 0, 10, 16, "unverifiable"))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 17)


def test_records_that_a_log_lacks_at_its_end_are_missed() -> None:
    """Retention deletes only the oldest records, so it did not delete ordinals 14 to 16."""
    _, effects = resumed(16, 12, 20, OwnBatch(12, 2, 12, 0, 1), others=((14, 20),))
    assert "remembers ordinal 16" in one(effects, Halted).line


def test_a_log_that_begins_at_0_has_deleted_nothing() -> None:
    _, effects = resumed(16, 0, 20, others=((0, 20),), ordinal=0)
    assert "remembers ordinal 16" in one(effects, Halted).line
