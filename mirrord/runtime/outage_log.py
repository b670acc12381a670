"""Logs the beginning and the end of each outage of a cluster.

An outage ends when a request succeeds and no request has failed for `STEADY_S` seconds. A cluster that alternately
answers and fails, perhaps many times a second, therefore does not fill the log.
"""

import asyncio
from collections.abc import Callable

import structlog

STEADY_S = 5.0
"""How long, in seconds, requests must succeed before an outage counts as over."""

log = structlog.get_logger()


class OutageLog:
    """Logs the outages of one cluster, as seen by one part of mirrord."""

    def __init__(self, cluster: str, ask: Callable[[], None]) -> None:
        """`ask` sends another request. It is called after the first success of an outage, to find out whether the
        outage is over."""
        self._cluster = cluster
        self._ask = ask
        self._failed_at: float | None = None
        """When the last request of the current outage failed, on the event loop's clock. None if there is no outage."""
        self._asking: asyncio.TimerHandle | None = None

    def failed(self, error: str, exc_info: BaseException | None = None) -> None:
        """Record a failed request. The first one of an outage is logged."""
        self.close()
        if self._failed_at is None:
            log.warning("cluster_unreachable", cluster=self._cluster, error=error, exc_info=exc_info)
        self._failed_at = asyncio.get_running_loop().time()

    def answered(self) -> None:
        """Record a request that has succeeded."""
        if self._failed_at is None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._failed_at > STEADY_S:
            self.close()
            self._failed_at = None
            log.info("cluster_reachable", cluster=self._cluster)
        elif self._asking is None:
            self._asking = loop.call_later(STEADY_S, self._ask_again)

    def close(self) -> None:
        """Cancel the timer of the next request."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _ask_again(self) -> None:
        self._asking = None
        self._ask()
