"""A batch of a former holder arrives after the source has deleted its records, and after the lane has assigned its
ordinals to other source offsets."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.difference import settles
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskEnd,
    AskRebuild,
    CheckAnswer,
    Chunk,
    FetchFrom,
    OwnBatch,
    RebuildAnswer,
    TargetMoved,
    Wake,
    Woken,
)
from mirrord.replication.lane.source import recorded_epochs
from mirrord.replication.lane.target.relocation_result import Located
from tests.sim import toy
from tests.unit.replication.lane.test_lost_again import told
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened

OUT_OF_RANGE = 1
LATE = (OwnBatch(0, 2, 0, 0, 1),)
"""Ordinals 0 and 1, which the former holder sent from offsets 9 and 10."""


def assigned_again() -> tuple[Faulty, AskCheck]:
    """The source has deleted offsets 9 to 16, its log ends at offset 17, and ordinal 0 is assigned to this offset. Then
    the late batch is found in the target log."""
    play = opened(SourceRun(LANE, 1, (Run(0, 9),), (), ((0, 0),)))
    play.take(None, cleanly=False)
    (fetch,) = [each for each in play.ask_target(0) if isinstance(each, FetchFrom)]
    told(play, play.tell(Chunk(fetch.question, OUT_OF_RANGE, 17, 17, 17, (), bytearray(), 0, 0)))
    assert (play.record.source_runs.offset_of(0), play.record.regiven) == (17, 0)
    assert play.record.verdicts.counts == {"expired": 8}
    play.tell(TargetMoved(2))
    effects = play.read(play.ask_target(2, epoch=2), LATE)
    play.bind_all(effects)
    return play, one(effects, AskCheck)


def checked(check: AskCheck, source_end: int, *replaced: tuple[int, int]) -> CheckAnswer:
    """The source log ends here, and does not have the records of these ordinals."""
    answer = CheckAnswer(check.question, 0, check.first, check.last, "unverifiable")
    return replace(answer, source_end=source_end, replaced=replaced)


def test_ordinals_at_the_end_of_the_source_log_are_searched_for_in_both_logs() -> None:
    """HALTED ("the source log ends at offset 17, below the position 19"). No holder can have copied offsets 17 and
    18."""
    play, check = assigned_again()
    play.bind_all(play.tell(checked(check, 17, (0, 2))))
    asked = one(play.read(play.ask_target(2, epoch=2), LATE), AskRebuild)
    located = Located((), (), (), 17, open=((0, 2),), source_start=17)
    effects = play.bind_all(play.tell(RebuildAnswer(asked.question, 0, LATE, located)))
    assert one(effects, AskEnd)
    effects = play.read(play.ask_target(2, epoch=2), LATE)
    assert (play.lane.phase, play.record.halted) == (Phase.COPYING, None)
    assert (one(effects, FetchFrom).position, play.lane.next_ordinal) == (17, 2)
    assert (0, 1) in [(hole.first, hole.last) for hole in play.record.holes]
    assert play.record.verdicts.counts == {"expired": 8}


@pytest.mark.parametrize("end", [16, 17, 18])
@pytest.mark.parametrize("has_policies", [False, True])
def test_a_lane_knows_which_ordinals_it_has_assigned_and_not_sent(end: int, *, has_policies: bool) -> None:
    """HALTED ("the source log ends at offset 17, below the position 19"). The ledger has no source epoch any more, so
    it does not show that no record was read after the deleted ones."""
    play, check = assigned_again()
    play.lane.has_policies = has_policies
    play.bind_all(play.tell(checked(check, end, (0, 2))))
    effects = play.read(play.ask_target(2, epoch=2, last=1), LATE)
    asked = one(effects, AskRebuild)
    assert (asked.first, asked.unread_from) == (0, 0)


def test_a_lane_with_policies_does_not_know_what_a_former_holder_has_sent() -> None:
    play, check = assigned_again()
    play.lane.has_policies = True
    play.lane.comparison.assigned_from = NEVER
    play.bind_all(play.tell(checked(check, 17, (0, 2))))
    assert play.record.halted is not None
    assert play.record.halted.line == "orders-0: the source log ends at offset 17, below the position 19"


def test_a_source_log_that_ends_below_the_offset_after_the_deleted_ones_has_lost_records() -> None:
    """LOST. The ledger said that the comparison had ended all doubt. After the source had grown and had deleted offsets
    17 and 18, the next holder assumed that they had been copied."""
    play, check = assigned_again()
    play.lane.comparison.assigned_from = NEVER  # a former holder has assigned the ordinals
    play.bind_all(play.tell(checked(check, 16, (0, 2))))
    halted = play.record.halted
    assert halted is not None
    assert halted.line == "orders-0: the source log ends at offset 16, below the position 19"
    play.take(None, cleanly=False)
    assert play.record.regiven == 0
    check = one(play.read(play.ask_target(2, epoch=2), LATE), AskCheck)
    play.bind_all(play.tell(replace(checked(check, -1), gone=((0, 2),))))
    assert one(play.read(play.ask_target(2, epoch=2), LATE), AskRebuild)


@pytest.mark.parametrize(
    ("epochs", "run", "source_end", "is_open"),
    [
        (((0, -1),), Run(0, 17), 17, True),
        (((0, -1),), Run(0, 17), 18, True),
        (((0, -1),), Run(0, 17), 16, False),
        (((0, 0),), Run(0, 17), 17, True),
        (((0, 0),), Run(0, 17), 16, True),
        (((0, 0),), Run(0, 17), -1, True),
        ((), Run(0, 17), 17, True),
        (((0, -1), (1, 0)), Run(1, 18), 17, True),
    ],
)
def test_what_a_former_holder_has_read_does_not_show_what_it_has_sent(
    epochs: tuple[tuple[int, int], ...], run: Run, source_end: int, *, is_open: bool
) -> None:
    """WRONG VERDICT. The former holder had read the first of these records, so their epoch was in the ledger, but it
    had not sent it. The ledger said that the source had lost them in an election."""
    play, check = assigned_again()
    play.lane.comparison.assigned_from = NEVER  # a former holder has assigned the ordinals
    play.fold(SourceRun(LANE, 2, (run,), (), epochs))
    answer = checked(check, source_end, (run.ordinal, 2))
    assert settles(play.lane, answer) is not is_open
    # If it got acknowledgements, it has sent them.
    play.fold(TargetRun(LANE, 2, 1, 1, 1, in_doubt_below=2))
    assert settles(play.lane, answer) is not (is_open and recorded_epochs.recorded_at(epochs, run.ordinal) == -1)


@pytest.mark.parametrize(
    ("assigned_from", "sent_below", "source_end", "is_open"),
    [(0, 0, 17, True), (0, 1, 17, True), (0, 1, -1, True), (0, 0, 16, True), (0, 2, 17, False), (0, 2, 16, False)],
)
def test_a_holder_that_assigned_the_ordinals_itself_knows_which_it_has_sent(
    assigned_from: int, sent_below: int, source_end: int, *, is_open: bool
) -> None:
    """WRONG VERDICT. The holder had read the first of these records, so their epoch was in the ledger, but it had not
    sent it. The ledger said that the source had lost them in an election."""
    play, check = assigned_again()
    play.fold(SourceRun(LANE, 2, (Run(0, 17),), (), ((0, 0),)))
    play.lane.comparison.assigned_from, play.lane.sent_below = assigned_from, sent_below
    assert settles(play.lane, checked(check, source_end, (0, 2))) is not is_open


@pytest.mark.parametrize("epochs", [((0, -1), (1, 1)), ((0, -1), (2, 1))])
def test_runs_of_a_former_holder_that_are_recorded_again_are_not_this_holders(
    epochs: tuple[tuple[int, int], ...],
) -> None:
    """LOST. The former holder had sent these records, and the source then lost them in an election."""
    play = opened(SourceRun(LANE, 1, (Run(0, 9),), (), epochs))
    play.take(None, cleanly=False)
    play.bind_all(play.ask_target(0))
    assert (play.record.regiven, play.lane.comparison.assigned_from) == (0, NEVER)


def test_an_assignment_that_failed_is_not_this_holders() -> None:
    play = opened(SourceRun(LANE, 1, (Run(0, 9),), (), ((0, 0),), True))
    play.take(None, cleanly=False)
    fetch = one(play.ask_target(0), FetchFrom)
    effects = play.tell(Chunk(fetch.question, OUT_OF_RANGE, 17, 17, 17, (), bytearray(), 0, 0))
    assert play.lane.comparison.assigned_from == 0
    wake = one(play.tell(AppendFailed(one(effects, Append).tag, play.record)), Wake)
    play.now = max(play.now, wake.at)
    play.bind_all(play.tell(Woken(wake.question)))
    assert (play.record.source_runs.offset_of(0), play.lane.comparison.assigned_from) == (9, NEVER)


def test_records_that_were_acknowledged_to_the_lane_itself_were_copied() -> None:
    play, check = assigned_again()
    play.lane.phase = Phase.COPYING
    assert settles(play.lane, checked(check, 17, (0, 2)))


def test_ordinals_are_compared_only_after_their_assignment_has_taken_effect() -> None:
    """LOST. The comparison was about the former assignment, and the ledger then said that it had ended the doubt about
    the new one."""
    play = opened(SourceRun(LANE, 1, (Run(0, 9),), (), ((0, 0),)))
    play.take(None, cleanly=False)
    fetch = one(play.ask_target(0), FetchFrom)
    assigned = play.tell(Chunk(fetch.question, OUT_OF_RANGE, 17, 17, 17, (), bytearray(), 0, 0))
    play.tell(TargetMoved(2))
    effects = play.read(play.ask_target(2, epoch=2), LATE)
    assert not [each for each in effects if isinstance(each, AskCheck)]
    play.bind_all([*assigned, *effects])
    play.tell(Woken(play.lane.asked))
    assert one(play.read(play.ask_target(2, epoch=2), LATE), AskCheck).epochs == ((0, -1),)


def test_all_ordinals_of_a_batch_from_which_the_source_removed_a_record_are_in_doubt() -> None:
    """WRONG MAP. The former holder had sent offsets 0 to 2 under ordinals 0 to 2. The source's log cleaner then removed
    offset 2, and retention deleted the rest. The ledger said that ordinal 2 is offset 3."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)))
    play.take(None, cleanly=False)
    fetch = one(play.ask_target(0), FetchFrom)
    data = bytearray(toy.encode(0, 3, [(offset, offset) for offset in (0, 1, 3)], newest_ms=1))
    play.bind_all(play.tell(Chunk(fetch.question, 0, 4, 4, 0, (), data, 0, len(data))))
    assert (play.record.source_runs.offset_of(2), play.record.regiven) == (3, 2)
    assert play.record.verdicts.counts == {"compacted": 1}
    play.tell(TargetMoved(2))
    late = (OwnBatch(0, 3, 0, 0, 1),)
    check = one(play.read(play.ask_target(3, epoch=2), late), AskCheck)
    play.bind_all(play.tell(replace(checked(check, 4), gone=((0, 3),))))
    assert play.lane.phase is Phase.REBUILDING


def test_ordinals_after_a_rebuilt_map_stay_in_doubt() -> None:
    """LOST. The former holder's next batch arrived after the map had been rebuilt from its first one. The ledger said
    that it held the records that follow in the rebuilt map, which the source had deleted."""
    play, check = assigned_again()
    play.bind_all(play.tell(checked(check, 17, (0, 2))))
    asked = one(play.read(play.ask_target(2, epoch=2), LATE), AskRebuild)
    located = Located((), (), (), 17, open=((0, 2),), source_start=17)
    play.bind_all(play.tell(RebuildAnswer(asked.question, 0, LATE, located)))
    assert (play.record.source_runs.offset_of(2), play.record.regiven) == (17, 2)
    assert (play.record.regiven_until, play.record.epochs) == (-1, ((0, -1),))
    later = (*LATE, OwnBatch(2, 2, 2, 0, 1))
    check = one(play.read(play.ask_target(4, epoch=2), later), AskCheck)
    assert (check.first, check.last) == (2, 3)
    play.bind_all(play.tell(replace(checked(check, 30), gone=((2, 4),))))
    assert one(play.read(play.ask_target(4, epoch=2), later), AskRebuild).first == 2
