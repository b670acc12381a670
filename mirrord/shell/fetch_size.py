"""How much one fetch request brings: more from a broker that is far away, so that it is kept busy meanwhile.

A lane's next fetch can only be asked for when the one before it was answered, so a lane brings one fetch in a round
trip and the time of its transfer. Near brokers are asked for what all lanes have room for. One that is far away is
asked for what it sends in several round trips, where there is so much room, so that most of the time something is on
its way.
"""

from mirrord.flow.byte_window import FAR_S

ROUND_TRIPS = 4
"""What is sent in so many, to wait for a fifth of the time."""
_NEW_SHARE = 0.25
"""How much the newest answer counts for the rate."""
_LEAST_DRAIN = 0.1
"""Of an answer's time, at least this part is taken for its transfer."""


class FetchSize:
    """What is known of one broker's connection."""

    __slots__ = ("_rate", "_soonest_s")

    def __init__(self) -> None:
        self._soonest_s = float("inf")
        self._rate = 0.0
        """Bytes a second while an answer is on its way."""

    @property
    def is_far(self) -> bool:
        """Whether requests should be larger than usual."""
        return FAR_S <= self._soonest_s < float("inf")

    def wanted(self, usual_bytes: int, most_bytes: int) -> int:
        """How much the next request should bring."""
        if not self.is_far:
            return usual_bytes
        return max(usual_bytes, min(most_bytes, int(ROUND_TRIPS * self._rate * self._soonest_s)))

    def answered(self, asked_bytes: int, size: int, took_s: float) -> None:
        """A request for so many bytes brought so many, after so long. Only a full answer tells of the rate."""
        self._soonest_s = min(self._soonest_s, took_s)
        if 2 * size < asked_bytes or took_s <= 0:
            return
        rate = size / max(took_s - self._soonest_s, _LEAST_DRAIN * took_s)
        self._rate += (rate - self._rate) * (_NEW_SHARE if self._rate else 1.0)
