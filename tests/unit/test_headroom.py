"""The retention forecast."""

from msgspec.structs import replace

from mirrord.cluster.headroom import WINDOW_S, Headroom
from mirrord.model.assignment import LaneReport
from mirrord.model.names import LaneId

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


def told(*seen: tuple[float, int, int]) -> float | None:
    """The forecast after reports of (time, log start, position)."""
    headroom = Headroom()
    for now, start, offset in seen:
        headroom.note(replace(REPORT, source_start=start, source_offset=offset), now)
    return headroom.left_s(LANE)


def test_a_log_start_that_comes_nearer() -> None:
    assert told((0, 0, 1_000)) is None
    assert told((0, 0, 1_000), (100, 0, 1_000)) is None
    # Of 1,000 offsets 200 went in 100 s, and the lane stood still.
    assert told((0, 0, 1_000), (100, 200, 1_000)) == 400
    # It copied 100 meanwhile, so the distance shrank by 100 and is 900.
    assert told((0, 0, 1_000), (100, 200, 1_100)) == 900
    assert told((0, 0, 1_000), (100, 200, 1_200)) is None


def test_a_lane_that_is_overtaken() -> None:
    assert told((0, 0, 1_000), (100, 1_000, 1_000)) == 0


def test_what_is_long_ago_does_not_count() -> None:
    # It was a jump of 500 once, more than an hour ago.
    later = ((WINDOW_S + at, 500, 1_000) for at in (100, 200, 4_000))
    assert told((0, 0, 1_000), (10, 500, 1_000), *later) is None


def test_a_lane_without_lag_has_nothing_to_lose() -> None:
    assert told((0, 0, 1_000), (100, 200, 9_000)) is None


def test_a_source_that_went_back_is_looked_at_anew() -> None:
    assert told((0, 0, 1_000), (100, 200, 1_000), (160, 200, 900)) is None


def test_little_is_kept() -> None:
    headroom = Headroom()
    for second in range(10_000):
        headroom.note(replace(REPORT, source_start=second // 100), float(second))
    assert len(headroom._seen[LANE]) < 70
    headroom.keep(())
    assert headroom.left_s(LANE) is None
