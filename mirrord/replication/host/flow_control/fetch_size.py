"""Decides how many bytes one fetch request asks for: more from a distant broker, to keep the connection busy.

The next fetch request for a lane cannot be sent until the response to the previous request has arrived. Each response
therefore takes a round trip plus the transfer time, and no data arrives during the round trip. A request to a nearby
broker asks for the usual number of bytes (`FetchRoom.request_bytes`). A request to a distant broker asks for as much
data as the broker sends in several round trips, if memory allows, so that data arrives most of the time.
"""

from collections.abc import Sized

from mirrord.kafka.client.receive_buffers import FRAME_LIMIT
from mirrord.replication.host.flow_control.memory_budget import MemoryBudget
from mirrord.replication.host.partition_fetch import PartitionFetch
from mirrord.replication.lane.flow_control.byte_window import FAR_S

REQUEST_BYTES = 8 << 20
MOST_REQUEST_BYTES = FRAME_LIMIT // 2
"""Largest number of bytes that a request asks for: half of the largest frame that a connection accepts. Therefore, a
response can be too large for the connection only because of a single large batch
(`mirrord.replication.host.flow_control.oversized_fetch`)."""
LEAST_REQUEST_BYTES = 64 << 10
LEAST_LANE_BYTES = 1 << 20
ROUND_TRIPS = 4
"""A request to a distant broker asks for as much data as the broker sends in this many round trips, so that the
connection is idle for only one fifth of the time."""
_NEW_SHARE = 0.25
"""Weight of the latest response in the average transfer rate."""
_LEAST_DRAIN = 0.1
"""Lower limit for the estimated transfer time of a response, as a share of the response's duration (from the sending of
the request to the end of the response). The estimate is this duration minus the shortest duration of any response."""


class FetchSize:
    """The measured latency and transfer rate of the connection to one broker."""

    __slots__ = ("_rate", "_soonest_s")

    def __init__(self) -> None:
        self._soonest_s = float("inf")
        self._rate = 0.0
        """Transfer rate while a response is being received, in bytes per second."""

    @property
    def is_far(self) -> bool:
        """Whether the broker is so distant that requests should be larger than usual."""
        return FAR_S <= self._soonest_s < float("inf")

    def wanted(self, usual_bytes: int, most_bytes: int) -> int:
        """Return how many bytes the next request should ask for.

        A request to a nearby broker asks for `usual_bytes`. A request to a distant broker asks for up to `most_bytes`.
        """
        if not self.is_far:
            return usual_bytes
        return max(usual_bytes, min(most_bytes, int(ROUND_TRIPS * self._rate * self._soonest_s)))

    def answered(self, asked_bytes: int, size: int, took_s: float) -> None:
        """Record how many bytes were requested and received, and how many seconds the response took. The transfer rate
        is derived only from responses with at least half of the requested bytes."""
        self._soonest_s = min(self._soonest_s, took_s)
        if 2 * size < asked_bytes or took_s <= 0:
            return
        rate = size / max(took_s - self._soonest_s, _LEAST_DRAIN * took_s)
        self._rate += (rate - self._rate) * (_NEW_SHARE if self._rate else 1.0)


class FetchRoom:
    """Divides the memory for fetched data among the requests to several brokers."""

    __slots__ = ("_brokers", "_budget")

    def __init__(self, budget: MemoryBudget, brokers: Sized) -> None:
        self._budget = budget
        self._brokers = brokers

    @property
    def request_bytes(self) -> int:
        """The number of bytes that one request may ask for. It is limited so that all requests together leave room for
        records that are being copied."""
        share = self._budget.limit_bytes // (8 * max(len(self._brokers), 1))
        return max(LEAST_REQUEST_BYTES, min(REQUEST_BYTES, share, self._budget.most_bytes))

    @property
    def far_bytes(self) -> int:
        """The number of bytes that one request to a distant broker may ask for. It is limited so that two such
        responses from each broker, plus records that are being copied, fit in memory at the same time."""
        share = self._budget.limit_bytes // (4 * max(len(self._brokers), 1))
        return min(MOST_REQUEST_BYTES, share, self._budget.most_bytes)


def lane_bytes(tap: PartitionFetch, size: int, asking: int, *, is_far: bool) -> int:
    """Return how many bytes a fetch request should ask for on behalf of this lane. The whole request asks for `size`
    bytes, and `asking` lanes share it.

    The share of each lane is limited, because a few lanes that are catching up must not fill the whole response. If
    `size` allows, a lane may receive at least 1 MiB. This is about Kafka's default limit for a batch
    (`message.max.bytes`). With a lower limit, a broker might truncate a batch, which would then have to be fetched
    again.
    """
    most = max(tap.lane_bytes, tap.far_batches * tap.batch_bytes) if is_far else tap.lane_bytes
    # If retention is about to delete the lane's records, the lane may use the whole request.
    return min(size, most, size if tap.urgency.is_near else max(size // max(asking, 1), LEAST_LANE_BYTES))
