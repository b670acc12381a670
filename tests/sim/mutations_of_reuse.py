"""Mutations of the rules about source offsets, ordinals and target offsets that belong to other records by now
(`tests.sim.mutations`)."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mirrord.model.intervals import Interval
from mirrord.replication.host import batch_relocation
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.source import last_copied, offsets_of_epochs
from mirrord.replication.lane.target import evidence
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


def no_log_comes_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(evidence, "of_another_log", lambda *_: ())


def all_records_of_a_run_have_its_place(patch: pytest.MonkeyPatch) -> None:
    def newer_from(missing: Missing, ordinal: int) -> int:
        runs = bisect_right(missing.recorded_at, ordinal, key=lambda run: run.ordinal)
        return max(missing.above, missing.recorded_at[runs - 1].offset) if runs else missing.above

    patch.setattr(Missing, "newer_from", newer_from)


RULES: tuple[tuple[str, SwitchOff, str] | tuple[str, SwitchOff, str, str], ...] = (
    ("the source is not asked about records that it has replaced", no_record_was_replaced, "source truncated twice"),
    ("batches of reassigned ordinals are compared", no_ordinal_was_reassigned, "unclean, beside others"),
    ("batches of another log are compared", no_log_comes_back, "unclean, old records", "refused_batches_come_back"),
    (
        "a lost record has a place of its own",
        all_records_of_a_run_have_its_place,
        "compacted copy, unclean, beside others",
    ),
)
