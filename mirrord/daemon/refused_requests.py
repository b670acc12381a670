"""Counts and logs the HTTP requests that a daemon refuses, and decides which of them the ledger records."""

from dataclasses import dataclass

import structlog

from mirrord.model.shown_text import printable
from mirrord.runtime.clock import Clock

LOGGED_PER_MINUTE = 60
"""Maximum number of lines in the log per minute. A client must not be able to fill the log; the metric counts all."""
RECORDED_PER_HOUR = 10
"""Maximum number of refused commands that the ledger records per hour for each token. A client must not be able to fill
the ledger, not even with a token."""
LONGEST_TEXT = 200

log = structlog.get_logger()


@dataclass(slots=True)
class _Hour:
    """The refused commands of one token."""

    began: float
    recorded: int = 0
    omitted: int = 0


class RefusedRequests:
    """The refused requests of one server."""

    def __init__(self, clock: Clock) -> None:
        self.counts: dict[str, int] = {}
        """The number of refused requests by HTTP status."""
        self._clock = clock
        self._minute = float("-inf")
        self._logged = 0
        self._hours: dict[str, _Hour] = {}

    def omitted(self, token: str) -> int | None:
        """Decide whether the ledger should record a refused command of a client that has proved this token. If so,
        return how many such commands have been omitted since the previous record. Otherwise, return None."""
        now = self._clock.monotonic()
        hour = self._hours.setdefault(token, _Hour(now))
        if now - hour.began >= 3600:
            hour.began, hour.recorded = now, 0
        if hour.recorded >= RECORDED_PER_HOUR:
            hour.omitted += 1
            return None
        hour.recorded += 1
        before, hour.omitted = hour.omitted, 0
        return before

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
