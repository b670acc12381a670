"""The retention forecast."""

from msgspec.structs import replace

from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import LaneReport
from mirrord.replication.lane.flow_control.retention_forecast import WINDOW_S, RetentionForecast
from mirrord.topics.rules.retention import Retention, retention_of

LANE = LaneId("a.0.b")
REPORT = LaneReport(
    lane=LANE,
    source_topic="orders",
    target_topic="eu.orders",
    partition=0,
    phase="copying",
    ordinal=0,
    source_offset=1_000,
    source_end=9_000,
    source_start=0,
    target_offset=0,
    protected=True,
    last_record_ms=-1,
    raw_batches=0,
    rebuilt={},
    copied_records=0,
    copied_bytes=0,
    in_flight_bytes=0,
    note="",
)


def left_s(*seen: tuple[float, int, int]) -> float | None:
    """The forecast after reports of (time, log start, position)."""
    headroom = RetentionForecast()
    for now, start, offset in seen:
        headroom.note(replace(REPORT, source_start=start, source_offset=offset), now)
    return headroom.left_s(LANE)


def test_a_log_start_that_comes_nearer() -> None:
    assert left_s((0, 0, 1_000)) is None
    assert left_s((0, 0, 1_000), (100, 0, 1_000)) is None
    # Of 1,000 offsets 200 expired in 100 s, and the lane did not move.
    assert left_s((0, 0, 1_000), (100, 200, 1_000)) == 400
    # It copied 100 meanwhile, so the distance shrank by 100 and is 900.
    assert left_s((0, 0, 1_000), (100, 200, 1_100)) == 900
    assert left_s((0, 0, 1_000), (100, 200, 1_200)) is None


def test_a_lane_that_is_overtaken() -> None:
    assert left_s((0, 0, 1_000), (100, 1_000, 1_000)) == 0


def test_old_observations_do_not_count() -> None:
    # There was one jump of 500, more than an hour ago.
    later = ((WINDOW_S + at, 500, 1_000) for at in (100, 200, 4_000))
    assert left_s((0, 0, 1_000), (10, 500, 1_000), *later) is None


def test_a_lane_without_lag_has_nothing_to_lose() -> None:
    assert left_s((0, 0, 1_000), (100, 200, 9_000)) is None


def test_a_source_that_went_back_is_examined_again() -> None:
    assert left_s((0, 0, 1_000), (100, 200, 1_000), (160, 200, 900)) is None


def test_little_is_kept() -> None:
    headroom = RetentionForecast()
    for second in range(10_000):
        headroom.note(replace(REPORT, source_start=second // 100), float(second))
    assert len(headroom._seen[LANE].points) < 70
    headroom.keep(())
    assert headroom.left_s(LANE) is None


WEEK_MS = 7 * 86_400_000
NOW_MS = 1_800_000_000_000


def by_settings(retention: Retention, *seen: tuple[float, int, int, int], **more: int) -> float | None:
    """The forecast by a topic's settings, after reports of (time, position, end, newest time of the next batch)."""
    headroom = RetentionForecast()
    for now, offset, end, next_ms in seen:
        report = replace(REPORT, source_offset=offset, source_end=end, next_record_ms=next_ms, **more)
        headroom.note(report, now)
    return headroom.left_s(LANE, retention, NOW_MS)


def test_records_that_grow_older_than_retention_allows() -> None:
    week = Retention(ms=WEEK_MS)
    hour_left = NOW_MS - WEEK_MS + 3_600_000
    # It does not move: an hour is left.
    assert by_settings(week, (0, 10, 900, hour_left), (100, 10, 900, hour_left)) == 3600
    # In 100 s it advanced by 50 s: it takes twice as long.
    assert by_settings(week, (0, 10, 900, hour_left - 50_000), (100, 20, 900, hour_left)) == 7200
    # It advances as fast as time.
    assert by_settings(week, (0, 10, 900, hour_left - 100_000), (100, 20, 900, hour_left)) is None
    late = NOW_MS - WEEK_MS - 1
    assert by_settings(week, (0, 10, 900, late), (100, 10, 900, late)) == 0


def test_unknown_record_data_gives_no_forecast() -> None:
    week, old = Retention(ms=WEEK_MS), NOW_MS - WEEK_MS
    assert by_settings(week, (0, 10, 900, old)) is None
    assert by_settings(week, (0, 10, 900, old), (100, 20, 900, -1)) is None
    assert by_settings(week, (0, 10, 900, -1), (100, 10, 900, old)) is None
    assert by_settings(Retention(), (0, 10, 900, old), (100, 10, 900, old)) is None
    assert by_settings(Retention(bytes=1), (0, 10, 900, old), (100, 10, 990, old)) is None


def test_more_than_retention_allows_follows() -> None:
    # Records of 100 bytes: 900 of them, and 10 more every 100 s.
    points = ((0.0, 0, 890, -1), (100.0, 0, 900, -1))
    size = {"copied_records": 50, "copied_bytes": 5_000}
    assert by_settings(Retention(bytes=100_000), *points, **size) == 1_000
    assert by_settings(Retention(bytes=50_000), *points, **size) == 0
    assert by_settings(Retention(bytes=100_000), (0.0, 0, 900, -1), (100.0, 10, 910, -1), **size) is None


def test_the_soonest_counts() -> None:
    headroom = RetentionForecast()
    for now, start in ((0.0, 0), (100.0, 200)):
        headroom.note(replace(REPORT, source_start=start, next_record_ms=NOW_MS - WEEK_MS + 60_000), now)
    assert headroom.left_s(LANE) == 400
    assert headroom.left_s(LANE, Retention(ms=WEEK_MS), NOW_MS) == 60
    assert headroom.left_s(LANE, Retention(ms=2 * WEEK_MS), NOW_MS) == 400


def test_retention_that_topic_configs_define() -> None:
    limits: dict[str, str | None] = {"retention.ms": "604800000", "retention.bytes": "-1"}
    assert retention_of({**limits, "cleanup.policy": "delete"}) == Retention(WEEK_MS)
    assert retention_of({**limits, "cleanup.policy": "compact,delete", "retention.bytes": "5"}) == Retention(WEEK_MS, 5)
    for policy in ("compact", "", None):
        assert retention_of({**limits, "cleanup.policy": policy}) == Retention()
    assert retention_of({"cleanup.policy": "delete", "retention.ms": None, "retention.bytes": "much"}) == Retention()
