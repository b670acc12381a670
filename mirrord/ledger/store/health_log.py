"""Logs once that a ledger cannot be read, and once that it can be read again."""

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.runtime.clock import Clock

READABLE_SECONDS = 3.0
"""Time without an error after which an unreadable ledger counts as readable again, in seconds."""

log = structlog.get_logger()


class LedgerHealth:
    """Whether the topics of one store's ledger can be read."""

    def __init__(self, topic: str, clock: Clock) -> None:
        self._topic = topic
        self._clock = clock
        self._failed_at: float | None = None

    def failed(self, error: LedgerUnavailable) -> None:
        """Record that a read failed."""
        if self._failed_at is None:
            log.warning("ledger_unreadable", topic=self._topic, error=str(error))
        self._failed_at = self._clock.monotonic()

    def succeeded(self) -> None:
        """Record that records were read. The ledger counts as readable only after a while without errors, because the
        records may be those of one topic while the other topic still fails."""
        if self._failed_at is not None and self._clock.monotonic() - self._failed_at > READABLE_SECONDS:
            log.info("ledger_readable", topic=self._topic)
            self._failed_at = None
