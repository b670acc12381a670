"""Counts and logs the HTTP requests that a daemon refuses."""

import structlog

from mirrord.ledger.facts.base import printable
from mirrord.runtime.clock import Clock

LOGGED_PER_MINUTE = 60
"""Maximum number of lines in the log per minute. A client must not be able to fill the log; the metric counts all."""
LONGEST_TEXT = 200

log = structlog.get_logger()


class RefusedRequests:
    """The refused requests of one server."""

    def __init__(self, clock: Clock) -> None:
        self.counts: dict[str, int] = {}
        """The number of refused requests by HTTP status."""
        self._clock = clock
        self._minute = float("-inf")
        self._logged = 0

    def add(self, *, status: int, reason: str, method: str, path: str, peer: str, claimed: str) -> None:
        """Count a refused request, and write a line to the log unless there are too many. `claimed` is the name of the
        token that the client claimed to know."""
        self.counts[str(status)] = self.counts.get(str(status), 0) + 1
        now = self._clock.monotonic()
        if now - self._minute >= 60:
            self._minute, self._logged = now, 0
        self._logged += 1
        if self._logged > LOGGED_PER_MINUTE:
            return
        texts = {"method": method, "path": path, "peer": peer, "claimed": claimed}
        shown = {name: printable(text, LONGEST_TEXT) for name, text in texts.items()}
        log.warning("request_refused", status=status, reason=reason, **shown)
        if self._logged == LOGGED_PER_MINUTE:
            log.warning("more_refused_requests_are_only_counted", metric="mirrord_refused_requests_total")
