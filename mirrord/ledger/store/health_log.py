"""Logs once that a ledger cannot be read, and once that it can be read again."""

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.runtime.clock import Clock

READABLE_SECONDS = 3.0
"""Without an error for this long, a ledger that could not be read counts as readable."""

log = structlog.get_logger()


class LedgerHealth:
    """For one store."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._failed_at: float | None = None

    def failed(self, error: LedgerUnavailable) -> None:
        """A read failed."""
        if self._failed_at is None:
            log.warning("ledger_unreadable", topic=self._topic, error=str(error))
        self._failed_at = self._clock.monotonic()

    def succeeded(self) -> None:
        """Rows were read. Rows of one topic say nothing about the other one, which may still fail."""
        if self._failed_at is not None and self._clock.monotonic() - self._failed_at > READABLE_SECONDS:
            log.info("ledger_readable", topic=self._topic)
            self._failed_at = None
