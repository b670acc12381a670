"""Writes one log line when a ledger can no longer be read, and another when it can be read again."""

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.runtime.clock import Clock

READABLE_SECONDS = 3.0
"""An unreadable ledger counts as readable again after this number of seconds without an error."""

log = structlog.get_logger()


class LedgerHealth:
    """Tracks whether the topics of one store's ledger can be read."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._failed_at: float | None = None

    def failed(self, error: LedgerUnavailable) -> None:
        """Record that a topic could not be read. If the ledger was readable until now, log the error."""
        if self._failed_at is None:
            log.warning("ledger_unreadable", topic=self._topic, error=str(error))
        self._failed_at = self._clock.monotonic()

    def succeeded(self) -> None:
        """Record that records were read. The ledger counts as readable again only after `READABLE_SECONDS` without an
        error, because one of its two topics may be readable while reads of the other one still fail."""
        if self._failed_at is not None and self._clock.monotonic() - self._failed_at > READABLE_SECONDS:
            log.info("ledger_readable", topic=self._topic)
            self._failed_at = None
