"""Limits the data in flight to one broker: enough to keep the broker busy, without making other batches wait
unnecessarily.

A broker answers the requests on a connection one after another, so a request waits for all requests that were sent
before it. Therefore, batches are held back when a limit is reached. While they are held back, a small batch can still
overtake them (`mirrord.replication.lane.flow_control.request_packing`).

The limit in bytes is the amount of data that the broker accepts within the duration of its fastest response plus a
tenth of a second. Even a small request therefore waits for at most about that long.

The limit in requests is twice the number of requests that the broker answers within the duration of its fastest
response. A request holds at most one batch of a partition, so a distant broker is kept busy only if many requests are
in flight. A nearby broker needs fewer: additional requests would only wait in its queue.
"""

LEAST_BYTES = 4 << 20
"""Smallest limit in bytes: a few full requests, so that some are processed while others are in transit."""
MOST_BYTES = 64 << 20
LEAST_REQUESTS = 32
MOST_REQUESTS = 1_024
WAIT_S = 0.1
ROUND_TRIPS = 2
FAR_S = 0.02
"""A broker counts as far away if its fastest answer took at least this number of seconds."""
_NEW_SHARE = 0.125
"""Largest weight of the newest answer in the average rate."""
_LATE_SHARE = 0.25
"""Total weight that the late answers of one round trip have in the average rate. An answer is late if its rate is lower
than the average. The weight is small so that the rate does not drop much when a broker pauses for a moment. If the rate
did drop, the broker would run out of requests after the pause, because the window at most doubles in size with each
round trip."""


class ByteWindow:
    """The limits for one connection, and the data in flight on it. Times are in seconds."""

    __slots__ = (
        "_answered",
        "_answered_bytes",
        "_rate",
        "_request_rate",
        "_soonest_s",
        "in_flight",
        "in_flight_bytes",
        "limit_bytes",
        "limit_requests",
    )

    def __init__(self) -> None:
        self.limit_bytes = LEAST_BYTES
        self.limit_requests = LEAST_REQUESTS
        self.in_flight = 0
        """Number of requests that have not been answered yet."""
        self.in_flight_bytes = 0
        self._answered = 0
        self._answered_bytes = 0
        self._rate = 0.0
        """Bytes per second that the broker accepts while it always has data waiting."""
        self._request_rate = 0.0
        """Requests per second that the broker answers while the number of requests in flight is at its limit."""
        self._soonest_s = float("inf")

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent. A request that is larger than the window is sent alone."""
        return self.in_flight_bytes < self.limit_bytes and self.in_flight < self.limit_requests

    @property
    def is_far(self) -> bool:
        """Whether the broker is far away: even its fastest answer took a long time."""
        return FAR_S <= self._soonest_s < float("inf")

    def sent(self, size: int) -> tuple[int, int]:
        """Count a request of `size` bytes as sent. Return the values that must be passed to `answered` for this
        request."""
        self.in_flight += 1
        self.in_flight_bytes += size
        return self._answered_bytes, self._answered

    def answered(self, size: int, took_s: float, counts: tuple[int, int]) -> None:
        """Count a request as answered after `took_s` seconds. `counts` is the return value of `sent` for this
        request."""
        was_full = 2 * self.in_flight_bytes > self.limit_bytes
        were_many = 2 * self.in_flight > self.limit_requests
        self.in_flight -= 1
        self.in_flight_bytes -= size
        self._answered += 1
        self._answered_bytes += size
        if took_s <= 0:
            return
        soonest_s = self._soonest_s = min(self._soonest_s, took_s)
        if was_full:
            self._rate = self._learnt(self._rate, (self._answered_bytes - counts[0]) / took_s)
            self.limit_bytes = min(MOST_BYTES, max(LEAST_BYTES, int(self._rate * (soonest_s + WAIT_S))))
        if were_many:
            self._request_rate = rate = self._learnt(self._request_rate, (self._answered - counts[1]) / took_s)
            self.limit_requests = min(MOST_REQUESTS, max(LEAST_REQUESTS, int(ROUND_TRIPS * rate * soonest_s)))

    def _learnt(self, known: float, newest: float) -> float:
        """Return the average rate `known` after updating it with `newest`, the rate of the newest answer."""
        if not known:
            return newest
        late = newest < known and self.in_flight
        share = min(_NEW_SHARE, _LATE_SHARE / self.in_flight) if late else _NEW_SHARE
        return known + (newest - known) * share
