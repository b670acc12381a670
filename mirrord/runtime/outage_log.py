"""Logs the beginning and the end of each outage of something to which requests are sent, such as a cluster.

An outage ends when a request succeeds and no request has failed for some seconds. If requests alternately succeed and
fail, perhaps many times a second, they therefore do not fill the log.
"""

import asyncio
from collections.abc import Callable

import structlog

log = structlog.get_logger()


class OutageLog:
    """Logs the outages of one thing, as seen by one part of mirrord."""

    def __init__(
        self,
        events: tuple[str, str],
        steady_s: float,
        now: Callable[[], float],
        ask: Callable[[], None] | None = None,
        **context: str,
    ) -> None:
        """`events` are the names of the log events for the beginning and the end of an outage, and `context` is logged
        with them. Requests must succeed for `steady_s` seconds before an outage counts as over. `now` is a monotonic
        clock.

        If requests are rare, `ask` has to send one. It is called `steady_s` seconds after the first success of an
        outage, to find out whether the outage is over.
        """
        self._began, self._ended = events
        self._steady_s = steady_s
        self._now = now
        self._ask = ask
        self._context = context
        self._failed_at: float | None = None
        """When the last request of the current outage failed. None if there is no outage."""
        self._asking: asyncio.TimerHandle | None = None

    def failed(self, error: str, exc_info: BaseException | None = None) -> None:
        """Record a failed request. The first one of an outage is logged."""
        self.close()
        if self._failed_at is None:
            log.warning(self._began, error=error, exc_info=exc_info, **self._context)
        self._failed_at = self._now()

    def succeeded(self) -> None:
        """Record a request that has succeeded."""
        if self._failed_at is None:
            return
        if self._now() - self._failed_at > self._steady_s:
            self.close()
            self._failed_at = None
            log.info(self._ended, **self._context)
        elif self._ask is not None and self._asking is None:
            self._asking = asyncio.get_running_loop().call_later(self._steady_s, self._ask_again, self._ask)

    def close(self) -> None:
        """Cancel the next call of `ask`."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None

    def _ask_again(self, ask: Callable[[], None]) -> None:
        self._asking = None
        ask()
