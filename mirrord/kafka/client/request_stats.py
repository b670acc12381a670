"""How long requests take and which errors come back: counted on the hot path, so with a bisection and an addition."""

from bisect import bisect_left
from collections.abc import Mapping

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.model.metrics import LATENCY_BOUNDS_S
from mirrord.model.status import Api, RequestsStatus


class RequestStats:
    """Of one kind of request of one process. `told` may be called from another thread."""

    __slots__ = ("_api", "_buckets", "_errors", "_seconds", "_throttled_s")

    def __init__(self, api: Api) -> None:
        self._api: Api = api
        self._buckets = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self._seconds = self._throttled_s = 0.0
        self._errors: dict[int, int] = {}

    def took(self, seconds: float) -> None:
        """A request was answered after so long."""
        self._buckets[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self._seconds += seconds

    def failed(self, error: int, partitions: int = 1) -> None:
        """So many partitions of an answer carried this error."""
        self._errors[error] = self._errors.get(error, 0) + partitions

    def throttled(self, seconds: float) -> None:
        """A broker lets one connection wait for so long, because a quota is used up."""
        self._throttled_s += seconds

    def told(self) -> RequestsStatus:
        """All since the process began."""
        errors: Mapping[int, int] = dict(self._errors)
        return RequestsStatus(
            api=self._api,
            buckets=tuple(self._buckets),
            seconds=self._seconds,
            errors={ErrorCode.name_of(code): count for code, count in errors.items()},
            throttled_s=self._throttled_s,
        )
