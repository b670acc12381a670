"""Whether a group would continue on the target with the record that it reads next on the source."""

import pytest

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Progress, Reason, SourceRun, TargetRun, Verdict
from mirrord.ledger.fold import fold
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.state import FlowState
from mirrord.model.runs import Run
from mirrord.recovery.rules.drill_verdicts import (
    DrilledLog,
    DrillPosition,
    NextRecords,
    VisibleRecord,
    different_parts,
    verdict_on,
)
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
LOG = DrilledLog(start=100, stable_end=1_000)


def lane_map(reason: Reason | None = "aborted") -> LaneMap:
    """A lane that has copied the source offsets 0 to 4 and 6 to 10 to the target offsets 100 to 109. Offset 5 has this
    verdict."""
    made = FlowState()
    verdicts = () if reason is None else (Verdict(5, 6, reason),)
    runs = (
        SourceRun(LANE, 1, (Run(0, 0), Run(5, 6)), verdicts),
        TargetRun(LANE, 1, 0, 100, 0),
    )
    entries = (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(opened(0), LaneTaken(LANE, 1, "r-1"), *runs))
    for offset, each in enumerate(entries):
        fold(made, each, offset)
    progress = Progress(LANE, 1, 1, 10, 110, 0, 11, 11, 1, 1, protected=True, state="copying", settled=True)
    return LaneMap(made.lanes[LANE], CopiedPosition.by(progress))


def record(offset: int, number: int, **other: object) -> VisibleRecord:
    """The record with this number, at this offset."""
    fields: dict[str, object] = {"key": b"k%d" % number, "value": b"v", "headers": [("h", b"1")], "time_ms": number}
    fields |= other
    made = DecodedRecord(offset=offset, **fields)  # pyright: ignore[reportArgumentType]
    return VisibleRecord.of(made, has_append_time=False)


def outcome(
    target_offset: int | None,
    source: VisibleRecord | None,
    target: VisibleRecord | None,
    copy: VisibleRecord | None,
    *,
    at: int = 3,
    later: VisibleRecord | None = None,
    log: DrilledLog = LOG,
    reason: Reason | None = "aborted",
) -> str:
    """The outcome, or the line of the finding without the name of the position."""
    position = DrillPosition("billing", "orders", 0, at, at, target_offset)
    found = verdict_on(position, NextRecords(source, later or source, target, copy), lane_map(reason), log)
    return found.line.removeprefix(f"group billing in orders-0 at {at}: ") or found.outcome


def test_the_next_record_is_the_same() -> None:
    assert outcome(103, record(3, 3), record(103, 3), record(103, 3)) == "same"


def test_the_next_record_follows_one_that_is_not_copied() -> None:
    assert outcome(105, record(6, 6), record(105, 6), record(105, 6), at=5) == "same"
    assert outcome(105, record(5, 5), record(105, 6), None, at=5) == "explained"


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"key": None}, "keys"),
        ({"value": b"x"}, "values"),
        ({"headers": []}, "headers"),
        ({"time_ms": 9}, "timestamps"),
    ],
)
def test_another_record_is_found(changed: dict[str, object], part: str) -> None:
    wrong = record(103, 3, **changed)
    line = outcome(103, record(3, 3), wrong, wrong)
    assert line == f"the record at 103 on the target is not the record at 3 on the source: {part} differ"


def test_a_timestamp_of_the_broker_does_not_count() -> None:
    stamped = record(103, 3, time_ms=9)._replace(has_append_time=True)
    assert outcome(103, record(3, 3), stamped, stamped) == "same"
    assert different_parts(record(3, 3), stamped) == []


def test_records_that_the_target_lacks() -> None:
    assert outcome(103, record(3, 3), record(104, 4), record(104, 4)) == (
        "the target has no record at 103, where the map has the record at 3"
    )
    assert outcome(103, record(3, 3), None, None).startswith("the target has no record at 103")
    compacted = DrilledLog(100, 1_000, is_compacted=True)
    assert outcome(103, record(3, 3), record(104, 4), None, log=compacted) == "explained"
    assert outcome(103, record(3, 3, key=None), None, None, log=compacted).startswith("the target has no record")
    expired = DrilledLog(104, 1_000)
    assert "has deleted the record (retention): its log begins at 104" in outcome(
        103, record(3, 3), record(104, 4), None, log=expired
    )


def test_a_group_that_would_skip_a_record() -> None:
    assert outcome(104, record(3, 3), record(104, 4), record(103, 3)) == (
        "it would skip the record at 103 on the target, because its position there is 104"
    )


def test_a_group_that_has_moved_meanwhile_skips_nothing() -> None:
    assert outcome(104, record(3, 3), record(104, 4), record(103, 3), later=record(4, 4)) == "same"


def test_a_group_that_would_read_a_record_again() -> None:
    assert outcome(102, record(3, 3), record(102, 2), record(103, 3)) == (
        "it would read the record at 2 again, which is at 102 on the target"
    )
    assert "read the record at 9 again" in outcome(108, None, record(108, 9), None, at=11)


def test_the_position_does_not_count_if_it_need_not_match() -> None:
    assert outcome(None, record(3, 3), None, record(103, 3)) == "same"


def test_what_is_not_there_yet() -> None:
    assert outcome(110, None, None, None, at=11) == "at end"
    assert outcome(110, record(11, 11), None, None, at=11) == "waiting"


def test_a_record_that_is_hidden_by_a_transaction_of_another_client_is_not_missing() -> None:
    hidden = DrilledLog(100, 103)
    assert outcome(103, record(3, 3), record(103, 3), record(103, 3), log=hidden) == "waiting"
    assert "differ" in outcome(103, record(3, 3), record(103, 4), record(103, 4), log=hidden)


def test_transformed_records_are_not_compared() -> None:
    transformed = DrilledLog(100, 1_000, is_transformed=True)
    assert outcome(103, record(3, 3), record(103, 9), record(103, 9), log=transformed) == "same"


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("filtered", "explained"),
        ("rejected", "explained"),
        ("skipped", "explained"),
        ("unexplained", "the record at 5 is not on the target: it was lost (unexplained)"),
        ("expired", "the record at 5 is not on the target: it was lost (expired)"),
        (None, "the record at 5 is not on the target: the ledger does not say why it was not copied"),
    ],
)
def test_a_record_without_a_copy_must_be_explained_on_purpose(reason: Reason | None, found: str) -> None:
    assert outcome(105, record(5, 5), record(105, 6), None, at=5, reason=reason) == found


def test_a_record_without_a_verdict_may_have_one_that_the_state_does_not_keep() -> None:
    log = DrilledLog(100, 1_000, is_explained=False)
    assert outcome(105, record(5, 5), record(105, 6), None, at=5, reason=None, log=log) == "explained"
