"""How long a broker lets one of our connections wait, because a quota is used up.

It answers at once and says so with the answer, and reads nothing from the connection for that long (KIP-219).
"""

import time

from mirrord.kafka.client.request_pipeline import FramePipe
from mirrord.kafka.client.request_stats import RequestStats


class Throttle:
    """Of one connection."""

    __slots__ = ("_stats", "_until")

    def __init__(self, stats: RequestStats) -> None:
        """`stats` count what it comes to."""
        self._stats = stats
        self._until = 0.0

    def told(self, throttle_ms: int, pipe: FramePipe) -> None:
        """An answer of this connection says so; 0: it does not."""
        if throttle_ms > 0:
            self._stats.throttled(throttle_ms / 1000)
            self._until = max(self._until, time.monotonic() + throttle_ms / 1000)
            pipe.throttled(throttle_ms / 1000)

    @property
    def left_s(self) -> float:
        """So much longer it waits. May be asked from another thread."""
        return max(0.0, self._until - time.monotonic())
