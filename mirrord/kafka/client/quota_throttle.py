"""Tracks how long a broker throttles a connection of mirrord because a quota is used up.

The broker answers immediately, states the throttle time in the answer, and reads nothing from the connection for that
long (KIP-219).
"""

import time

from mirrord.kafka.client.request_pipeline import FramePipe
from mirrord.kafka.client.request_stats import RequestStats


class Throttle:
    """The throttle time of one connection."""

    __slots__ = ("_stats", "_until")

    def __init__(self, stats: RequestStats) -> None:
        """`stats` counts the total throttle time."""
        self._stats = stats
        self._until = 0.0

    def record(self, throttle_ms: int, pipe: FramePipe) -> None:
        """Record the throttle time of an answer on this connection; 0 means that it is not throttled."""
        if throttle_ms > 0:
            self._stats.throttled(throttle_ms / 1000)
            self._until = max(self._until, time.monotonic() + throttle_ms / 1000)
            pipe.throttled(throttle_ms / 1000)

    @property
    def left_s(self) -> float:
        """Remaining throttle time. May be read from another thread."""
        return max(0.0, self._until - time.monotonic())
