"""Each rule that a lane follows at a broker (docs/explanation/broker-behaviour.md), switched off: the simulator must
notice.

A mutation replaces the one small function that implements the rule. `tests/sim/test_mutations.py` pins a seed for each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import pytest

from mirrord.ledger.facts.core import LaneFact, Progress, Reason
from mirrord.replication.lane import (
    difference,
    fast_handoff,
    in_flight,
    intake,
    opening,
    quarantine,
    rebuilding,
    resume_point,
    resuming,
    step,
)
from mirrord.replication.lane.dead_letter_signals import ParkAnswer
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.second_path import NOT_YET
from mirrord.replication.lane.signals import (
    Effects,
    EndAnswer,
    LaneRecord,
    Located,
    ProduceAccepted,
    ProduceAnswer,
    ProducerEntry,
    ProducersAnswer,
)
from mirrord.replication.lane.source import last_copied, recorded_epochs, source_epochs, truncation
from mirrord.replication.lane.source.epoch_cache import EpochCache
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import look_back, missing_ordinals, target_scan
from mirrord.replication.lane.target.evidence import next_by_entry, went_back
from mirrord.replication.lane.target.superseded_records import SupersededAnswer, SupersededJudge
from mirrord.replication.lane.transitions import Resume
from tests.sim import mutations_of_failover as failover
from tests.sim import mutations_of_handover as handover
from tests.sim import mutations_of_host as host
from tests.sim import mutations_of_rebuilds as rebuilds
from tests.sim import mutations_of_reuse as reuse
from tests.sim import mutations_of_seeks as seeks
from tests.sim import mutations_of_sequences as sequences
from tests.sim import mutations_of_transactions as beside
from tests.sim.host import Shape
from tests.sim.themes import FAILOVERS, THEMES, shape_named
from tests.sim.traps.setting import shape_with


class Mutation(NamedTuple):
    """A rule that is switched off."""

    rule: str
    switch_off: Callable[[pytest.MonkeyPatch], None]
    theme: str
    """The kind of world (`themes.THEMES`) in which the rule matters most, or two at once; empty: worlds of every
    kind."""
    beside: str = ""
    """A trap of these worlds, to which other clients then write in transactions."""
    drawn_from: tuple[str, ...] = tuple(THEMES)
    """The themes of the stories by which `make mutants` counts how often the mutation is noticed."""

    @property
    def shape(self) -> Shape | None:
        if self.beside:
            return shape_with(replace(shape_named(self.theme), others=2), (self.beside,))
        return shape_named(self.theme) if self.theme else None


def _blind_to_base_offset(patch: pytest.MonkeyPatch) -> None:
    true = in_flight.batch_answered

    def answered(state: Lane, now: float, answer: ProduceAnswer) -> Effects:
        expected = state.expected if answer.error == 0 else answer.base_offset
        return true(state, now, msgspec.structs.replace(answer, base_offset=expected))

    patch.setattr(in_flight, "batch_answered", answered)


def _blind_to_base_offsets_acknowledged_together(patch: pytest.MonkeyPatch) -> None:
    true = in_flight.batches_accepted

    def taken(state: Lane, now: float, accepted: ProduceAccepted) -> Effects:
        expected = state.expected
        for at, batch in enumerate(accepted.batches):
            accepted.base_offsets[at] = expected
            expected += batch.count
        return true(state, now, accepted)

    patch.setattr(in_flight, "batches_accepted", taken)


def _any_word_is_that_it_is_parked(patch: pytest.MonkeyPatch) -> None:
    true = quarantine.parking_answered

    def always_parked(state: Lane, now: float, answer: ParkAnswer) -> Effects:
        return true(state, now, msgspec.structs.replace(answer, trouble=""))

    patch.setattr(quarantine, "parking_answered", always_parked)


def _parked_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quarantine, "lettered_from", lambda _: 1 << 30)


def _full_window_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_flight, "window", lambda state: state.reach.batches)


def _no_hole_after_a_failure(patch: pytest.MonkeyPatch) -> None:
    true = in_flight._answer_in_doubt

    def doubted(*arguments: Any) -> Effects:
        effects = true(*arguments)
        arguments[0].log.must_read_log = False
        return effects

    patch.setattr(in_flight, "_answer_in_doubt", doubted)
    patch.setattr(resuming, "must_read", lambda _: False)


def _any_leader_will_do(patch: pytest.MonkeyPatch) -> None:
    def same_leader(state: Lane, answer: EndAnswer) -> bool:
        state.log.end_epoch = answer.leader_epoch
        return True

    patch.setattr(resuming, "same_leader", same_leader)


def _uncommitted_counts(patch: pytest.MonkeyPatch) -> None:
    """The wait alone, in a partition that others write too.

    If the lane is the only writer, "trust, then check" replaces the wait: everything above the resume position is then
    compared with the source first, a reader sees nothing above the high watermark, so the comparison cannot end before
    that covers it. There no seed fails unless the check is switched off as well. Foreign records are not compared: if
    they are above the resume position, only the wait keeps the lane from claiming an end that is not replicated.
    """
    patch.setattr(resuming, "covers", lambda *_: True)


def _no_entry_means_nothing_written(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resuming, "must_read", lambda _: False)


def _end_not_read_again(patch: pytest.MonkeyPatch) -> None:
    true = resume_point.copy

    def copy(state: Lane) -> Effects:
        effects = true(state)
        state.confirm_end = False
        return effects

    patch.setattr(resume_point, "copy", copy)


def _no_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resuming, "barrier_until", lambda _: 0.0)


def _went_back_is_lost(patch: pytest.MonkeyPatch) -> None:
    def copy_again(state: Lane) -> Effects:
        state.acked = state.trusted = next_by_entry(state)
        return resume_point.resume_at(state, state.acked)

    true = look_back.begin
    patch.setattr(look_back, "begin", lambda state: copy_again(state) if went_back(state) else true(state))


def _last_fact_wins(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(opening, "is_ours", lambda *_: True)
    true = step._bound

    def bound(state: Lane, now: float, signal: Any) -> Effects:
        return true(state, now, msgspec.structs.replace(signal, bound=(True,) * len(signal.bound)))

    patch.setattr(step, "_bound", bound)


def _produce_before_intent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_flight, "explained_below", lambda _: None)


def _no_resync(patch: pytest.MonkeyPatch) -> None:
    def enter(state: Lane, now: float, wanted: Resume) -> Effects:
        if state.phase is not Phase.SETTLING:
            return resuming.enter(state, now, wanted)
        effects = resuming.enter(state, now, Resume())
        state.stage = Stage.DONE
        state.resume_ordinal, state.log.end = state.acked, state.expected
        return [effects[0], *resume_point.copy(state)]

    patch.setitem(step.ENTER, Resume, enter)


def _trust_without_check(patch: pytest.MonkeyPatch) -> None:
    # Where no rule prevents it, the violation must be there to be found.
    handover.a_removed_record_is_leapt_over_at_once(patch)
    patch.setattr(resume_point, "must_check", lambda _: False)
    true = opening.grant_bound

    def bound(state: Lane, now: float, signal: Any) -> Effects:
        effects = true(state, now, signal)
        state.comparison.first_ack_pending = state.comparison.later_pending = False
        return effects

    patch.setattr(opening, "grant_bound", bound)


def _every_answer_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(step, "answers", lambda *_: True)
    patch.setattr(step, "settles", lambda *_: True)


def _what_is_copied_again_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(last_copied, "besides_plan", lambda _: None)


def _others_take_no_place(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_scan, "displaced_at", lambda *_: None)


def _any_leaders_word_counts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_scan, "is_later", lambda *_: False)


def _one_of_two_records_is_named(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(difference, "settles", lambda *_: True)


def _a_log_that_went_back_begins_where_it_did(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(target_scan, "first_offset_of", lambda _, position: position.target_offset)


def _no_epoch_after_a_resume(patch: pytest.MonkeyPatch) -> None:
    def recall(state: Lane) -> None:
        state.seen.begin(0, -1)
        state.epoch = -1

    patch.setattr(source_epochs, "recall", recall)


def _an_epoch_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source_epochs, "note_epoch", lambda *_: False)


def _an_epoch_begins_at_once(patch: pytest.MonkeyPatch) -> None:
    handover.at_once(patch, "_new_epoch")


def _another_history_is_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recorded_epochs, "known_epochs", lambda *_: ())


def _epochs_that_may_still_arrive_are_taken_for_granted(patch: pytest.MonkeyPatch) -> None:
    true = source_epochs.is_news

    def is_news(state: Lane, epoch: int, count: int) -> bool:
        return not state.history.expected_epochs and true(state, epoch, count)

    patch.setattr(source_epochs, "is_news", is_news)


def _a_leap_is_final(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(truncation, "ask_short", lambda state: halt(state, "truncated", "ends", 0, state.position))


def _whatever_has_its_ordinal_was_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(difference, "unread", lambda *_: None)


def _part_where_the_source_says(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochCache, "divergence", lambda _, __, end: end)
    patch.setattr(last_copied, "divergence", lambda _, __, end: end)


def _nothing_is_missing(patch: pytest.MonkeyPatch) -> None:
    handover.a_removed_record_is_leapt_over_at_once(patch)
    true = rebuilding._facts

    def facts(state: Lane, first: int, own: Any, read: Any, located: Located) -> list[LaneFact]:
        return true(state, first, own, read, msgspec.structs.replace(located, missing=()))

    patch.setattr(rebuilding, "_facts", facts)


def _a_loss_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    true = intake.leap

    def leap(state: Lane, to: int, reason: Reason, **details: int) -> Effects:
        state.skipped.clear()
        state.position = to
        return true(state, to, reason, **details)

    patch.setattr(intake, "leap", leap)


def _what_is_bound_is_asked_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resume_point, "decided", lambda *_: NOT_YET)


def _an_aborted_record_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    true = intake._skip

    def skip(state: Lane, start: int, end: int, reason: Reason) -> None:
        true(state, start, start if reason == "aborted" else end, reason)

    patch.setattr(intake, "_skip", skip)


def _a_word_is_believed(patch: pytest.MonkeyPatch) -> None:
    true = fast_handoff.begin

    def begin(state: Lane, word: Progress, record: LaneRecord) -> Effects:
        effects = true(state, word, record)
        if state.takeover.fast_handoff is not None:
            state.takeover.fast_handoff.end = EndAnswer(0, 0, word.leader_epoch, word.target_offset)
            state.takeover.fast_handoff.producers = ProducersAnswer(0, 0, ProducerEntry(word.ordinal - 1, 0))
            state.log.entry = state.takeover.fast_handoff.producers.entry
        return effects

    patch.setattr(fast_handoff, "begin", begin)
    patch.setattr(fast_handoff, "target_answered", lambda *_: [])


def _a_key_further_on_counts_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SupersededJudge, "see", lambda *_: None)
    _a_removed_record_counts_for_nothing(patch)


def _a_removed_record_counts_for_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SupersededJudge, "lowest_left", lambda _: NEVER)


def _what_is_missing_was_cleaned(patch: pytest.MonkeyPatch) -> None:
    true = SupersededJudge.answer

    def answer(judge: SupersededJudge) -> SupersededAnswer:
        return msgspec.structs.replace(true(judge), again=())

    patch.setattr(SupersededJudge, "answer", answer)


def _nothing_was_cleaned_at_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(missing_ordinals, "_last", lambda *_: [])


def _whatever_was_lost_follows(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(missing_ordinals, "lost_ordinals", lambda *_: ())


def _an_older_record_counts_as_newer(patch: pytest.MonkeyPatch) -> None:
    true = SupersededJudge.see

    def see(judge: SupersededJudge, offset: int, key: Any, time_ms: int, leader_epoch: int, sequence: int = -1) -> None:
        true(judge, NEVER if sequence < 0 else offset, key, time_ms, leader_epoch, sequence)

    patch.setattr(SupersededJudge, "see", see)


MUTATIONS = (
    Mutation("1 two witnesses: the base offset", _blind_to_base_offset, "foreign writers"),
    Mutation(
        "1 two witnesses, acknowledged together", _blind_to_base_offsets_acknowledged_together, "acknowledged together"
    ),
    Mutation("2 window 1 until a first acknowledgement", _full_window_at_once, "new topic"),
    Mutation("2 a success after a failure is a hole", _no_hole_after_a_failure, "refused and forgotten"),
    Mutation("3 the sandwich: one leader epoch around it", _any_leader_will_do, "deposed, young topic"),
    Mutation("3 the sandwich: wait for the high watermark", _uncommitted_counts, "foreign writers"),
    Mutation("3 no entry means unknown", _no_entry_means_nothing_written, "zombies of old records"),
    Mutation("3 the end once more before the first produce", _end_not_read_again, "late"),
    Mutation("4 the lease barrier", _no_barrier, "slow wire, old records"),
    Mutation("5 went back is not lost", _went_back_is_lost, "late"),
    Mutation("6 first fact wins", _last_fact_wins, "zombies of old records"),
    Mutation("intent before gap", _produce_before_intent, "transactions"),
    Mutation("each answer counts once", _every_answer_counts, "twice"),
    Mutation("a fetch carries the epoch of the batch before it", _no_epoch_after_a_resume, "source truncated"),
    Mutation("an epoch is recorded before its first record", _an_epoch_is_not_recorded, "source truncated"),
    Mutation("an epoch waits for former holders", _an_epoch_begins_at_once, "source truncated twice"),
    Mutation("a removed record waits for former holders", handover.a_removed_record_is_leapt_over_at_once, "two views"),
    Mutation("another history is not compared", _another_history_is_compared, "source truncated"),
    Mutation("higher epochs are not in a log that parts", _part_where_the_source_says, "source truncated twice"),
    Mutation("a lane goes back after a leap", _a_leap_is_final, "sought, old records + source truncated twice"),
    Mutation(
        "epochs of ordinals that may still arrive are compared",
        _epochs_that_may_still_arrive_are_taken_for_granted,
        "source truncated twice",
    ),
    Mutation("unread ordinals hold other records", _whatever_has_its_ordinal_was_copied, ""),
    Mutation("resync on doubt", _no_resync, "deposed"),
    Mutation("records missing after a difference follow", _nothing_is_missing, "two views"),
    Mutation("trust, then check", _trust_without_check, "views"),
    Mutation(
        "the source is asked about records after those that are copied again",
        _what_is_copied_again_is_there,
        "source truncated, old records",
    ),
    Mutation("other records are where copies were lost", _others_take_no_place, "unclean, beside others"),
    Mutation("a later leader's word is not enough", _any_leaders_word_counts, "unclean, beside others, handed over"),
    Mutation("one of two records is not named", _one_of_two_records_is_named, "late + retention"),
    Mutation(
        "records that moved to lower offsets are compared",
        _a_log_that_went_back_begins_where_it_did,
        "twice + unclean, beside others",
    ),
    Mutation("a loss is recorded", _a_loss_is_not_recorded, "retention"),
    Mutation("each offset is copied or explained", _an_aborted_record_is_not_recorded, "transactions"),
    Mutation("a word is compared with the target", _a_word_is_believed, "handed over, unclean"),
    Mutation("a seek is carried out", seeks.a_seek_is_not_carried_out, "sought"),
    Mutation(
        "the end once more before a seek",
        seeks.the_end_is_not_read_again_before_a_seek,
        "sought, slow wire + far, old records",
    ),
    Mutation(
        "the source is asked before a seek",
        seeks.copied_records_are_there_before_a_seek,
        "sought, whatever the source does",
    ),
    Mutation(
        "the source is asked about skipped records", seeks.the_epoch_of_a_seek_is_not_known, "sought, old records"
    ),
    Mutation(
        "the epochs of skipped records are recorded",
        seeks.only_the_highest_epoch_of_a_seek_is_known,
        "sought, source truncated",
    ),
    Mutation("only parked records are skipped", _any_word_is_that_it_is_parked, "refused and parked"),
    Mutation("a parked record is not parked again", _parked_at_the_end, "refused and parked"),
    Mutation("a bound decision is not requested again", _what_is_bound_is_asked_again, "policies"),
    Mutation("a superseded record is not copied again", _a_key_further_on_counts_for_nothing, "compacted copy"),
    Mutation(
        "a record that the cleaner removed is newer as well",
        _a_removed_record_counts_for_nothing,
        "compacted copy, unclean, beside others",
    ),
    Mutation("a lost record is copied again", _what_is_missing_was_cleaned, "compacted copy, unclean"),
    Mutation(
        "the last records may have been cleaned",
        _nothing_was_cleaned_at_the_end,
        "compacted copy, beside others, old records",
    ),
    Mutation(
        "a lost record is not put over a newer one",
        _whatever_was_lost_follows,
        "compacted copy, unclean, beside others",
    ),
    Mutation(
        "a record that was there before a lost one is older",
        _an_older_record_counts_as_newer,
        "compacted copy, unclean, beside others + compacted copy, unclean",
    ),
    Mutation("a position does not pass unread parts of the log", handover.a_position_passes_unread_parts, ""),
    Mutation("batches of a dead connection may arrive", handover.batches_of_a_dead_connection_are_gone, ""),
    Mutation("records since a takeover are compared again", handover.acknowledged_means_own, ""),
    Mutation("another leader's log is read", handover.any_leader_has_the_same_log, ""),
    Mutation("a drain in doubt is not clean", handover.every_drain_is_clean, ""),
    Mutation("a handoff counts from the last holder only", handover.any_handoff_counts, ""),
    Mutation("a first position does not count forever", handover.a_first_position_counts_forever, ""),
    Mutation("what was told is about one holder", handover.every_holder_is_the_one_that_was_told_of, ""),
    Mutation("what was never written is not lost", handover.a_record_that_was_never_written_counts_as_lost, ""),
    Mutation("what was not sent is not lost", handover.a_record_that_was_not_sent_counts_as_lost, ""),
    Mutation("a lane resumes after an election", handover.an_election_goes_unnoticed, ""),
    Mutation("what was appended in between is read", handover.a_leap_is_not_read, ""),
    Mutation("own batches after the known end are found", handover.what_follows_the_end_is_foreign, ""),
    Mutation("a broker may soon forget", handover.a_broker_remembers_forever, ""),
    Mutation("answers are awaited before a resume", handover.batches_in_flight_are_not_awaited, ""),
    Mutation("a lane resumes", handover.a_lane_never_resumes, ""),
    Mutation("a difference is repaired", handover.a_difference_is_final, ""),
    Mutation("a hole is repaired", handover.a_hole_is_final, ""),
    Mutation("a log that went back is repaired", handover.a_log_that_went_back_is_final, ""),
    Mutation(
        "a position may follow others' records only", handover.a_position_is_noted_after_own_records, "foreign writers"
    ),
    *(Mutation(*rule) for rule in host.RULES),
    *(Mutation(*rule) for rule in rebuilds.RULES),
    *(Mutation(*rule) for rule in reuse.RULES),
    *(Mutation(*rule) for rule in sequences.RULES),
    *(Mutation(*rule) for rule in beside.RULES),
    *(Mutation(*rule, drawn_from=FAILOVERS) for rule in failover.RULES),
)
