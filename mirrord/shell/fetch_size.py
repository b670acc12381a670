"""How much one fetch request brings: more from a broker that is far away, so that it is kept busy meanwhile.

A lane's next fetch can only be asked for when the one before it was answered, so a lane brings one fetch in a round
trip and the time of its transfer. Near brokers are asked for what all lanes have room for. One that is far away is
asked for what it sends in several round trips, where there is so much room, so that most of the time something is on
its way.
"""

from collections.abc import Sized

from mirrord.flow.byte_window import FAR_S
from mirrord.shell.budget import Budget
from mirrord.shell.pipe import FRAME_LIMIT
from mirrord.shell.tap import Tap

REQUEST_BYTES = 8 << 20
MOST_REQUEST_BYTES = FRAME_LIMIT // 2
"""With a request of this size only a single batch can make an answer too large (`mirrord.shell.apart`)."""
LEAST_REQUEST_BYTES = 64 << 10
LEAST_LANE_BYTES = 1 << 20
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


class Room:
    """What requests to several brokers may bring together."""

    __slots__ = ("_brokers", "_budget")

    def __init__(self, budget: Budget, brokers: Sized) -> None:
        self._budget = budget
        self._brokers = brokers

    @property
    def request_bytes(self) -> int:
        """How much one request may bring, so that all requests together leave room for records in transit."""
        share = self._budget.limit_bytes // (8 * max(len(self._brokers), 1))
        return max(LEAST_REQUEST_BYTES, min(REQUEST_BYTES, share, self._budget.most_bytes))

    @property
    def far_bytes(self) -> int:
        """The same for a broker that is far away: two of its answers are processed at the same time."""
        share = self._budget.limit_bytes // (4 * max(len(self._brokers), 1))
        return min(MOST_REQUEST_BYTES, share, self._budget.most_bytes)


def lane_bytes(tap: Tap, size: int, asking: int, *, is_far: bool) -> int:
    """What a request of `size` bytes, shared by `asking` lanes, may bring for this one: a few lanes that catch up must
    not fill it.

    Not less than a batch may have by Kafka's default (`message.max.bytes`): a broker cuts what does not fit.
    """
    most = max(tap.lane_bytes, tap.far_batches * tap.batch_bytes) if is_far else tap.lane_bytes
    # Records that retention is about to delete are fetched in one piece.
    return min(size, most, size if tap.urgency.is_near else max(size // max(asking, 1), LEAST_LANE_BYTES))
