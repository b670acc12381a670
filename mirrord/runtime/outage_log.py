"""Logs the beginning and the end of each outage of a cluster.

An outage ends when no request has failed for `STEADY_S` seconds. A cluster that alternately answers and fails, perhaps
many times a second, therefore does not fill the log.
"""

import asyncio

import structlog

STEADY_S = 5.0
"""How long, in seconds, requests must succeed before an outage counts as over."""

log = structlog.get_logger()


class OutageLog:
    """Logs the outages of one cluster, as seen by one part of mirrord."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._is_out = False
        self._ending: asyncio.TimerHandle | None = None

    def failed(self, error: str, exc_info: BaseException | None = None) -> None:
        """Record a failed request. The first one of an outage is logged."""
        self.close()
        if not self._is_out:
            self._is_out = True
            log.warning("cluster_unreachable", cluster=self._cluster, error=error, exc_info=exc_info)

    def answered(self) -> None:
        """Record a request that has succeeded."""
        if self._is_out and self._ending is None:
            self._ending = asyncio.get_running_loop().call_later(STEADY_S, self._over)

    def close(self) -> None:
        """Cancel the timer that ends the outage."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _over(self) -> None:
        self._ending, self._is_out = None, False
        log.info("cluster_reachable", cluster=self._cluster)
