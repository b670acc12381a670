"""Figures of a flow: how far behind lanes are, and counters that never go back, whichever replicators end."""

from itertools import pairwise

import msgspec
import pytest

from mirrord.kafka.client.request_stats import RequestStats
from mirrord.model.metrics import LATENCY_BOUNDS_S
from mirrord.model.names import LaneId
from mirrord.model.status import RequestsStatus
from mirrord.replication.lane.assignment import LaneReport, ReplicatorReport
from mirrord.supervision.flow_stats import ENDS_KEPT, FlowFigures
from mirrord.supervision.rules.lag import lag_seconds
from mirrord.topics.rules.retention import Retention

LANE = LaneId("a")


def lane(position: int, end: int = -1, age_s: float = 0.0, copied: int = 0, name: LaneId = LANE) -> LaneReport:
    return LaneReport(
        lane=name,
        source_topic="t",
        target_topic="t",
        partition=0,
        phase="copying",
        ordinal=0,
        source_offset=position,
        source_end=end,
        source_end_age_s=age_s,
        target_offset=0,
        protected=True,
        last_record_ms=-1,
        raw_batches=copied // 10,
        rebuilt={"compacted": copied // 100},
        copied_records=copied,
        copied_bytes=copied * 100,
        in_flight_bytes=0,
        note="",
    )


def report(name: str, *lanes: LaneReport, requests: tuple[RequestsStatus, ...] = ()) -> dict[str, ReplicatorReport]:
    return {
        name: ReplicatorReport(
            name=name,
            pid=1,
            host="h",
            loop_age_ms=0,
            cpu_seconds=0,
            rss_bytes=0,
            lanes=lanes,
            source_error="",
            target_error="",
            lease_valid_s=5,
            lost=False,
            requests=requests,
        )
    }


def test_a_lane_is_urgent_by_the_settings_of_its_topic_alone() -> None:
    figures, wall_ms = FlowFigures(), 1_800_000_000_000
    waiting = msgspec.structs.replace(lane(10, 900), source_start=0, next_record_ms=wall_ms - 500_000)
    reported = report("one", waiting)
    for now in (0.0, 100.0):
        figures.note(reported, 0, now)
    assert figures.urgent(reported, wall_ms) == set()
    for limit_ms, found in ((500_000 + 3_600_000, set[LaneId]()), (500_000 + 3_599_000, {LANE})):
        figures.retention = {"t": Retention(limit_ms)}
        assert figures.urgent(reported, wall_ms) == found


def test_an_end_that_is_reached_shows_until_when_all_is_copied() -> None:
    figures = FlowFigures()
    assert figures.behind.held_s(LANE, 100) is None
    figures.note(report("one", lane(position=50, end=100)), 0, now=100)
    assert figures.behind.held_s(LANE, 101) is None, "the end of the source was never reached"
    figures.note(report("one", lane(position=90, end=200)), 0, now=101)
    figures.note(report("one", lane(position=100, end=300)), 0, now=102)
    assert figures.behind.held_s(LANE, 102) == 2, "what was there at 100 s is copied"
    figures.note(report("two", lane(position=300, end=300, age_s=0.5)), 0, now=103)
    assert figures.behind.held_s(LANE, 103) == 0.5, "it was so when the source said it; another host goes on"


def test_a_topic_without_new_records_is_not_behind() -> None:
    figures = FlowFigures()
    for now in range(100, 1_000):
        figures.note(report("one", lane(position=7, end=7, age_s=0.25)), 0, now=now)
        assert figures.behind.held_s(LANE, now) == 0.25
    figures.note(report("one", lane(position=7, end=8)), 0, now=1_000)
    assert figures.behind.held_s(LANE, 1_000) == 1.25


def test_while_the_source_does_not_answer_the_time_grows() -> None:
    figures = FlowFigures()
    figures.note(report("one", lane(position=7, end=7)), 0, now=100)
    figures.note(report("one", lane(position=7)), 0, now=160)
    assert figures.behind.held_s(LANE, 160) == 60


def test_a_source_that_went_back_does_not_make_a_lane_look_ahead() -> None:
    figures = FlowFigures()
    figures.note(report("one", lane(position=50, end=100)), 0, now=100)
    figures.note(report("one", lane(position=50, end=60)), 0, now=101)
    assert figures.behind.held_s(LANE, 101) is None
    figures.note(report("one", lane(position=60, end=60)), 0, now=102)
    assert figures.behind.held_s(LANE, 102) == 0


def test_a_lane_that_stays_behind_takes_no_more_memory_and_errs_upwards() -> None:
    figures = FlowFigures()
    for second in range(10_000):
        figures.note(report("one", lane(position=0, end=100 + second)), 0, now=second)
    trail = figures.behind._trails[LANE]  # pyright: ignore[reportPrivateUsage]
    assert len(trail.ends) <= ENDS_KEPT + 1
    assert trail.ends[-1] == (9_999, 10_099)
    figures.note(report("one", lane(position=5_100, end=10_100)), 0, now=10_000)
    held = figures.behind.held_s(LANE, 10_000)
    assert held is None or held >= 5_000, "the end at 5000 s was 5100"


def test_figures_of_lanes_that_are_gone_are_forgotten() -> None:
    figures = FlowFigures()
    figures.note(report("one", lane(7, 7), lane(7, 7, name=LaneId("b"))), 0, now=1)
    figures.keep([LANE])
    figures.note({}, 0, now=2)
    assert figures.behind.held_s(LANE, 2) == 1, "a lane without a host is as far behind as it was"
    assert figures.behind.held_s(LaneId("b"), 2) is None
    assert figures.rates.of("one", LANE) == (None, None)


@pytest.mark.parametrize(
    ("lag", "last_record_ms", "held_s", "seconds"),
    [
        (None, 99_000, 5.0, None),
        (0, 1, 0.5, 0.0),
        (0, 1, None, 0.0),
        (0, 1, 30.0, 30.0),  # the source has not answered for so long
        (3, 99_000, None, 1.0),
        (3, 99_000, 5.0, 1.0),
        (3, 1_000, 5.0, 5.0),  # records are old, or the topic was quiet
        (3, 200_000, 5.0, 5.0),  # a record of tomorrow
        (3, 200_000, None, None),
        (3, -1, None, None),
    ],
)
def test_lag_in_seconds(lag: int | None, last_record_ms: int, held_s: float | None, seconds: float | None) -> None:
    assert lag_seconds(lag, last_record_ms, 100_000, held_s) == seconds


def test_counters_never_go_back() -> None:
    figures = FlowFigures()
    rows: list[tuple[int, int, int, int]] = []

    def see(reports: dict[str, ReplicatorReport], deaths: int = 0) -> None:
        figures.note(reports, deaths, now=len(rows))
        counts = figures.counts
        rows.append((counts.copied_records, counts.copied_bytes, counts.raw_batches, counts.replicator_deaths))

    see(report("one", lane(0, copied=100)))
    see(report("one", lane(0, copied=300)))
    see(report("two", lane(0, copied=50)), deaths=1)  # it moved
    see({}, deaths=1)
    see(report("two", lane(0, copied=20)), deaths=1)  # it came back to a host that had released it
    see(report("two", lane(0, copied=10)), deaths=0)  # another lease, and the lane begins again
    assert [records for records, *_ in rows] == [100, 300, 350, 350, 370, 380]
    assert [size for _, size, *_ in rows] == [100 * records for records, *_ in rows]
    assert rows[-1][3] == 1
    assert all(before <= after for row in pairwise(rows) for before, after in zip(*row, strict=True))
    assert figures.counts.rebuilt_batches == {"compacted": 3}


def test_what_was_copied_before_this_process_began_is_not_counted_again() -> None:
    stats = RequestStats("produce")
    stats.took(0.003)
    figures = FlowFigures()
    figures.adopt(["one"])
    figures.note(report("one", lane(0, copied=1_000), requests=(stats.status(),)), 0, now=1)
    assert figures.counts.copied_records == 0
    stats.took(0.003)
    figures.note(report("one", lane(0, copied=1_100), requests=(stats.status(),)), 0, now=2)
    figures.note(report("two", lane(0, copied=70)), 0, now=3)
    counts = figures.counts
    assert (counts.copied_records, counts.raw_batches, counts.rebuilt_batches) == (170, 17, {"compacted": 1})
    assert sum(counts.requests[0].buckets) == 1


def test_requests_of_all_replicators_add_up() -> None:
    one, two = RequestStats("produce"), RequestStats("produce")
    figures = FlowFigures()
    for seconds in (0.0005, 0.003, 99.0):
        one.took(seconds)
    one.failed(7, 2)
    one.throttled(1.5)
    figures.note(report("one", requests=(one.status(),)), 0, now=1)
    figures.note(report("one", requests=(one.status(),)), 0, now=2)
    two.took(0.003)
    two.failed(7)
    two.failed(30_000)
    two.throttled(0.5)
    figures.note(report("two", requests=(two.status(),)), 0, now=3)
    (requests,) = figures.counts.requests
    assert requests.buckets == (1, 2, *(0,) * (len(LATENCY_BOUNDS_S) - 2), 1)
    assert requests.seconds == pytest.approx(99.0065)
    assert requests.errors == {"REQUEST_TIMED_OUT": 3, "error 30000": 1}
    assert requests.throttled_s == 2
