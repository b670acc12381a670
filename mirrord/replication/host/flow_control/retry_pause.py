"""The pause of a fetch connection after a failure."""

import asyncio
from collections.abc import Callable

from mirrord.kafka.client.reconnecting_link import Backoff


class RetryPause:
    """Pauses a connection after a failure, longer after each further one.

    A response ends the series of failures. A new connection alone does not: a broker may accept connections and fail
    every request. Several connections to the same broker pause independently. Without this, the end of one pause would
    cause requests on all other connections as well.

    If no connection can be opened, the pause prevents no attempt, because `Link` limits attempts. Other events may then
    show that the broker is back.
    """

    def __init__(self, resume: Callable[[], None]) -> None:
        """`resume` is called at the end of each pause."""
        self.is_on = False
        """Whether the connection must not be used at the moment."""
        self._resume = resume
        self._backoff = Backoff()

    def begin(self, *, blocks: bool) -> None:
        """Begin a pause, because the connection has failed. If `blocks` is false, the connection may be used during the
        pause."""
        self.is_on = blocks
        asyncio.get_running_loop().call_later(self._backoff.next_s(), self._end)

    def answered(self) -> None:
        """Record that the broker has answered, even if the response was too large."""
        self._backoff.reset()

    def _end(self) -> None:
        self.is_on = False
        self._resume()
