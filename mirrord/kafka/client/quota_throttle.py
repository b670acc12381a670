"""Tracks how long a broker throttles one of mirrord's connections because mirrord has exceeded a quota.

The broker answers immediately and states the throttle time in the answer. During that time, the broker reads nothing
from the connection (KIP-219).
"""

import time

from mirrord.kafka.client.request_pipeline import FramePipe
from mirrord.kafka.client.request_stats import RequestStats


class Throttle:
    """The throttle time of one connection."""

    __slots__ = ("_stats", "_until")

    def __init__(self, stats: RequestStats) -> None:
        """The throttle times of all answers are added to `stats`."""
        self._stats = stats
        self._until = 0.0

    def record(self, throttle_ms: int, pipe: FramePipe) -> None:
        """Record the throttle time of an answer on this connection. The value 0 means that the broker does not throttle
        the connection."""
        if throttle_ms > 0:
            self._stats.throttled(throttle_ms / 1000)
            self._until = max(self._until, time.monotonic() + throttle_ms / 1000)
            pipe.throttled(throttle_ms / 1000)

    @property
    def left_s(self) -> float:
        """The remaining throttle time in seconds. Another thread may also read this property."""
        return max(0.0, self._until - time.monotonic())
