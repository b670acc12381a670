"""Mutations of the rules by which a host answers questions about the contents of the logs (`tests.sim.mutations`): the
scan for own batches, the comparison with the source, the relocation of batches, and the lookup of missing records."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mirrord.replication.host import batch_relocation, batch_verification, own_batch_scan, superseded_lookup
from mirrord.replication.lane.signals import AskScan, LaneRecord, OwnBatch
from mirrord.replication.lane.source.record_search import Range
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededJudge
from tests.sim import comparing

SwitchOff = Callable[[pytest.MonkeyPatch], None]


async def _nothing(*_: Any) -> None:
    pass


# The scan for own batches


def no_topic_may_be_cleaned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(own_batch_scan, "may_be_cleaned", lambda *_: False)


def batches_in_a_row_are_all_that_were_written(patch: pytest.MonkeyPatch) -> None:
    """Whether the topic is compacted is asked only if batches do not follow each other."""

    def may_be_cleaned(asked: AskScan, own: tuple[OwnBatch, ...], others: tuple[Any, ...]) -> bool:
        held = sum(batch.count for batch in own)
        return bool(others) or not own or held < asked.end - max(asked.start, own[0].base_offset)

    patch.setattr(own_batch_scan, "may_be_cleaned", may_be_cleaned)


def the_end_of_a_log_shows_no_loss(patch: pytest.MonkeyPatch) -> None:
    """Acknowledged records that the log lacks at its end are no reason to ask whether the topic is compacted."""
    true = own_batch_scan.may_be_cleaned
    patch.setattr(own_batch_scan, "may_be_cleaned", lambda asked, *found: true(replace(asked, until=0), *found))


def other_batches_are_not_reported(patch: pytest.MonkeyPatch) -> None:
    true = own_batch_scan.own_batches

    async def own_batches(*question: Any) -> tuple[tuple[OwnBatch, ...], tuple[()], int]:
        own, _, epoch = await true(*question)
        return own, (), epoch

    patch.setattr(own_batch_scan, "own_batches", own_batches)


# The comparison with the source


def originals_are_read_to_any_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_verification._Originals, "limit", lambda *_: None)


def a_reused_offset_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_verification.BatchVerification, "_is_of_another_epoch", lambda *_: False)


def a_truncated_record_is_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_verification, "is_truncated", lambda *_: False)


def void_ordinals_are_compared(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_verification, "but_not_void", lambda _, first, last: [(first, last)])


def equal_headers_are_equal_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_verification, "same_bytes", lambda *_: True)


def what_is_in_front_is_not_read(patch: pytest.MonkeyPatch) -> None:
    async def in_front_of(*_: Any) -> tuple[int, int]:
        return -1, -1

    patch.setattr(batch_verification, "_in_front_of", in_front_of)


def a_failed_read_is_an_answer(patch: pytest.MonkeyPatch) -> None:
    """A lane that is copying gets the error of a read that failed, and the read is not repeated."""
    patch.setattr(comparing, "is_repeated", lambda *_: False)


# The relocation of batches


def relocation_begins_at_the_log_start(patch: pytest.MonkeyPatch) -> None:
    true = batch_relocation.search_range

    def search_range(record: LaneRecord, first: int, last: int, **_: bool) -> Range:
        return true(record, first, last)._replace(start=0)

    patch.setattr(batch_relocation, "search_range", search_range)


def relocation_finds_aborted_records(patch: pytest.MonkeyPatch) -> None:
    true = batch_relocation.BatchRelocation._originals

    async def originals(self: Any, searched: Range, *, timed: bool) -> Any:
        self._read_committed = False
        return await true(self, searched, timed=timed)

    patch.setattr(batch_relocation.BatchRelocation, "_originals", originals)


# The lookup of missing records


def a_lookup_reads_uncommitted_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(comparing, "CopyRules", lambda _, decide: superseded_lookup.CopyRules(False, decide))


def a_lookup_finds_aborted_records(patch: pytest.MonkeyPatch) -> None:
    true = superseded_lookup.SupersededLookup._find

    async def find(self: Any, judge: Any, wanted: Any, epochs: Any, *, committed: bool) -> None:
        del committed
        await true(self, judge, wanted, epochs, committed=False)

    patch.setattr(superseded_lookup.SupersededLookup, "_find", find)


def uncommitted_copies_are_not_looked_up(patch: pytest.MonkeyPatch) -> None:
    """Records that a lane has copied from above the last stable offset count as removed."""
    true = superseded_lookup.SupersededLookup._find

    async def find(self: Any, judge: Any, wanted: Any, epochs: Any, *, committed: bool) -> None:
        if committed or not self._rules.read_committed:
            await true(self, judge, wanted, epochs, committed=committed)

    patch.setattr(superseded_lookup.SupersededLookup, "_find", find)


def what_is_never_copied_was_removed(patch: pytest.MonkeyPatch) -> None:
    def never_copied(judge: SupersededJudge, wanted: dict[int, list[tuple[Missing, int]]], header: Any) -> None:
        for offset in range(header.base_offset, header.last_offset + 1):
            for each, ordinal in wanted.pop(offset, ()):
                judge.gone(each, ordinal, by_retention=False)

    patch.setattr(superseded_lookup, "_never_copied", never_copied)


def skipped_records_are_looked_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(superseded_lookup, "joined", lambda _: [])


def a_filter_is_not_asked_again(patch: pytest.MonkeyPatch) -> None:
    """A lookup takes a record for copied although the ledger does not contain the decision to copy it."""
    patch.setattr(superseded_lookup.SupersededLookup, "_is_presumed", lambda *_: False)


def a_record_of_a_later_epoch_was_copied(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(superseded_lookup, "is_of_another_epoch", lambda *_: False)


def retention_removes_what_a_cleaner_may_have_removed(patch: pytest.MonkeyPatch) -> None:
    true = SupersededJudge.gone

    def gone(self: SupersededJudge, missing: Missing, ordinal: int, *, by_retention: bool) -> None:
        del by_retention
        true(self, missing, ordinal, by_retention=False)

    patch.setattr(SupersededJudge, "gone", gone)


class _UpTo:
    """Reports an end of the log that is not above a limit."""

    def __init__(self, asks: Any, limit: int) -> None:
        self._asks, self._limit = asks, limit

    def bounds(self, partition: Any, leader_epoch: int, report: Callable[[int, int, int], None]) -> None:
        self._asks.bounds(
            partition, leader_epoch, lambda error, end, begin: report(error, min(end, self._limit), begin)
        )

    def last_stable(self, partition: Any, report: Callable[[int, int], None]) -> None:
        self._asks.last_stable(partition, report)


def a_lookup_ends_at_the_known_end(patch: pytest.MonkeyPatch) -> None:
    """A lookup does not read what was appended to the target log since the lane asked for its end."""
    true = superseded_lookup.SupersededLookup._see

    async def see(self: Any, judge: SupersededJudge, asked: AskSuperseded) -> None:
        self._target_asks = _UpTo(self._target_asks, asked.end)
        await true(self, judge, asked)

    patch.setattr(superseded_lookup.SupersededLookup, "_see", see)


def lost_records_are_superseded_only_above_them(patch: pytest.MonkeyPatch) -> None:
    """For lost records, too, a lookup reads the target log only from where they were."""
    true = superseded_lookup.SupersededLookup._see

    async def see(self: Any, judge: SupersededJudge, asked: AskSuperseded) -> None:
        await true(self, judge, replace(asked, missing=tuple(replace(each, kind="between") for each in asked.missing)))

    patch.setattr(superseded_lookup.SupersededLookup, "_see", see)


def what_was_appended_is_in_the_log(patch: pytest.MonkeyPatch) -> None:
    """Records that were appended, and that the cleaner has removed since, are not read from the source."""
    patch.setattr(superseded_lookup.SupersededLookup, "_see_appended", _nothing)


_CLEANED = "compacted copy, unclean"
_BESIDE = "compacted copy, unclean, beside others"
RULES: tuple[tuple[str, SwitchOff, str], ...] = (
    ("a scan asks whether records may have been removed", no_topic_may_be_cleaned, _CLEANED),
    ("batches without a gap may follow removed ones", batches_in_a_row_are_all_that_were_written, _CLEANED),
    ("acknowledged records may be missing at the end", the_end_of_a_log_shows_no_loss, _BESIDE),
    ("a scan reports other clients' batches", other_batches_are_not_reported, _BESIDE),
    ("a comparison reads what the source can return", originals_are_read_to_any_offset, ""),
    ("a reused offset is noticed by its epoch", a_reused_offset_is_not_noticed, ""),
    ("a truncated record is not compared", a_truncated_record_is_compared, ""),
    ("void ordinals are not compared", void_ordinals_are_compared, ""),
    ("batches with equal headers are compared", equal_headers_are_equal_batches, ""),
    ("a comparison reports what is in front of the position", what_is_in_front_is_not_read, ""),
    ("a failed read is repeated", a_failed_read_is_an_answer, ""),
    ("relocation begins where the ledger says", relocation_begins_at_the_log_start, ""),
    ("relocation finds committed records only", relocation_finds_aborted_records, ""),
    ("a lookup reads as the lane does", a_lookup_reads_uncommitted_records, ""),
    ("a lookup leaves out aborted records", a_lookup_finds_aborted_records, ""),
    ("a lookup finds copies of uncommitted records", uncommitted_copies_are_not_looked_up, ""),
    ("nothing follows what is never copied", what_is_never_copied_was_removed, ""),
    ("a lookup leaves out skipped records", skipped_records_are_looked_up, ""),
    ("a lookup asks the filter again", a_filter_is_not_asked_again, ""),
    ("a lookup knows a later epoch", a_record_of_a_later_epoch_was_copied, ""),
    ("retention is not the cleaner", retention_removes_what_a_cleaner_may_have_removed, ""),
    ("a lookup reads up to the new end", a_lookup_ends_at_the_known_end, _BESIDE),
    ("a lost record may be superseded below its offset", lost_records_are_superseded_only_above_them, _BESIDE),
    ("a lookup reads what was appended and removed", what_was_appended_is_in_the_log, _BESIDE),
)
