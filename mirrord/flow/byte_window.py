"""How many bytes may be on their way to one broker: enough to keep it busy, and not so many that others wait for them.

A connection's requests are answered one after the other, so whatever is sent waits for all that was sent before. What
waits here instead can be overtaken (`mirrord.flow.packing`). The window is what the broker takes in the time of its
soonest answer and a tenth of a second; that is how long a small request then waits at most.
"""

LEAST_BYTES = 4 << 20
"""A few full requests: some are worked on while others are under way."""
MOST_BYTES = 64 << 20
WAIT_S = 0.1
_NEW_SHARE = 0.125
"""How much the newest answer counts for the rate."""


class ByteWindow:
    """Of one connection. Times are told in seconds."""

    __slots__ = ("_answered_bytes", "_rate", "_soonest_s", "in_flight_bytes", "limit_bytes")

    def __init__(self) -> None:
        self.limit_bytes = LEAST_BYTES
        self.in_flight_bytes = 0
        self._answered_bytes = 0
        self._rate = 0.0
        """Bytes per second that the broker takes while it always has some."""
        self._soonest_s = float("inf")

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent. One that is larger than the window goes alone."""
        return self.in_flight_bytes < self.limit_bytes

    def sent(self, size: int) -> int:
        """A request of so many bytes is on its way; what `answered` wants to be told of it."""
        self.in_flight_bytes += size
        return self._answered_bytes

    def answered(self, size: int, took_s: float, told: int) -> None:
        """It was answered, after so long; `told`: what `sent` gave."""
        was_full = 2 * self.in_flight_bytes > self.limit_bytes
        self.in_flight_bytes -= size
        self._answered_bytes += size
        if not was_full or took_s <= 0:
            return
        self._soonest_s = min(self._soonest_s, took_s)
        rate = (self._answered_bytes - told) / took_s
        self._rate += (rate - self._rate) * (_NEW_SHARE if self._rate else 1.0)
        self.limit_bytes = min(MOST_BYTES, max(LEAST_BYTES, int(self._rate * (self._soonest_s + WAIT_S))))
