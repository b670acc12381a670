"""Mutations of the rules about source offsets, ordinals and target offsets that belong to other records by now
(`tests.sim.mutations`)."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace as with_fields
from typing import Any

import pytest
from msgspec.structs import replace

from mirrord.model.intervals import Interval
from mirrord.replication.host import batch_relocation
from mirrord.replication.lane import rebuilding, resume_point
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import AskCheck, Effects, LaneRecord
from mirrord.replication.lane.source import last_copied, left_out_ranges, offsets_of_epochs, source_epochs, truncation
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import epoch_ends, evidence, in_doubt, missing_ordinals, reassigned_ordinals
from mirrord.replication.lane.target.scan_result import Missing

SwitchOff = Callable[[pytest.MonkeyPatch], None]


def no_record_was_replaced(patch: pytest.MonkeyPatch) -> None:
    true = offsets_of_epochs.replaced_from

    def replaced_from(*asked: Any) -> Iterator[tuple[Interval, int, int]]:
        yield from ((piece, epoch, NEVER) for piece, epoch, _ in true(*asked))

    patch.setattr(last_copied, "replaced_from", replaced_from)


def no_ordinal_was_reassigned(patch: pytest.MonkeyPatch) -> None:
    for module in (evidence, batch_relocation):
        patch.setattr(module, "reassigned_since", lambda *_: ())


def what_was_cleaned_stays_superseded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(missing_ordinals, "cleaned_below", lambda *_: ())


def no_log_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evidence, "of_another_log", lambda *_: ())


def all_records_of_a_run_have_its_place(patch: pytest.MonkeyPatch) -> None:
    def newer_from(missing: Missing, ordinal: int) -> int:
        runs = bisect_right(missing.recorded_at, ordinal, key=lambda run: run.ordinal)
        return max(missing.above, missing.recorded_at[runs - 1].offset) if runs else missing.above

    patch.setattr(Missing, "newer_from", newer_from)


def a_refused_record_is_not_asked_about(patch: pytest.MonkeyPatch) -> None:
    true = last_copied._with_left_out

    def with_left_out(record: Any, known: tuple[int, int] | None, below: int) -> tuple[int, int] | None:
        return true(with_fields(record, quarantine=()), known, below)

    patch.setattr(last_copied, "_with_left_out", with_left_out)


def an_epoch_begins_with_the_first_copied_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(source_epochs, "judged_from", lambda _, offset, __: offset)


def the_batch_before_a_position_stands_for_all(patch: pytest.MonkeyPatch) -> None:
    """A rebuild begins with the first difference, too, although it is known that lower ordinals were reassigned."""
    patch.setattr(epoch_ends, "is_of_another_log", lambda *_: False)
    true = rebuilding.verified

    def verified(lane: Lane, found: Any) -> Effects:
        lane.log.reassigned = ()
        return true(lane, found)

    patch.setattr(rebuilding, "verified", verified)


def a_rebuild_has_read_every_log(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evidence, "_not_rebuilt", lambda *_: ())


def only_acknowledged_ordinals_are_revoked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(in_doubt, "earlier_leaders_until", lambda *_: 0)


def a_comparison_is_repeated_up_to_its_former_end(patch: pytest.MonkeyPatch) -> None:
    true = reassigned_ordinals.compare_again

    def compare_again(lane: Lane, ordinal: int) -> Effects:
        known, effects = lane.comparison.first_ack_check, true(lane, ordinal)
        if known is None or not effects or not isinstance(effects[0], AskCheck) or effects[0].first != known.first:
            return effects
        lane.comparison.first_ack_check = replace(effects[0], end=known.end)
        return [lane.comparison.first_ack_check]

    patch.setattr(reassigned_ordinals, "compare_again", compare_again)


def a_seek_skips_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    """A seek skips its range again, although the source has later records there."""
    true = left_out_ranges.left_out

    def left_out(record: LaneRecord, lowest: int) -> list[LeftOut]:
        return [each._replace(latest_epoch=-1) for each in true(record, lowest)]

    for module in (resume_point, truncation):
        patch.setattr(module, "left_out", left_out)


RULES: tuple[tuple[str, SwitchOff, str, str], ...] = (
    (
        "the source is not asked about records that it has replaced",
        no_record_was_replaced,
        "source truncated twice",
        "",
    ),
    ("batches of reassigned ordinals are compared", no_ordinal_was_reassigned, "unclean, beside others", ""),
    ("batches of another log are compared", no_log_comes_back, "unclean, old records", "refused_batches_come_back"),
    (
        "a lost record has a place of its own",
        all_records_of_a_run_have_its_place,
        "compacted copy, unclean, beside others",
        "",
    ),
    (
        "what was superseded by a record that both logs have lost is looked up",
        what_was_cleaned_stays_superseded,
        "compacted copy, unclean",
        "newest_lost_on_both_sides",
    ),
    (
        "a seek skips no record of a later epoch",
        a_seek_skips_whatever_is_there,
        "plain, old records",
        "truncated_while_away",
    ),
    ("the source is asked about refused records", a_refused_record_is_not_asked_about, "refused and parked", ""),
    (
        "an epoch may begin before the first copied record",
        an_epoch_begins_with_the_first_copied_record,
        "source truncated",
        "",
    ),
    ("all batches of a log that came back are compared", the_batch_before_a_position_stands_for_all, "unclean", ""),
    ("batches that a rebuild has not read are compared", a_rebuild_has_read_every_log, "unclean", ""),
    (
        "the ledger names ordinals that an earlier leader may have appended",
        only_acknowledged_ordinals_are_revoked,
        "unclean",
        "refused_batches_come_back",
    ),
    ("a comparison is repeated up to the new end", a_comparison_is_repeated_up_to_its_former_end, "unclean", ""),
)
