"""What an audit reports without comparing records: disorder that the map names, losses, partitions without a copy."""

from collections.abc import Sequence

import msgspec
import pytest

from mirrord.audit.plan import FlowPlan, LaneAuditPlan, _proven_to, _with_losses, _with_uncopied
from mirrord.audit.range_audit import AuditedLane
from mirrord.audit.result_files import proven, summary
from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.batch_compare import compare_batches
from mirrord.audit.rules.ledger_audit import compare_ledger
from mirrord.audit.rules.range_division import ranges
from mirrord.audit.rules.record_compare import compare_records
from mirrord.audit.rules.reordering import mapped_disorder
from mirrord.audit.rules.results import Compared, Difference, Explained, LaneSummary, RangeResult, Seen, Surroundings
from mirrord.audit.rules.summary import Result, is_bad, lane_result, whole_result
from mirrord.audit.uncopied_partitions import Uncopied
from mirrord.cli.verbs.audit import _remark
from mirrord.ledger.facts.audit import RangeAudited
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.ledger.state import LaneState
from mirrord.model.names import LaneKey, TopicId, TopicPartition
from tests.fixtures.ledger import lane_id

ORDERS, COPY = TopicPartition("orders", 0), TopicPartition("eu.orders", 0)
TEN = AuditRange(
    lane=lane_id(0),
    producer_id=4,
    first=0,
    end=10,
    source_start=100,
    source_end=110,
    target_start=10,
    target_end=20,
    pieces=(MapPiece(0, 100, 10, 10),),
)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([(100, 10, 5), (105, 15, 5)], []),
        # The target refused 102 and 103, and accepted them after 104.
        ([(100, 10, 2), (104, 12, 1), (102, 13, 2)], [("out-of-order", 102, 104)]),
        ([(100, 10, 4), (102, 14, 3)], [("doubled", 102, 104)]),
        ([(100, 10, 2), (106, 12, 2), (101, 14, 6)], [("doubled", 101, 102), ("out-of-order", 102, 106),
                                                      ("doubled", 106, 107)]),
        ([(100, 14, 2), (102, 10, 4)], [("out-of-order", 100, 102)]),
    ],
)  # fmt: skip
def test_disorder_that_the_map_names(
    pieces: Sequence[tuple[int, int, int]], expected: list[tuple[str, int, int]]
) -> None:
    made = [MapPiece(at, source, target, length) for at, (source, target, length) in enumerate(pieces)]
    assert sorted((each.cause, each.start, each.end) for each in mapped_disorder(made)) == sorted(expected)


def test_a_truncated_record_is_not_a_repeated_one() -> None:
    pieces = [MapPiece(0, 100, 10, 5, truncated=True), MapPiece(5, 100, 15, 5)]
    assert list(mapped_disorder(pieces)) == []


def test_every_level_reports_what_was_copied_after_newer_records() -> None:
    turned = msgspec.structs.replace(
        TEN, pieces=(MapPiece(0, 100, 10, 4), MapPiece(6, 106, 14, 4), MapPiece(10, 104, 18, 2)), end=12
    )
    source = [Seen(at, b"%d" % at, 0) for at in range(100, 110)]
    places = (*range(100, 104), *range(106, 110), 104, 105)
    target = [Seen(10 + at, b"%d" % here, 0, is_own=True) for at, here in enumerate(places)]
    late = Explained("out-of-order", "source", 104, 106)
    assert compare_records(turned, source, target, Surroundings()) == Compared(10, (), (late,))
    assert compare_ledger(turned, 0, 20, verdicts_are_known=True) == Compared(10, (), (late,))


@pytest.mark.parametrize("reason", ["expired", "recreated"])
def test_a_record_that_exists_was_not_deleted_whatever_a_verdict_says(reason: Reason) -> None:
    wanted = msgspec.structs.replace(
        TEN, pieces=(MapPiece(0, 100, 10, 4),), end=4, target_end=14, verdicts=(Verdict(104, 110, reason),)
    )
    source = [Seen(at, b"%d" % at, 0) for at in range(100, 110)]
    target = [Seen(10 + at, b"%d" % (100 + at), 0, is_own=True) for at in range(4)]
    lost = Difference("missing", 104, None, 6)
    assert compare_records(wanted, source, target, Surroundings()).differences == (lost,)
    assert compare_records(wanted, source[:4], target, Surroundings()).differences == ()
    assert compare_batches(wanted, [None], []) is None


def test_without_reading_a_record_the_start_of_the_log_contradicts_a_false_verdict() -> None:
    wanted = msgspec.structs.replace(
        TEN, pieces=(MapPiece(0, 100, 10, 4),), end=4, target_end=14, verdicts=(Verdict(104, 110, "expired"),)
    )
    true = compare_ledger(wanted, 0, 14, verdicts_are_known=True, source_start=110)
    assert true == Compared(4, (), (Explained("expired", "source", 104, 110),))
    false = compare_ledger(wanted, 0, 14, verdicts_are_known=True, source_start=106)
    assert false.differences == (Difference("missing", 106, None, 4),)
    assert false.explained == (Explained("expired", "source", 104, 106),)


def lane_with(*verdicts: Verdict, ordinals: int = 4) -> LaneState:
    """Ordinals 0 to 3 belong to the source offsets 10 to 13, ordinal 4 to offset 20."""
    lane = LaneState(LaneKey(TopicId("S"), 0, TopicId("T")), "orders", "eu.orders", 4, 0, "all", "sequence")
    lane.source_runs.add(0, 10)
    lane.source_runs.add(ordinals, 20)
    lane.target_runs.add(0, 0)
    lane.verdicts.add(verdicts)
    return lane


EDGES = (Verdict(0, 6, "control"), Verdict(6, 10, "expired"), Verdict(14, 20, "expired"))


def test_ranges_cover_the_verdicts_before_the_first_record_and_after_the_last() -> None:
    (wanted,) = ranges(lane_with(*EDGES), 0, 4, 100, EDGES)
    assert (wanted.source_start, wanted.source_end, wanted.verdicts) == (0, 20, EDGES)
    # Without a verdict nothing is known of them.
    (wanted,) = ranges(lane_with(), 0, 4, 100)
    assert (wanted.source_start, wanted.source_end) == (10, 14)
    (wanted,) = ranges(lane_with(*EDGES), 2, 4, 100, EDGES, proven_to=(12, None))
    assert (wanted.source_start, wanted.source_end) == (12, 20)


def test_verdicts_between_two_audits_belong_to_the_second_one() -> None:
    (wanted,) = ranges(lane_with(*EDGES), 4, 6, 100, EDGES, proven_to=(14, None))
    assert (wanted.source_start, wanted.source_end, wanted.verdicts) == (14, 22, EDGES[2:])


def test_verdicts_without_a_new_record_are_looked_at_and_prove_nothing() -> None:
    (wanted,) = ranges(lane_with(*EDGES), 4, 4, 100, EDGES, proven_to=(14, None))
    assert (wanted.pieces, wanted.source_start, wanted.source_end) == ((), 14, 20)
    assert compare_ledger(wanted, 0, 4, verdicts_are_known=True, source_start=17).differences == (
        Difference("missing", 17, None, 3),
    )
    assert list(ranges(lane_with(*EDGES), 4, 4, 100, EDGES, proven_to=(20, None))) == []
    lane = planned(ranges=(wanted,))
    result = RangeResult(lane=wanted.lane, first=4, end=4, by="records", compared=Compared(0))
    assert proven(lane, [result], "digest", 1) is None


def planned(ranges: tuple[AuditRange, ...] = (), proven: RangeAudited | None = None) -> LaneAuditPlan:
    audited = AuditedLane(source=ORDERS, target=COPY, committed=True)
    return LaneAuditPlan(lane=lane_id(0), audited=audited, ranges=ranges, proven=proven)


def total(lane: LaneAuditPlan, *results: RangeResult) -> LaneSummary:
    flow = FlowPlan(flow="eu-us", source="eu", target="us", lanes=(lane,))
    return summary(flow, lane, results, level="ledger")


def test_losses_outside_of_the_ranges_count_once() -> None:
    verdicts = (Verdict(90, 95, "expired"), Verdict(95, 100, "control"), Verdict(107, 115, "expired"))
    former = {ORDERS: [Explained("recreated", "source", 0, 7)]}
    lane = _with_losses(planned((TEN,)), verdicts, former, None)
    found = total(lane)
    assert found.explained == {"expired": 10, "recreated": 7}
    assert is_bad(found)
    assert lane_result(found).words == "lost: 10 expired, 7 recreated"
    # An earlier audit has counted what is below its proof.
    before = RangeAudited(lane_id(0), "digest", 0, 10, 112, -1, 0)
    assert total(_with_losses(planned((), before), verdicts, former, None)).explained == {"expired": 3}
    assert total(_with_losses(planned(), verdicts, former, {ORDERS: 110})).explained == {"expired": 5}


def test_what_the_target_got_between_two_audits_belongs_to_the_second_one() -> None:
    """Another writer wrote to the target offset 4, after the last record of the first audit."""
    lane = lane_with()
    lane.target_runs.add(4, 5)
    before = RangeAudited(lane_id(0), "digest", 0, 4, 14, -1, 0)
    assert _proven_to(lane, None) == (None, None)
    (found,) = ranges(lane, 4, 8, 10, (), 0, _proven_to(lane, before))
    assert (found.target_start, found.target_end) == (4, 9)
    target = [Seen(4, b"x", 0), *(Seen(5 + at, b"%d" % at, 0, is_own=True) for at in range(4))]
    source = [Seen(20 + at, b"%d" % at, 0) for at in range(4)]
    assert compare_records(found, source, target, Surroundings()).differences == (Difference("foreign", None, 4),)


def test_what_lies_after_the_last_known_copy_has_a_remark() -> None:
    lane = msgspec.structs.replace(planned((TEN,)), waiting=2, beyond=1)
    assert _remark(total(lane, result_of(TEN))) == (
        "2 newer offsets have not been copied yet; 1 target offsets after the last known copy were not compared"
    )


def result_of(wanted: AuditRange) -> RangeResult:
    return RangeResult(lane=wanted.lane, first=wanted.first, end=wanted.end, by="batches", compared=Compared(10))


def test_nothing_is_said_of_what_was_not_looked_at() -> None:
    second = msgspec.structs.replace(TEN, first=10, end=20)
    lane = planned((TEN, second))
    assert lane_result(total(lane)).words == "not examined"
    half = total(lane, result_of(TEN))
    assert lane_result(half).words == "no difference in 1 of 2 ranges"
    assert whole_result([half]).words == "no difference in what was examined, 1 ranges were not"
    both = total(lane, result_of(TEN), result_of(second))
    assert lane_result(both).words == whole_result([both]).words == "no difference"
    # What --since excludes was not examined either.
    left_out = total(msgspec.structs.replace(planned(), left_out=3))
    assert lane_result(left_out).words == "not examined"
    assert lane_result(total(planned())).words == "nothing new"
    # Nor was a partition of which nothing could be compared. An empty one lacks nothing.
    skipped = total(msgspec.structs.replace(planned(), skipped="its records are transformed on the way"))
    assert whole_result([both, skipped]) == Result(
        "no difference in what was examined, 1 partitions were not", is_partial=True
    )
    assert whole_result([half, skipped]).words.endswith("1 ranges and 1 partitions were not")
    empty = [Uncopied(source=ORDERS, target=COPY, start=4, end=4, why="")]
    assert whole_result([both, *(total(each) for each in _with_uncopied([], empty))]).words == "no difference"


def test_what_open_transactions_leave_undecided_is_neither_proven_nor_a_difference() -> None:
    second = msgspec.structs.replace(TEN, first=10, end=20)
    lane = planned((TEN, second))
    unknown = msgspec.structs.replace(result_of(second), compared=Compared(9, (), (), (105, 107)))
    found = total(lane, result_of(TEN), unknown)
    assert lane_result(found) == Result("no difference, 2 records undecided", is_partial=True)
    assert whole_result([found]) == Result(
        "no difference in what was examined, 2 records are undecided", is_partial=True
    )
    assert not is_bad(found)
    assert _remark(found) == "2 records are undecided until open transactions of other clients on the target end"
    fact = proven(lane, [result_of(TEN), unknown], "digest", 0)
    assert fact is not None
    assert fact.end == 10
    half = total(planned((TEN, second)), unknown)
    assert lane_result(half).words == "no difference in 1 of 2 ranges, 2 records undecided"
    assert whole_result([half]).words.endswith("1 ranges were not, 2 records are undecided")


def test_a_partition_without_a_copy_is_a_row_and_a_difference() -> None:
    other = TopicPartition("conflict", 1)
    gone = msgspec.structs.replace(planned(), skipped="the source topic no longer exists, or was re-created")
    missing = [
        Uncopied(source=ORDERS, target=COPY, start=0, end=3, why=""),
        Uncopied(source=other, target=COPY, start=5, end=9, why="topic name collision"),
        Uncopied(source=TopicPartition("empty", 0), target=COPY, start=4, end=4, why=""),
    ]
    rows = [total(each) for each in _with_uncopied([gone], missing)]
    assert [(each.topic, each.partition, each.differences, each.skipped) for each in rows] == [
        ("orders", 0, {"not-copied": 3}, "none of it has been copied"),
        ("conflict", 1, {"not-copied": 4}, "none of it has been copied: topic name collision"),
        ("empty", 0, {}, "there is nothing to copy yet"),
    ]
    assert [is_bad(each) for each in rows] == [True, True, False]


@pytest.mark.parametrize(
    ("compared", "expected"),
    [
        (Compared(8, (), ()), {"expired": 2}),
        (Compared(8, (), (Explained("expired", "source", 104, 105),)), {"expired": 2}),
        # A record that the source still has is missing, not lost.
        (Compared(8, (Difference("missing", 104, None, 2),), ()), {}),
    ],
)
def test_losses_inside_a_range_are_counted_once(compared: Compared, expected: dict[str, int]) -> None:
    """A comparison of batches or records meets only what the source still has, so it mentions no lost record."""
    torn = msgspec.structs.replace(
        TEN,
        pieces=(MapPiece(0, 100, 10, 4), MapPiece(4, 106, 14, 4)),
        verdicts=(Verdict(104, 106, "expired"),),
    )
    lane = LaneAuditPlan(
        lane=lane_id(0), audited=AuditedLane(source=ORDERS, target=COPY, committed=True), ranges=(torn,)
    )
    result = RangeResult(lane=lane_id(0), first=torn.first, end=torn.end, by="batches", compared=compared)
    counted = summary(FlowPlan(flow="eu-us", source="eu", target="us", lanes=(lane,)), lane, [result], level="digest")
    assert counted.explained == expected
    assert is_bad(counted) is bool(expected or compared.differences)
