"""How much may be on its way to one broker: enough to keep it busy, and not so much that others wait for it.

A connection's requests are answered one after the other, so whatever is sent waits for all that was sent before. What
waits here instead can be overtaken (`mirrord.flow.packing`). Bytes may be as many as the broker takes in the time of
its soonest answer and a tenth of a second; that is how long a small request then waits at most. Requests may be twice
as many as it answers in the time of its soonest answer: a partition's batches go in requests of their own, so over a
long way a broker is busy only where many of them are under way, and near by more of them would only wait.
"""

LEAST_BYTES = 4 << 20
"""A few full requests: some are worked on while others are under way."""
MOST_BYTES = 64 << 20
LEAST_REQUESTS = 32
MOST_REQUESTS = 1_024
WAIT_S = 0.1
ROUND_TRIPS = 2
FAR_S = 0.02
"""A broker none of whose answers came sooner is far away."""
_NEW_SHARE = 0.125
"""How much the newest answer counts for a rate, at most."""
_LATE_SHARE = 0.25
"""How much a whole round trip's answers count that came late: a broker that stands still for a moment would find
nothing to do when it goes on, and the window grows by twice in a round trip at most."""


class ByteWindow:
    """Of one connection. Times are told in seconds."""

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
        """Requests without an answer."""
        self.in_flight_bytes = 0
        self._answered = 0
        self._answered_bytes = 0
        self._rate = 0.0
        """Bytes per second that the broker takes while it always has some."""
        self._request_rate = 0.0
        """Requests per second that it answers while it always has as many as it may."""
        self._soonest_s = float("inf")

    @property
    def is_open(self) -> bool:
        """Whether another request may be sent. One that is larger than the window goes alone."""
        return self.in_flight_bytes < self.limit_bytes and self.in_flight < self.limit_requests

    @property
    def is_far(self) -> bool:
        """Whether it takes long until anything is answered."""
        return FAR_S <= self._soonest_s < float("inf")

    def sent(self, size: int) -> tuple[int, int]:
        """A request of so many bytes is on its way; what `answered` wants to be told of it."""
        self.in_flight += 1
        self.in_flight_bytes += size
        return self._answered_bytes, self._answered

    def answered(self, size: int, took_s: float, told: tuple[int, int]) -> None:
        """It was answered, after so long; `told`: what `sent` gave."""
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
            self._rate = self._learnt(self._rate, (self._answered_bytes - told[0]) / took_s)
            self.limit_bytes = min(MOST_BYTES, max(LEAST_BYTES, int(self._rate * (soonest_s + WAIT_S))))
        if were_many:
            self._request_rate = rate = self._learnt(self._request_rate, (self._answered - told[1]) / took_s)
            self.limit_requests = min(MOST_REQUESTS, max(LEAST_REQUESTS, int(ROUND_TRIPS * rate * soonest_s)))

    def _learnt(self, known: float, newest: float) -> float:
        """A rate, after another answer."""
        if not known:
            return newest
        late = newest < known and self.in_flight
        share = min(_NEW_SHARE, _LATE_SHARE / self.in_flight) if late else _NEW_SHARE
        return known + (newest - known) * share
