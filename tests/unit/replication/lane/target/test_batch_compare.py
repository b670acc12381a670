"""What counts as a difference between a lane's batch on the target and its source, and what does not."""

import pytest

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, Header
from mirrord.replication.lane.target.batch_compare import (
    EQUAL,
    BatchCopy,
    BatchFinding,
    same_bytes,
    same_records,
    together,
)

ORIGINAL = Header(500, 200, 7, 2, 1, 4 | TRANSACTIONAL | DELETE_HORIZON, 9, 1_000, 2_000, 1, 2, 3, 10)
COPY = ORIGINAL._replace(
    base_offset=90, leader_epoch=0, attributes=4, producer_id=77, producer_epoch=0, base_sequence=40
)


def test_a_raw_copy_is_known_by_its_header() -> None:
    assert same_bytes(COPY, 0xABC, ORIGINAL, 0xABC)


@pytest.mark.parametrize(
    "copy",
    [
        COPY._replace(record_count=9),
        COPY._replace(last_offset_delta=10),
        COPY._replace(attributes=3),
        COPY._replace(base_timestamp=1_001),
        COPY._replace(max_timestamp=2_001),
    ],
)
def test_other_headers_are_not_taken_for_a_raw_copy(copy: Header) -> None:
    assert not same_bytes(copy, 0xABC, ORIGINAL, 0xABC)


def test_other_records_are_not_taken_for_a_raw_copy() -> None:
    assert not same_bytes(COPY, 0xABD, ORIGINAL, 0xABC)


def test_append_times_at_the_target_are_its_own_business() -> None:
    assert same_bytes(COPY._replace(attributes=4 | LOG_APPEND_TIME, max_timestamp=9_999), 0xABC, ORIGINAL, 0xABC)


def test_append_times_at_the_source_need_the_records() -> None:
    assert not same_bytes(COPY, 0xABC, ORIGINAL._replace(attributes=4 | LOG_APPEND_TIME), 0xABC)


def test_a_copy_takes_the_ordinals_that_a_cleaner_removed_since() -> None:
    copy = BatchCopy(COPY._replace(record_count=4, base_sequence=5), 0)
    assert copy.count == 10
    assert copy.first(2**31) == 2**31 + 5
    assert copy.first(2**31 - 10) == 2**31 + 5


RECORD = DecodedRecord(0, 5, b"k", b"v", [("h", None), ("h", b"")])
PAIRS = [(40, 500), (41, 503)]


def compare(copy: DecodedRecord | None, original: DecodedRecord | None, *, timed: bool = True) -> BatchFinding:
    copies = {40: RECORD} | ({41: copy} if copy else {})
    originals = {500: RECORD} | ({503: original} if original else {})
    return same_records(PAIRS, copies, originals, timed=timed)


def test_records_that_agree() -> None:
    assert compare(RECORD, RECORD._replace(offset=503)) == BatchFinding("equal", equal_until=42)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (RECORD._replace(key=None), "key"),
        (RECORD._replace(value=b""), "value"),
        (RECORD._replace(headers=[("h", b""), ("h", None)]), "headers"),
        (RECORD._replace(time_ms=6), "timestamp"),
    ],
)
def test_a_difference_names_the_ordinal(other: DecodedRecord, what: str) -> None:
    assert compare(other, RECORD) == BatchFinding("different", f"ordinal 41 (source offset 503) differs in its {what}")


def test_times_do_not_count_where_the_target_sets_its_own() -> None:
    assert compare(RECORD._replace(time_ms=6), RECORD, timed=False).outcome == "equal"


@pytest.mark.parametrize(("copy", "original"), [(None, RECORD), (RECORD, None), (None, None)])
def test_a_record_that_is_missing_on_one_side_is_not_a_difference(
    copy: DecodedRecord | None, original: DecodedRecord | None
) -> None:
    finding = compare(copy, original)
    assert finding.outcome == "unverifiable"
    assert finding.gone == (((41, 42),) if copy is not None else ())


def test_a_record_that_the_source_never_had_is_not_gone() -> None:
    finding = same_records(PAIRS, {40: RECORD, 41: RECORD}, {500: RECORD}, timed=True, source_end=503)
    assert (finding.outcome, finding.gone, finding.replaced) == ("unverifiable", (), ((41, 42),))


def test_another_record_at_a_reused_offset_is_no_difference() -> None:
    originals = {500: RECORD, 503: RECORD._replace(key=None)}
    finding = same_records(PAIRS, {40: RECORD, 41: RECORD}, originals, timed=True, reused={40, 41})
    assert (finding.outcome, finding.gone, finding.replaced) == ("unverifiable", (), ((41, 42),))
    assert finding.equal_until == 41
    assert together([EQUAL, finding]).replaced == ((41, 42),)


def test_a_record_that_a_cleaner_removed_is_not_compared() -> None:
    finding = same_records(PAIRS, {40: RECORD}, {500: RECORD, 503: RECORD}, timed=True)
    assert (finding.outcome, finding.equal_until) == ("unverifiable", 41)
    assert together([BatchFinding("equal", equal_until=41), EQUAL]) == BatchFinding("equal", equal_until=41)
    assert together([finding, BatchFinding("equal", equal_until=44)]).equal_until == 44


def test_a_difference_weighs_more_than_what_is_gone() -> None:
    gone = BatchFinding("unverifiable", "gone")
    different = BatchFinding("different", "other")
    assert together([EQUAL, gone, EQUAL, different, gone]) == different
    assert together([EQUAL, gone, BatchFinding("unverifiable", "more")]) == gone
    assert together([]) == EQUAL


def test_everything_that_is_gone_is_reported() -> None:
    findings = [BatchFinding("unverifiable", "gone", ((1, 2),)), EQUAL, BatchFinding("unverifiable", "more", ((4, 6),))]
    assert together(findings) == BatchFinding("unverifiable", "gone", ((1, 2), (4, 6)))
