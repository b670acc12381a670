"""The window of bytes against fake brokers that process one connection's requests one after the other."""

from collections import deque
from dataclasses import dataclass

import pytest

from mirrord.replication.lane.flow_control.byte_window import (
    LEAST_BYTES,
    LEAST_REQUESTS,
    MOST_BYTES,
    MOST_REQUESTS,
    ByteWindow,
)

MIB = 1 << 20


@dataclass
class Broker:
    """A broker that takes `rate` bytes per second, with a round trip of `way_s`."""

    rate: float
    way_s: float
    now: float = 0.0
    free_at: float = 0.0

    def takes(self, size: int) -> float:
        """When a request that is sent now is answered."""
        self.free_at = max(self.free_at, self.now + self.way_s / 2) + size / self.rate
        return self.free_at + self.way_s / 2


def catch_up(broker: Broker, window: ByteWindow, seconds: float, request: int = MIB) -> tuple[float, list[float]]:
    """Continuously send what the window lets through. Returns the bytes per second in the second half, and for each
    answer in it how long a small request that is sent then waits."""
    on_their_way: deque[tuple[float, float, tuple[int, int]]] = deque()
    answered, waits, until = 0, [], broker.now + seconds
    half = broker.now + seconds / 2
    while broker.now < until:
        while window.is_open:
            on_their_way.append((broker.now, broker.takes(request), window.sent(request)))
        sent, answer, counts = on_their_way.popleft()
        broker.now = answer
        window.answered(request, answer - sent, counts)
        if broker.now > half:
            answered += request
            waits.append(max(0.0, broker.free_at - broker.now))
    while on_their_way:
        sent, broker.now, counts = on_their_way.popleft()
        window.answered(request, broker.now - sent, counts)
    return answered / (until - half), waits


@pytest.mark.parametrize(
    ("rate", "way_s", "most_wait_s"),
    [
        (800 * MIB, 0.002, 0.11),
        (200 * MIB, 0.005, 0.13),
        (100 * MIB, 0.1, 0.16),
        (16 * MIB, 0.002, 0.26),
        (4 * MIB, 0.002, 1.0),
    ],
    ids=["near and fast", "near", "far", "slow", "very slow"],
)
def test_it_keeps_a_broker_busy_and_nobody_waiting_long(rate: float, way_s: float, most_wait_s: float) -> None:
    window = ByteWindow()
    reached, waits = catch_up(Broker(rate, way_s), window, 30.0)
    assert reached >= 0.9 * rate
    assert max(waits) <= most_wait_s
    assert window.in_flight_bytes == 0


def test_it_follows_a_broker_that_becomes_slow_and_fast_again() -> None:
    window, broker = ByteWindow(), Broker(400 * MIB, 0.002)
    catch_up(broker, window, 10.0)
    wide = window.limit_bytes
    broker.rate = 8 * MIB
    _, waits = catch_up(broker, window, 30.0)
    assert waits[-1] <= LEAST_BYTES / broker.rate
    assert window.limit_bytes < wide / 2
    broker.rate = 400 * MIB
    reached, _ = catch_up(broker, window, 30.0)
    assert reached >= 0.9 * broker.rate


def test_a_request_larger_than_the_window_is_sent_alone_and_a_small_one_is_no_measurement() -> None:
    window = ByteWindow()
    for _ in range(100):
        window.answered(100, 0.0001, window.sent(100))
    assert window.limit_bytes == LEAST_BYTES
    counts = window.sent(2 * LEAST_BYTES)
    assert not window.is_open
    window.answered(2 * LEAST_BYTES, 0.001, counts)
    assert window.is_open
    assert window.limit_bytes == MOST_BYTES


def test_small_requests_keep_a_far_broker_busy_and_are_few_at_a_near_one() -> None:
    far, near = ByteWindow(), ByteWindow()
    reached, waits = catch_up(Broker(100 * MIB, 0.1), far, 10.0, request=64 << 10)
    assert reached >= 0.9 * 100 * MIB
    assert max(waits) <= 0.16
    assert far.is_far
    assert far.limit_requests <= MOST_REQUESTS
    catch_up(Broker(4 * MIB, 0.001), near, 1.0, request=1 << 10)
    assert near.limit_requests == LEAST_REQUESTS
    assert not near.is_far


def test_a_far_broker_that_stops_for_a_moment_is_kept_busy_when_it_continues() -> None:
    window, broker = ByteWindow(), Broker(100 * MIB, 0.1)
    catch_up(broker, window, 5.0, request=64 << 10)
    wide = window.limit_requests, window.limit_bytes
    broker.free_at = broker.now + 0.5
    catch_up(broker, window, 0.7, request=64 << 10)
    assert window.limit_requests >= 0.6 * wide[0]
    assert window.limit_bytes >= 0.6 * wide[1]
