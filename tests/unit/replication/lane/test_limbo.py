"""Bytes that may still arrive: until they cannot, a lane gives no ordinal another meaning; then it looks."""

import pytest

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import Reason, SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.correlation import ask, new_round
from mirrord.replication.lane.difference import settles
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.resume_point import must_wait_to_mend
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskEnd,
    AskScan,
    Bound,
    CheckAnswer,
    Effects,
    EndAnswer,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ScanAnswer,
    Start,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target import in_doubt
from mirrord.replication.lane.target.target_scan import Reading, begins_at, first_offset_of
from tests.unit.replication.lane.source.test_source_epochs import chunk, data, idle


def test_an_epoch_begins_when_nobody_else_may_be_writing() -> None:
    lane, _, fetch = idle()
    lane.late_writes.former_holder_until = 9.0
    effects = step(lane, 1.0, chunk(fetch, data((6, 1, 3, 0), (7, 1, 4, 0))))
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    assert (wake.at, lane.phase) == (9.0, Phase.WAITING)
    assert not [each for each in effects if isinstance(each, Append | Produce)]


def test_after_all_that_may_arrive_an_epoch_begins_at_once() -> None:
    for behind, waits in ((7, True), (6, False)):
        lane, _, fetch = idle()
        in_doubt.leave_in_flight(lane, 0.0, behind)
        effects = step(lane, 1.0, chunk(fetch, data((6, 1, 4, 0))))
        assert (lane.phase is Phase.WAITING) == waits
        assert bool([each for each in effects if isinstance(each, Append)]) == (not waits)


def test_other_records_than_were_sent_wait_for_those() -> None:
    for behind, waits in ((7, True), (6, False)):
        lane, _, fetch = idle()
        in_doubt.leave_in_flight(lane, 0.0, behind)
        effects = step(lane, 1.0, chunk(fetch, data((7, 1, 3, 0))))  # offset 6 was removed
        assert (lane.phase is Phase.WAITING) == waits
        assert bool([each for each in effects if isinstance(each, Append)]) == (not waits)


def test_a_removed_record_waits_for_a_former_holder_unless_the_ledger_names_it() -> None:
    for is_recorded in (False, True):
        lane, _, fetch = idle()
        lane.late_writes.former_holder_until = 9.0
        if is_recorded:
            assert lane.record is not None
            lane.record.source_runs.add(6, 7)
            lane.declared = 6
        effects = step(lane, 1.0, chunk(fetch, data((7, 1, 3, 0))))  # offset 6 was removed
        assert (lane.phase is Phase.WAITING) == (not is_recorded)
        assert bool([each for each in effects if isinstance(each, Produce)]) == is_recorded


def second_look(end: int) -> tuple[Lane, Effects]:
    """A former holder's time has run out, and the target log ends here; the lane has copied 6 records."""
    lane, _, _ = idle()
    lane.comparison.later_pending, lane.late_writes.former_holder_until, lane.comparison.later_from = (
        True,
        5.0,
        ResumePosition(2, 2, 1),
    )
    (asked,) = step(lane, 5.0, Woken(ask(lane)))
    assert isinstance(asked, AskEnd)
    return lane, step(lane, 5.0, EndAnswer(asked.question, 0, 1, end))


def test_records_written_while_a_former_holder_could_write_are_compared() -> None:
    lane, (check,) = second_look(6)
    assert isinstance(check, AskCheck)
    assert (check.first, check.last, check.start, check.end) == (2, 5, 2, 6)
    # An acknowledgement may have been for another holder's batch: until it is compared, the resume position stays
    # before it.
    assert resume_position(lane) == ResumePosition(2, 2, 1)
    step(lane, 5.0, CheckAnswer(check.question, 0, 2, 5, "equal"))
    assert not lane.comparison.later_pending
    assert resume_position(lane) == ResumePosition(6, 6, 1)


def test_the_last_records_of_a_former_holder_are_found() -> None:
    lane, (scan,) = second_look(8)
    assert isinstance(scan, AskScan)
    (asked,) = [each for each in step(lane, 5.0, scanned(scan, OwnBatch(6, 2, 6, 0))) if isinstance(each, AskEnd)]
    assert (lane.phase, lane.asked) == (Phase.RESUMING, asked.question)


def test_foreign_records_after_those_of_a_former_holder_are_skipped() -> None:
    lane, (scan,) = second_look(8)
    assert isinstance(scan, AskScan)
    (check,) = step(lane, 5.0, scanned(scan))
    assert isinstance(check, AskCheck)
    assert (check.last, check.end, lane.phase) == (5, 6, Phase.COPYING)


def test_the_second_look_waits_for_what_is_in_flight() -> None:
    lane, _, fetch = idle()
    assert step(lane, 5.0, chunk(fetch, data((6, 2, 3, 0))))
    lane.comparison.later_pending = True
    (asked,) = step(lane, 5.0, Woken(ask(lane)))
    assert isinstance(asked, AskEnd)
    (wake,) = step(lane, 5.0, EndAnswer(asked.question, 0, 1, 8))
    assert isinstance(wake, Wake)
    step(lane, 5.0, ProduceAnswer(lane.round, lane.in_flight[0], 0, 6))
    (check,) = step(lane, 6.0, Woken(wake.question))
    assert isinstance(check, AskCheck)
    assert check.end == 8


def test_another_leader_is_asked_again_where_its_log_ends() -> None:
    lane, _, _ = idle()
    lane.comparison.later_pending = True
    (asked,) = step(lane, 5.0, Woken(ask(lane)))
    assert isinstance(asked, AskEnd)
    (wake,) = step(lane, 5.0, EndAnswer(asked.question, 0, 2, 6))
    assert isinstance(wake, Wake)
    assert isinstance(step(lane, 6.0, Woken(wake.question))[0], AskEnd)


def scanned(scan: AskScan, *own: OwnBatch) -> ScanAnswer:
    return ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own)


def test_a_hole_is_mended_when_nobody_else_may_be_writing() -> None:
    lane, _, _ = idle()
    in_doubt.leave_in_flight(lane, 0.0, 6)
    found = Reading(6, ((2, 3),), (), None)
    assert must_wait_to_mend(lane, found)
    assert not must_wait_to_mend(lane, Reading(6, (), (), None))
    in_doubt.note_end_question(lane, 7.9)
    assert must_wait_to_mend(lane, found)
    in_doubt.note_end_question(lane, 8.0)
    assert not must_wait_to_mend(lane, found)
    assert not in_doubt.holds(lane, 0)


def test_the_resume_position_does_not_pass_what_is_not_read() -> None:
    lane, _, fetch = idle()
    (produce,) = [each for each in step(lane, 1.0, chunk(fetch, data((6, 1, 3, 0)))) if isinstance(each, Produce)]
    effects = step(lane, 1.0, ProduceAnswer(produce.round, produce.batches[0], 0, 9))
    (scan,) = [each for each in effects if isinstance(each, AskScan)]
    assert (scan.purpose, scan.start, scan.end) == ("gap", 6, 9)
    assert resume_position(lane) == ResumePosition(6, 6, 1)
    step(lane, 1.0, scanned(scan))
    assert resume_position(lane) == ResumePosition(7, 10, 1)


@pytest.mark.parametrize(("leader_epoch", "phase"), [(1, Phase.HALTED), (2, Phase.RESUMING)])
def test_an_own_batch_where_foreign_records_were_seen(leader_epoch: int, phase: Phase) -> None:
    """With the same leader it is a second copy. With a later one it is a batch after those that the log has lost."""
    lane, _, fetch = idle()
    (produce,) = [each for each in step(lane, 1.0, chunk(fetch, data((6, 1, 3, 0)))) if isinstance(each, Produce)]
    effects = step(lane, 1.0, ProduceAnswer(produce.round, produce.batches[0], 0, 9))
    (scan,) = [each for each in effects if isinstance(each, AskScan)]
    step(lane, 1.0, scanned(scan, OwnBatch(6, 1, 8, 0, leader_epoch)))
    assert lane.phase is phase


def test_the_second_look_begins_where_the_log_went_back_to() -> None:
    lane, _, _ = idle()
    lane.comparison.later_from = ResumePosition(2, 2, 1)
    begins_at(lane, (OwnBatch(0, 1, 1, 0), OwnBatch(1, 3, 2, 0)))
    assert first_offset_of(lane, lane.comparison.later_from) == 1


def found_open(regiven: int, *gone: tuple[int, int]) -> bool:
    """Whether a comparison of ordinals 2 to 5 leaves their records unknown, if the source lacks these offsets."""
    lane, record, _ = idle()
    record.regiven = regiven
    return not settles(lane, CheckAnswer(1, 0, 2, 5, "unverifiable", gone=gone))


def test_an_ordinal_that_may_belong_to_another_record_is_searched_for_in_the_source() -> None:
    assert found_open(4, (3, 6))
    assert found_open(1, (3, 6))  # the mark is the lowest of the ordinals in doubt


def test_an_ordinal_that_cannot_belong_to_another_record_is_trusted() -> None:
    assert not found_open(-1, (3, 6))  # nothing else was sent under them
    assert not found_open(4, (2, 4))  # the record in question is there still, and equal


@pytest.mark.parametrize(("regiven", "deleted_until", "is_open"), [(4, 6, True), (4, 4, False), (-1, 6, False)])
def test_what_the_target_has_deleted_may_have_been_another_record(
    regiven: int, deleted_until: int, *, is_open: bool
) -> None:
    lane, record, _ = idle()
    record.regiven = regiven
    answer = CheckAnswer(1, 0, 2, 5, "unverifiable", deleted_until=deleted_until)
    assert settles(lane, answer), "the lane is copying, so these records were acknowledged to it"
    lane.phase = Phase.RESUMING
    record.regiven = regiven
    lane.comparison.compared = 0
    assert settles(lane, answer) is not is_open
    lane.log.cleaned = True
    assert settles(lane, answer), "the map could not be rebuilt"


@pytest.mark.parametrize(
    ("earlier", "replaced", "is_open"),
    [((), (4, 6), False), ((2, 4), (4, 6), False), ((5, 9), (4, 6), True), ((0, 9), (2, 4), False)],
)
def test_what_the_source_lost_in_an_election_is_believed_unless_the_batch_is_older_than_the_map(
    earlier: tuple[int, int], replaced: tuple[int, int], *, is_open: bool
) -> None:
    lane, record, _ = idle()
    record.regiven = 4
    lane.log.earlier = (earlier,) if earlier else ()
    assert settles(lane, CheckAnswer(1, 0, 2, 5, "unverifiable", replaced=(replaced,))) is not is_open


def test_records_compared_in_this_round_are_not_doubted_again() -> None:
    """The ledger does not have the first comparison yet, and the source deletes the records before the second one."""
    lane, record, _ = idle()
    record.regiven, lane.comparison.later_pending = 2, True
    assert settles(lane, CheckAnswer(1, 0, 2, 4, "equal"))
    assert settles(lane, CheckAnswer(1, 0, 2, 4, "unverifiable", gone=((2, 5),)))
    assert not settles(lane, CheckAnswer(1, 0, 2, 5, "unverifiable", gone=((2, 6),)))
    new_round(lane)
    assert not settles(lane, CheckAnswer(1, 0, 2, 4, "unverifiable", gone=((2, 5),)))


def test_a_comparison_after_which_nothing_else_can_follow_settles_all_later_ordinals() -> None:
    """The source deletes a record between its acknowledgement and the comparison that follows: the map is not rebuilt,
    because the fact about the first comparison leaves nothing open."""
    lane, record, _ = idle()
    record.regiven = 2
    assert settles(lane, CheckAnswer(1, 0, 2, 4, "equal"))
    assert settles(lane, CheckAnswer(1, 0, 5, 5, "unverifiable", gone=((5, 6),)))


def test_until_the_first_acknowledgement_is_compared_later_ordinals_may_be_other_records() -> None:
    lane, _, _ = idle()
    assert [in_doubt.was_given(lane, ordinal) for ordinal in (5, 6, 7)] == [True, False, False]
    lane.comparison.first_ack_pending = True
    assert [in_doubt.was_given(lane, ordinal) for ordinal in (5, 6, 7)] == [True, True, True]


@pytest.mark.parametrize("regiven", [-1, 8])
def test_a_comparison_follows_where_other_records_may_have_been_sent(regiven: int) -> None:
    """Also after a clean handover: otherwise each later holder would compare everything from there on."""
    lane, record, _ = idle()
    record.regiven, record.grant, record.replicator = regiven, 1, "former"
    following = Lane(lane.id, "orders", "eu.orders", 0, "p", True, lane.rebuild)
    step(following, 0.0, Start(record, None, "next", 0.0, True))
    record.grant, record.replicator = 2, "next"
    step(following, 0.0, Bound(following.facts_tag, (True,), record))
    assert following.comparison.first_ack_pending == (regiven >= 0)


@pytest.mark.parametrize("is_dirty", [False, True])
def test_ordinals_that_may_have_been_sent_with_another_record_are_recorded_with_the_run(is_dirty: bool) -> None:
    lane, _, fetch = idle()
    lane.comparison.later_pending = is_dirty
    appends = [each for each in step(lane, 1.0, chunk(fetch, data((7, 1, 3, 0)))) if isinstance(each, Append)]
    (run,) = appends[0].facts
    assert isinstance(run, SourceRun)
    assert run.regiven == is_dirty
    assert in_doubt.was_given(lane, 5)  # it was sent before


@pytest.mark.parametrize(
    ("reason", "resumed_at", "is_compared"),
    [("expired", 6, True), ("compacted", 6, True), ("control", 6, False), ("expired", 4, False)],
)
def test_the_first_batch_after_deleted_records_is_compared(
    reason: Reason, resumed_at: int, *, is_compared: bool
) -> None:
    """A holder that has left the lane cleanly may have sent the deleted records under the next ordinal."""
    lane, _, _ = idle()
    lane.acked, lane.resumed_at, lane.takeover.opened_here = 6, ResumePosition(resumed_at, 6, 1), False
    in_doubt.note_deleted(lane, 6, [Verdict(6, 9, reason)])
    assert in_doubt.assign(lane, (Run(6, 9),)) == is_compared


@pytest.mark.parametrize("is_former_round", [False, True])
def test_the_rest_of_a_throttled_connection_is_awaited(*, is_former_round: bool) -> None:
    lane, _, fetch = idle()
    (produce,) = [each for each in step(lane, 1.0, chunk(fetch, data((6, 1, 3, 0)))) if isinstance(each, Produce)]
    number = produce.round - is_former_round
    step(lane, 1.0, ProduceAnswer(number, produce.batches[0], ErrorCode.NETWORK_EXCEPTION, -1, 20.0))
    assert lane.late_writes.until == 21.0 + lane.limits.request_timeout_s
