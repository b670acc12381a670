"""Writes records to the state topic. Records that are saved while a request is in flight are combined into the next
request."""

import asyncio

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.store.log_interface import LedgerLog, StateRow


class Saves:
    """The records of one store that are waiting to be written."""

    def __init__(self, log: LedgerLog, deadline_seconds: float) -> None:
        self._log = log
        self._deadline = deadline_seconds
        self._waiting: list[tuple[list[StateRow], asyncio.Future[None]]] = []
        self._wanted = asyncio.Event()

    async def save(self, rows: list[StateRow]) -> None:
        """Write records to the state topic. Return when they have been replicated. Raises LedgerUnavailable if this is
        not confirmed in time."""
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((rows, saved))
        self._wanted.set()
        try:
            async with asyncio.timeout(self._deadline):
                await saved
        except TimeoutError:
            raise LedgerUnavailable(f"no answer from the state topic within {self._deadline:g} s") from None

    async def send(self) -> None:
        """Send the waiting records whenever there are any, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            saves, self._waiting = [save for save in self._waiting if not save[1].done()], []
            error = None
            try:
                await self._log.save([row for rows, _ in saves for row in rows])
            except LedgerUnavailable as failed:
                error = failed
            for _, saved in saves:
                if saved.done():
                    continue
                if error is None:
                    saved.set_result(None)
                else:
                    saved.set_exception(error)

    def fail_all(self, error: Exception) -> None:
        """Raise the error in all callers that are waiting, because no more records will be sent."""
        for _, saved in self._waiting:
            if not saved.done():
                saved.set_exception(error)
