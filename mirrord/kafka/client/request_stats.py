"""Keeps statistics on request times and errors. The hot path updates these statistics, so each update costs only a
bisection and an addition.

Request times are counted in a histogram, and errors are counted by error code.
"""

from bisect import bisect_left
from collections.abc import Mapping

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.model.metrics import LATENCY_BOUNDS_S
from mirrord.model.status import RequestKind, RequestsStatus


class RequestStats:
    """The statistics for one kind of request in one process. Another thread may call `status`."""

    __slots__ = ("_api", "_buckets", "_errors", "_seconds", "_throttled_s")

    def __init__(self, api: RequestKind) -> None:
        self._api: RequestKind = api
        self._buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._seconds = self._throttled_s = 0.0
        self._errors: dict[int, int] = {}

    def took(self, seconds: float) -> None:
        """Count a request that was answered after this number of seconds."""
        self._buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self._seconds += seconds

    def failed(self, error: int, partitions: int = 1) -> None:
        """Count an error code that a response contained for this number of partitions."""
        self._errors[error] = self._errors.get(error, 0) + partitions

    def throttled(self, seconds: float) -> None:
        """Add the time for which a broker throttles a connection because a quota was exceeded."""
        self._throttled_s += seconds

    def status(self) -> RequestsStatus:
        """Return all counts since this object was created."""
        errors: Mapping[int, int] = dict(self._errors)
        return RequestsStatus(
            api=self._api,
            buckets=tuple(self._buckets),
            seconds=self._seconds,
            errors={ErrorCode.name_of(code): count for code, count in errors.items()},
            throttled_s=self._throttled_s,
        )
