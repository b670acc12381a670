"""The status document adds up and survives the way through JSON."""

import msgspec
import pytest

from mirrord.model.status import LaneStatus, Status, Totals


def lane(partition: int, **known: object) -> LaneStatus:
    values = {"topic": "orders", "partition": partition, "target_topic": "eu.orders", "state": "copying"} | known
    return msgspec.convert(values, LaneStatus)


def test_totals_add_up() -> None:
    totals = Totals.of(
        [
            lane(0, lag_records=5, lag_s=1.5, records_per_s=10.0, raw_batches=3, rebuilt_batches={"compacted": 1}),
            lane(1, lag_records=7, lag_s=0.5, records_per_s=20.0, verdict_offsets={"control": 2}),
            lane(2, state="halted", lag_records=0, lag_s=0.0, verdict_offsets={"control": 1, "aborted": 4}),
        ]
    )
    assert totals.lanes == {"copying": 2, "halted": 1}
    assert (totals.lag_records, totals.lag_s, totals.records_per_s) == (12, 1.5, 30.0)
    assert totals.raw_share == 0.75
    assert totals.verdict_offsets == {"aborted": 4, "control": 3}


def test_what_no_lane_knows_is_not_zero() -> None:
    totals = Totals.of([lane(0), lane(1)])
    assert totals.lag_records is None
    assert totals.lag_s is None
    assert totals.bytes_per_s is None
    assert totals.raw_share is None


def test_a_lag_that_one_lane_does_not_know_is_not_the_sum_of_the_others() -> None:
    totals = Totals.of([lane(0, lag_records=0, lag_s=0.0), lane(1)])
    assert (totals.lag_records, totals.lag_s) == (None, None)
    assert Totals.of([]).lag_records is None


def test_the_document_survives_json() -> None:
    status = Status(version="0.1.0", instance="blue", at_ms=1, gathered="target", flows=())
    assert Status.decode(status.encode()) == status
    assert Status.decode(status.encode().replace(b"{", b'{"later":1,', 1)) == status
    with pytest.raises(ValueError, match="malformed"):
        Status.decode(b"<html>")
