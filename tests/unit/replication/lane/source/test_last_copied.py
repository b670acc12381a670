"""The last copied record of which the ledger knows the source epoch, and the first copied record that is lost."""

from collections import deque

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import HoleFound, LaneHalted, SourceRun, Verdict
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, Chunk
from mirrord.replication.lane.source import last_copied, source_epochs, truncation
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.mark.parametrize(
    ("epochs", "known"),
    [
        (((0, 0), (11, -1)), (11, 0)),
        (((0, 0), (9, -1), (11, -1)), (9, 0)),
        (((0, -1), (9, 2), (11, -1)), (11, 2)),
        (((0, -1),), None),
    ],
)
def test_the_source_is_asked_about_the_record_before_an_unknown_epoch(
    epochs: tuple[tuple[int, int], ...], known: tuple[int, int] | None
) -> None:
    """LOSS. The source was truncated at offset 9. A holder resumed at ordinal 11 and ended before it copied a record,
    so the ledger does not know the epoch from there on. The next holder finds newer records of the key of ordinal 11
    and resumes at ordinal 12. A comparison reads epoch 1 from the source, but it cannot show that the copied records
    are of this epoch. Without the question, the new records at offsets 9 and 10 were never copied."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), epochs))
    play.begin("second")
    play.lane.next_ordinal = play.lane.resume_ordinal = play.lane.position = 12
    play.lane.history.found_epoch = (12, 1)
    assert last_copied.last_copied(play.lane) == known
    source_epochs.recall(play.lane)
    assert play.lane.epoch == (1 if known is None else -1)


@pytest.mark.parametrize(("start", "end", "lost"), [(3, 5, 5), (3, 6, 5), (3, 4, 4), (7, 7, 7), (8, 12, 10), (8, 9, 9)])
def test_the_first_lost_record_after_a_hole(start: int, end: int, lost: int) -> None:
    """FALSE TRUNCATION. Ordinals 0 to 2 are offsets 0 to 2, 3 to 5 are 5 to 7, 2 was copied again as 6, and 7 is offset
    10. Offsets 3, 4, 8 and 9 were skipped. If the source still has them, it has not lost them."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0), Run(3, 5)), (), ((0, 0), (3, 1))))
    runs = (Run(6, 2), Run(7, 10))
    play.fold(HoleFound(LANE, 1, 2, 2, 6, 7), SourceRun(LANE, 1, runs, (), ((6, 0), (7, 2))))
    play.begin("second")
    play.lane.next_ordinal = 9
    assert last_copied.first_lost(play.lane, start, end) == lost
    play.lane.position, play.lane.plan = 3, deque((Run(10, 12),))
    assert last_copied.first_lost(play.lane, start, end) == (3 if start == 3 else lost)  # it was to be copied again


def test_a_halt_names_the_first_lost_record() -> None:
    """LIE. The lane goes back to offset 8, where epoch 2 may have begun, but the first lost record is offset 10. The
    line of the halt named offsets 8 and 9 as well, although they had been skipped."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0), Run(8, 10)), (), ((0, 1), (8, 2))))
    play.begin("second")
    lane = play.lane
    lane.phase, lane.on_loss, lane.next_ordinal, lane.position = Phase.COPYING, "halt", 10, 12
    lane.seen.take_over([(0, 1), (8, 2)], 12)
    effects = truncation.fetch_diverged(
        lane, 0.0, Chunk(0, 0, 12, 12, 0, (), bytearray(), 0, 0, diverging_epoch=1, diverging_end=12)
    )
    assert "[10, 12)" in lane.halt.line
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, LaneHalted)
    assert (fact.start, fact.end) == (8, 12)


def test_records_of_unknown_epochs_after_a_hole_do_not_hide_those_before_them() -> None:
    """LOSS. Nothing asked whether the source still had any of the copied records."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (6, -1))))
    play.fold(HoleFound(LANE, 1, 2, 2, 10, 11), SourceRun(LANE, 1, (Run(10, 2), Run(11, 10)), (), ((10, 0),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 10
    play.lane.position = 2
    assert last_copied.furthest(play.lane) == (6, 0)
    play.lane.next_ordinal, play.lane.position = 11, 10
    assert last_copied.last_copied(play.lane) == (6, 0)


@pytest.mark.parametrize(("offset", "start"), [(4, 9), (5, 4), (6, 4)])
def test_where_a_log_diverges_after_a_hole_whose_records_are_gone(offset: int, start: int) -> None:
    """DOUBLED. Ordinals 4 and 5 are missing from the target, and the source has lost their records. The lane copied
    others at the same offsets. When the source had lost more records, the lane went back to the offset of ordinal 4.
    If the lane has not read the others yet, this is right."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (4, 1))))
    play.fold(HoleFound(LANE, 1, 4, 5, 6, 8), SourceRun(LANE, 1, (Run(6, 4), Run(8, 6)), (), ((6, 1),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 6
    play.lane.position = 4
    assert last_copied.divergence(play.lane, 0, 9) == 4
    play.fold(SourceRun(LANE, 2, (Run(6, offset),), (Verdict(6, 6, "truncated"),), ((6, 0),)))
    play.begin("third")
    play.lane.next_ordinal = play.lane.acked = 8
    play.lane.position = offset + 2
    assert last_copied.divergence(play.lane, 0, 9) == start


def replaced() -> Play:
    """Offsets 2 to 9 were copied as ordinals 0 to 7, and the target has lost them. Before any of them was copied again,
    the source lost them as well. The lane has copied three records of epoch 3 there as ordinals 8 to 10. Offset 5 is a
    transaction marker."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 2),), (), ((0, 0),)))
    play.fold(HoleFound(LANE, 1, 0, 7, 8, 16), SourceRun(LANE, 1, (Run(8, 2), Run(16, 10)), (), ((8, 0),)))
    play.fold(SourceRun(LANE, 1, (Run(8, 2),), (), ((8, 3),)))
    play.fold(SourceRun(LANE, 1, (Run(11, 6),), (Verdict(5, 6, "control"),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = play.lane.resume_ordinal = 11
    play.lane.position = 6
    return play


def test_the_source_is_not_asked_about_records_that_it_has_replaced() -> None:
    """DOUBLED. The source was asked about offset 9 of epoch 0. It answered that its epoch 0 ends at offset 2. So the
    lane took the records of epoch 3 for lost, and copied them again."""
    play = replaced()
    assert last_copied.last_copied(play.lane) == (5, 3)
    assert last_copied.left_at(play.lane, (5, 3), 11, 6) == (5, 3)
    play.lane.position = 2
    assert last_copied.furthest(play.lane) == (5, 3)


def test_records_that_the_source_has_replaced_do_not_determine_the_epoch_of_a_fetch() -> None:
    """DOUBLED. The fetch from offset 6 carried epoch 0, and the source answered that its epoch 0 ends at offset 2."""
    play = replaced()
    source_epochs.recall(play.lane)
    assert play.lane.epoch == 3


def test_a_later_epoch_at_a_higher_offset_replaces_nothing() -> None:
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (6, 1))))
    play.fold(HoleFound(LANE, 1, 2, 3, 10, 12), SourceRun(LANE, 1, (Run(10, 2), Run(12, 10)), (), ((10, 0), (12, 2))))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 11
    play.lane.position = 3
    assert last_copied.furthest(play.lane) == (10, 1)


def test_the_source_is_not_asked_about_records_in_whose_places_the_lane_has_read_others() -> None:
    """DOUBLED. Ordinals 4 to 9 are missing from the target. The source lost their records, too, before they were copied
    again, so the ledger does not say that it has lost them. The lane copied others of epoch 4 at offsets 4 and 5, and
    leapt to offset 20. It asked about offset 9 and epoch 1, went back to offset 4, and copied these records again."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (4, 1))))
    play.fold(HoleFound(LANE, 1, 4, 9, 10, 10), SourceRun(LANE, 1, (Run(10, 4),), (), ((10, 4),)))
    play.fold(SourceRun(LANE, 1, (Run(12, 20),), (Verdict(6, 20, "skipped"),), ((12, -1),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 12
    play.lane.position = 20
    assert last_copied.last_copied(play.lane) == (6, 4)
    play.lane.position = 3
    assert last_copied.furthest(play.lane) == (6, 4)


def test_the_source_is_asked_about_records_that_are_to_be_copied_again() -> None:
    """NEEDLESS HALT. Ordinals 8 and 9, with the highest offsets, are missing from the target and follow as 10 and 11.
    If the source log ended below them, there was nothing to ask about."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (8, 1))))
    play.fold(HoleFound(LANE, 1, 8, 9, 10, 12), SourceRun(LANE, 1, (Run(10, 8), Run(12, 10)), (), ((10, 1),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 10
    play.lane.position, play.lane.plan, play.lane.epoch = 8, deque((Run(12, 10),)), 0
    assert last_copied.besides_plan(play.lane) == (10, 1)


@pytest.mark.parametrize(("epoch", "suspected", "known"), [(0, -1, None), (0, 8, (10, 1)), (-1, -1, (8, 0))])
def test_the_source_is_asked_about_lost_records_only_if_it_seems_to_lack_them(
    epoch: int, suspected: int, known: tuple[int, int] | None
) -> None:
    """The target has lost ordinals 8 and 9, and they are copied again under the same ordinals."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (8, 1))))
    play.fold(HoleFound(LANE, 1, 7, 6, 8, 10), SourceRun(LANE, 1, (Run(8, 8), Run(10, 12)), (), ((8, 1),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 8
    play.lane.position, play.lane.plan, play.lane.epoch = 8, deque((Run(10, 12),)), epoch
    play.lane.history.suspected_position = suspected
    assert last_copied.besides_plan(play.lane) == known


@pytest.mark.parametrize(("offset", "epoch"), [(4, 0), (5, 4), (6, 4), (8, 4), (9, 1), (10, 1)])
def test_the_epoch_before_an_offset_is_that_of_the_record_that_was_read_last(offset: int, epoch: int) -> None:
    """LOSS. Ordinals 4 to 9 are missing from the target. The source lost the first four of their records, and has
    others of epoch 4 there. The epoch of the lost ones was taken for that of the others."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (4, 1))))
    runs = (Run(10, 4), Run(14, 10))  # the plan contains offsets 4 to 7
    play.fold(HoleFound(LANE, 1, 4, 9, 10, 14), SourceRun(LANE, 1, runs, (), ((10, 4), (14, 5))))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 12
    play.lane.position, play.lane.plan = 3, deque((Run(14, 10),))
    assert last_copied.before(play.lane, offset) == epoch


@pytest.mark.parametrize(("epoch", "known"), [(0, (1, 0)), (-1, None)])
def test_the_source_is_asked_about_a_refused_record(epoch: int, known: tuple[int, int] | None) -> None:
    """LOSS. The target had refused the record of offset 0. The source then lost all its records, and a rebuild could
    not determine those of ordinals 0 and 1. The record that the source has at offset 0 now was never copied."""
    play = Play.opened()
    play.fold(Quarantined(LANE, 1, 0, 1, 87, "refused", skip=True, epoch=epoch))
    play.fold(SourceRun(LANE, 1, (Run(0, 1),), (Verdict(0, 1, "rejected"),), ((0, 0),)))
    play.fold(SourceRun(LANE, 1, (Run(0, 1), Run(2, 1)), (), ((0, -1), (2, 3))), HoleFound(LANE, 1, 0, 1, 2, 2))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 2
    play.lane.position = 1
    assert last_copied.last_copied(play.lane) == known


@pytest.mark.parametrize(("epoch", "known"), [(3, (6, 3)), (-1, (2, 0))])
def test_the_source_is_asked_about_skipped_records(epoch: int, known: tuple[int, int]) -> None:
    """LOSS. An operator had skipped offsets 2 to 5, and a rebuild could not determine the records after them. If the
    source had lost the skipped records only, those that it had there now were never copied."""
    play = Play.opened()
    order = LaneSought(LANE, 2, 6, 0, Origin("ada@host", "broken", 0))
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)))
    run = SourceRun(LANE, 1, (Run(2, 6),), (Verdict(2, 6, "skipped"),), ((2, -1),))
    play.fold(order, SeekDone(LANE, 1, 2, 6, epoch), run)
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 4
    play.lane.position = 8
    assert last_copied.last_copied(play.lane) == known


@pytest.mark.parametrize(("epoch", "known"), [(3, (3, 3)), (1, (4, 1))])
def test_the_source_is_not_asked_about_a_refused_record_that_it_has_replaced(
    epoch: int, known: tuple[int, int]
) -> None:
    """A record of this epoch was copied from offset 2. Offset 3 is a transaction marker now, and was a refused record
    of epoch 1."""
    play = Play.opened()
    play.fold(Quarantined(LANE, 1, 3, 4, 87, "refused", skip=True, epoch=1))
    play.fold(SourceRun(LANE, 1, (Run(0, 2),), (), ((0, epoch),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = 1
    play.lane.position = 4
    assert last_copied.last_copied(play.lane) == known


@pytest.mark.parametrize(("verdicts", "start"), [((Verdict(0, 6, "compacted"),), 0), ((), 6)])
def test_records_before_the_first_copied_one_may_have_its_epoch(verdicts: tuple[Verdict, ...], start: int) -> None:
    """LOSS. The cleaner had removed the source records before offset 6. Then the source lost its epoch 2, which began
    before this offset, and had records of epoch 0 up to offset 10. The one at offset 5 was never copied."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 6),), verdicts, ((0, 2),)))
    play.begin("second")
    play.lane.next_ordinal = play.lane.acked = play.lane.resume_ordinal = 3
    play.lane.position = 9
    source_epochs.recall(play.lane)
    assert last_copied.divergence(play.lane, 0, 11) == start
