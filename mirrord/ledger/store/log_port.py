"""What a ledger store needs of the two topics behind it: bytes at offsets, bytes under keys.

`ledger_kafka.py` has the real one, `ledger_memory.py` the twin for tests; the same contract tests run against both.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from mirrord.model.names import TopicId


class LedgerRow(NamedTuple):
    """A record of the ledger topic."""

    offset: int
    value: bytes | None
    leader_epoch: int
    """Under which it was appended."""


class StateRow(NamedTuple):
    """A record of the state topic; without a value it removes its key."""

    key: str
    value: bytes | None


class LogEnds(NamedTuple):
    """Where the topics begin and end at one moment. Everything below an end was replicated."""

    topic_id: TopicId
    """Of the ledger topic."""
    start: int
    end: int
    leader_epoch: int
    """The newest in the ledger below `end`."""
    state_end: int


class LogTrimmed(Exception):
    """The ledger begins behind the offset that was asked for."""


class LedgerLog(Protocol):
    """One connection to the two topics of a flow.

    Everything that fails for lack of an answer raises LedgerUnavailable; the log can be used on. An append or a save
    that failed may still take effect, even later.
    """

    @property
    def topic(self) -> str:
        """The ledger topic's name."""
        ...

    async def open(self, *, create: bool) -> None:
        """Connect, and create the topics when they are missing, or raise LedgerMissing."""
        ...

    async def ends(self) -> LogEnds:
        """Ask the leaders."""
        ...

    async def epoch_end(self, leader_epoch: int) -> int:
        """Where this leader epoch of the ledger ends, as its leader knows; -1 when it cannot tell."""
        ...

    def load_state(self) -> AsyncIterator[StateRow]:
        """All rows of the state topic, from its beginning up to its present end. `read` goes on behind them."""
        ...

    def seek(self, offset: int) -> None:
        """Let `read` go on at this offset of the ledger."""
        ...

    @property
    def state_position(self) -> int:
        """The state topic's offset up to which `load_state` and `read` came."""
        ...

    async def read(self) -> Sequence[LedgerRow | StateRow]:
        """Wait for the next rows of both topics.

        Raises LogTrimmed; LedgerWentBack when the ledger no longer holds what was read from it, StateLost when that is
        so of the state topic.
        """
        ...

    async def prepare(self) -> None:
        """Make ready for `append` and `save`, so that the first of them are not kept waiting. Raises nothing."""
        ...

    async def append(self, values: Sequence[bytes]) -> Sequence[int]:
        """Append to the ledger, all or the first few; returns the offsets (-1: not known) when all are replicated."""
        ...

    async def save(self, rows: Sequence[StateRow]) -> None:
        """Append to the state topic; returns when all are replicated."""
        ...

    async def delete_below(self, offset: int) -> None:
        """Remove the ledger's records below an offset."""
        ...

    async def close(self) -> None:
        """Disconnect."""
        ...
