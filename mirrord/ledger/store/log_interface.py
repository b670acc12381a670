"""The interface between a ledger store and its two topics: bytes at offsets, and bytes under keys.

`kafka_log.py` implements it for real topics, and `memory_log.py` in memory, for tests. The same contract tests run
against both.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from mirrord.model.names import TopicId


class LedgerRow(NamedTuple):
    """A record of the ledger topic."""

    offset: int
    value: bytes | None
    leader_epoch: int
    """The leader epoch under which the record was appended."""


class StateRow(NamedTuple):
    """A record of the state topic. Without a value it removes its key."""

    key: str
    value: bytes | None


class LogEnds(NamedTuple):
    """The starts and ends of both topics at one moment. Everything below an end was replicated."""

    topic_id: TopicId
    """The id of the ledger topic."""
    start: int
    end: int
    leader_epoch: int
    """The newest leader epoch in the ledger below `end`."""
    state_end: int


class LogTrimmed(Exception):
    """The ledger starts after the requested offset."""


class LedgerLog(Protocol):
    """A connection to the two topics of a flow.

    Every operation that fails for lack of an answer raises LedgerUnavailable, and the log remains usable. An append or
    a save that failed may still take effect, even later.
    """

    @property
    def topic(self) -> str:
        """The ledger topic's name."""
        ...

    async def open(self, *, create: bool) -> None:
        """Connect. If the topics are missing, create them or raise LedgerMissing."""
        ...

    async def ends(self) -> LogEnds:
        """Ask the leaders for the starts and ends of both topics."""
        ...

    async def epoch_end(self, leader_epoch: int) -> int:
        """Return where this leader epoch of the ledger ends according to its leader, or -1 if the leader cannot say."""
        ...

    def load_state(self) -> AsyncIterator[StateRow]:
        """Yield all records of the state topic, from its start up to its current end. `read` continues after them."""
        ...

    def seek(self, offset: int) -> None:
        """Make `read` continue at this offset of the ledger."""
        ...

    @property
    def state_position(self) -> int:
        """The offset in the state topic up to which `load_state` and `read` have read."""
        ...

    async def read(self) -> Sequence[LedgerRow | StateRow]:
        """Wait for the next records of both topics.

        Raises LogTrimmed. Raises LedgerWentBack if the ledger no longer holds what was read from it, and StateLost if
        the state topic no longer does.
        """
        ...

    async def prepare(self) -> None:
        """Get ready for `append` and `save`, so that their first calls are not delayed. Raises nothing."""
        ...

    async def append(self, values: Sequence[bytes]) -> Sequence[int]:
        """Append values to the ledger and return their offsets (-1 if unknown) when all of them are replicated.

        After a failed append, all of them, only the first ones, or none may be in the ledger.
        """
        ...

    async def save(self, rows: Sequence[StateRow]) -> None:
        """Append records to the state topic, and return when all of them are replicated."""
        ...

    async def delete_below(self, offset: int) -> None:
        """Remove the ledger's records below an offset."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
