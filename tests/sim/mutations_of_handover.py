"""Mutations of the rules about holders before and after a lane's own attempt, about batches that may still be appended,
and about parts of the target log that have not been read or compared (`tests.sim.mutations`)."""

from typing import Any

import pytest

from mirrord.ledger.facts.core import Progress, TargetRun
from mirrord.replication.host import batch_verification
from mirrord.replication.lane import (
    difference,
    fast_handoff,
    in_flight,
    intake,
    lane_report,
    opening,
    rebuilding,
    resume_point,
    resuming,
    step,
    target_reading,
)
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Batch, Drained, Effects, EndAnswer, LaneRecord
from mirrord.replication.lane.source import truncation
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import in_doubt, look_back, unconfirmed_limit
from mirrord.replication.lane.transitions import Quiesce, RebuildMap, Resume


def a_position_passes_unread_parts(patch: pytest.MonkeyPatch) -> None:
    def position(lane: Lane) -> ResumePosition:
        known = lane.resume_position
        return ResumePosition(lane.acked, lane.expected, lane.log.end_epoch) if lane.acked > known.ordinal else known

    users = (lane_report, step, intake, truncation, opening, in_flight, resuming, unconfirmed_limit)
    for module in users:
        patch.setattr(module, "resume_position", position)


def batches_of_a_dead_connection_are_gone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_doubt, "leave_in_flight", lambda *_: None)


def at_once(patch: pytest.MonkeyPatch, name: str) -> None:
    """This function of `intake` never waits."""
    true = getattr(intake, name)

    def hasty(*arguments: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(in_doubt, "holds", lambda *_: False)
            true(*arguments)

    patch.setattr(intake, name, hasty)


def a_removed_record_is_leapt_over_at_once(patch: pytest.MonkeyPatch) -> None:
    at_once(patch, "_skip")


def acknowledged_means_own(patch: pytest.MonkeyPatch) -> None:
    """Records that were written since a takeover are not compared once the former holder can no longer write.

    As long as a lane waits for former holders before it gives their ordinals to other records, there is nothing that
    only this comparison finds.
    """
    a_removed_record_is_leapt_over_at_once(patch)
    true = opening.grant_bound

    def bound(lane: Lane, now: float, answer: Any) -> Effects:
        effects = true(lane, now, answer)
        lane.comparison.later_pending = False
        return effects

    patch.setattr(opening, "grant_bound", bound)


def any_leader_has_the_same_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resuming, "is_another_leader", lambda _: False)
    patch.setattr(rebuilding, "is_another_leader", lambda _: False)


def every_drain_is_clean(patch: pytest.MonkeyPatch) -> None:
    true = in_flight.drained

    def drained(lane: Lane, now: float) -> Effects:
        effects = true(lane, now)
        if lane.phase is Phase.DRAINED and effects:
            lane.clean = True
            return [effects[0], Drained(clean=True)]
        return effects

    patch.setattr(in_flight, "drained", drained)


def any_handoff_counts(patch: pytest.MonkeyPatch) -> None:
    def is_last(word: Progress | None, record: LaneRecord | None) -> bool:
        return word is not None and record is not None

    patch.setattr(fast_handoff, "is_last", is_last)
    true = fast_handoff.grant_bound

    def bound(lane: Lane, grant: int) -> Effects:
        if lane.takeover.fast_handoff is not None:
            lane.takeover.fast_handoff.grant = grant - 1
        return true(lane, grant)

    patch.setattr(fast_handoff, "grant_bound", bound)


def a_first_position_counts_forever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "_is_hearsay", lambda *_: False)


def every_holder_is_the_one_that_was_told_of(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "check_former_holder", lambda *_: True)


def a_record_that_was_never_written_counts_as_lost(patch: pytest.MonkeyPatch) -> None:
    async def unwritten(*_: Any) -> tuple[tuple[int, int], ...]:
        return ()

    patch.setattr(batch_verification, "unwritten", unwritten)


def a_record_that_was_not_sent_counts_as_lost(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(difference, "_is_unsent", lambda *_: False)
    patch.setattr(difference, "_is_unread", lambda *_: False)


def an_election_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resuming, "target_moved", lambda *_: [])


def a_leap_is_not_read(patch: pytest.MonkeyPatch) -> None:
    def leapt(lane: Lane, batch: Batch, base_offset: int) -> Effects:
        return note(lane, (TargetRun(lane.id, lane.grant, batch.first, base_offset, lane.log.end_epoch),))

    patch.setattr(in_flight, "leapt", leapt)


def what_follows_the_end_is_foreign(patch: pytest.MonkeyPatch) -> None:
    """Before the first produce request, own batches after the known end of the log are not looked for."""

    def confirmed(lane: Lane, answer: EndAnswer) -> Effects:
        if answer.error or answer.leader_epoch != lane.log.end_epoch or answer.end < lane.expected:
            lane.go(Resume(lane.limits.retry_s if answer.error else 0.0))
            return []
        return in_flight.go(lane, answer.end)

    patch.setattr(in_flight, "end_confirmed", confirmed)


def a_broker_remembers_forever(patch: pytest.MonkeyPatch) -> None:
    def remembers(lane: Lane) -> bool:
        return lane.log.entry is not None

    patch.setattr(resuming, "remembers", remembers)
    patch.setattr(fast_handoff, "remembers", remembers)


def a_lane_never_resumes(patch: pytest.MonkeyPatch) -> None:
    true = resuming.decide

    def decide(lane: Lane) -> Effects:
        if lane.grant > 1 or lane.sent:
            return halt(lane, "unexplained", "the lane does not resume", 0, 1)
        return true(lane)

    patch.setattr(resuming, "decide", decide)


def a_difference_is_final(patch: pytest.MonkeyPatch) -> None:
    def enter(lane: Lane, now: float, wanted: Any) -> Effects:
        del now, wanted
        return halt(lane, "unexplained", "target and source differ", 0, 1)

    patch.setitem(step.ENTER, RebuildMap, enter)


def a_hole_is_final(patch: pytest.MonkeyPatch) -> None:
    true = resume_point._bind_holes

    def bind(lane: Lane) -> Effects:
        if lane.log.holes:
            return halt(lane, "unexplained", "the log has a hole", 0, 1)
        return true(lane)

    patch.setattr(resume_point, "_bind_holes", bind)


def a_log_that_went_back_is_final(patch: pytest.MonkeyPatch) -> None:
    def begin(lane: Lane) -> Effects:
        return halt(lane, "unexplained", "the log went back", 0, 1)

    patch.setattr(look_back, "begin", begin)


def batches_in_flight_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """Before a resume, the lane does not wait for the answers to the batches in flight."""

    def enter(lane: Lane, now: float, wanted: Any) -> Effects:
        del wanted
        return resuming.enter(lane, now, Resume())

    patch.setitem(step.ENTER, Quiesce, enter)


def a_position_is_noted_after_own_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_reading, "_is_noted_after_others", lambda *_: False)
