"""What is handed to Ray's metrics, with a fake Ray that only records it."""

# pyright: reportPrivateUsage=false

import asyncio
import math

import msgspec
import pytest
import structlog.testing

from actors import ray_metrics
from actors.ray_metrics import RayMetrics
from mirrord.model.status import Status
from tests.fixtures.clock import FakeClock
from tests.fixtures.full_status import FULL

Noted = dict[tuple[str, ...], float]


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Noted:
    values: Noted = {}

    class Made:
        def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
            assert description
            self.name, self.tag_keys = name, tag_keys

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert tuple(tags) == self.tag_keys
            values[self.name, *tags.values()] = value

        def inc(self, value: float, tags: dict[str, str]) -> None:
            assert value > 0
            key = (self.name, *tags.values())
            values[key] = values.get(key, 0.0) + value

    monkeypatch.setattr(ray_metrics.ray_metrics, "Gauge", Made)
    monkeypatch.setattr(ray_metrics.ray_metrics, "Counter", Made)
    return values


def changed(**fields: object) -> Status:
    flow = msgspec.structs.replace(FULL.flows[0], **fields)
    return msgspec.structs.replace(FULL, flows=(flow,))


def test_values_and_counters_arrive(noted: Noted) -> None:
    metrics = RayMetrics()
    metrics.publish(FULL)
    metrics.publish(FULL)
    assert noted["mirrord_lag_records", "eu-us", "orders", "0"] == 10
    assert noted["mirrord_copied_records", "eu-us"] == 100
    assert noted["mirrord_batches", "eu-us", "raw", ""] == 3
    assert noted["mirrord_request_seconds_sum", "eu-us", "fetch"] == 12
    assert noted["mirrord_request_seconds_count", "eu-us", "fetch"] == 8
    counts = FULL.flows[0].counts
    assert counts is not None
    metrics.publish(changed(counts=msgspec.structs.replace(counts, copied_records=150)))
    assert noted["mirrord_copied_records", "eu-us"] == 150


def test_values_that_are_no_longer_known_are_not_published_forever(noted: Noted) -> None:
    metrics = RayMetrics()
    metrics.publish(FULL)
    metrics.publish(changed(state="draining", lanes=(), ledger_end=None))
    assert noted["mirrord_flow_state", "eu-us", "running"] == 0
    assert noted["mirrord_flow_state", "eu-us", "draining"] == 1
    assert noted["mirrord_lane_state", "eu-us", "orders", "0", "copying"] == 0
    assert math.isnan(noted["mirrord_ledger_end_offset", "eu-us"])
    assert math.isnan(noted["mirrord_lag_records", "eu-us", "orders", "0"])


async def test_a_ray_that_fails_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_metrics, "EVERY_S", 0.0)
    monkeypatch.setattr(ray_metrics.ray_metrics, "Gauge", lambda *_: 1 / 0)
    asked = 0
    enough = asyncio.Event()

    def status() -> Status:
        nonlocal asked
        asked += 1
        if asked > 3:
            enough.set()
        return FULL

    running = asyncio.create_task(RayMetrics().run(status))
    async with asyncio.timeout(10):
        await enough.wait()
    assert not running.done()
    running.cancel()


def lanes_of(*topics: str) -> Status:
    (lane, *_) = FULL.flows[0].lanes
    return changed(lanes=tuple(msgspec.structs.replace(lane, topic=topic) for topic in topics))


def topics_in(noted: Noted) -> set[str]:
    return {key[2] for key in noted if key[0] == "mirrord_lag_records"}


def test_short_lived_topics_get_no_series(noted: Noted) -> None:
    """Ray never forgets a series."""
    clock = FakeClock()
    metrics = RayMetrics(clock.monotonic)
    metrics.publish(lanes_of("early"))
    clock.now += ray_metrics.SETTLED_S
    for number in range(100):
        metrics.publish(lanes_of("early", "late", f"short-{number}"))
        clock.now += ray_metrics.EVERY_S
    assert topics_in(noted) == {"early", "late"}, "it has been there for long enough"
    metrics.publish(lanes_of("early"))
    assert math.isnan(noted["mirrord_lag_records", "eu-us", "late", "0"])
    metrics.publish(lanes_of("late"))
    assert noted["mirrord_lag_records", "eu-us", "late", "0"] == 10, "its series exists already"
    assert noted["mirrord_lanes_halted", "eu-us"] == 0, "a flow needs no patience"


def test_the_number_of_series_is_limited(noted: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_metrics, "SERIES_KEPT", 50)
    metrics = RayMetrics()
    with structlog.testing.capture_logs() as logged:
        for number in range(100):
            metrics.publish(lanes_of(f"short-{number}"))
    assert len(topics_in(noted)) == 50
    assert max(map(len, metrics._series.values())) == 50
    assert [each["event"] for each in logged] == ["ray_metrics_full"]
    assert noted["mirrord_copied_records", "eu-us"] == 100
