"""The interface between a ledger store and its two topics: values at offsets in the ledger topic, and values under keys
in the state topic.

`kafka_log.py` implements the interface for real topics, and `memory_log.py` implements it in memory for tests. The same
contract tests run against both implementations.
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol

from mirrord.ledger.store.seal import Seal
from mirrord.model.names import TopicId


class LedgerRow(NamedTuple):
    """A record of the ledger topic."""

    offset: int
    value: bytes | None
    leader_epoch: int
    """The leader epoch under which the record was appended."""


class StateRow(NamedTuple):
    """A record of the state topic. A record without a value removes its key."""

    key: str
    value: bytes | None
    offset: int = -1
    """The offset of a record that was read."""


class LogEnds(NamedTuple):
    """The bounds of the ledger topic and the end of the state topic, requested at the same time. All records below an
    end are replicated."""

    topic_id: TopicId
    """The id of the ledger topic."""
    start: int
    end: int
    leader_epoch: int
    """The newest leader epoch of the ledger records below `end`."""
    state_end: int


class LogTrimmed(Exception):
    """Raised when the ledger's log start offset is above the requested offset."""


class LedgerLog(Protocol):
    """A connection to the ledger topic and the state topic of a flow.

    An operation that gets no answer raises LedgerUnavailable, and the connection remains usable. An append or a save
    that has failed may still take effect, possibly at a later time.
    """

    @property
    def topic(self) -> str:
        """The name of the ledger topic."""
        ...

    @property
    def state_topic(self) -> str:
        """The name of the state topic."""
        ...

    @property
    def seal(self) -> Seal:
        """Checks the signatures of the records that `read` and `load_state` return. `append` and `save` sign."""
        ...

    async def open(self, *, create: bool) -> None:
        """Connect to both topics. If a topic is missing, either create it (`create` is true) or raise LedgerMissing."""
        ...

    async def ends(self) -> LogEnds:
        """Return the bounds of the ledger topic and the end of the state topic, as their leaders report them."""
        ...

    async def epoch_end(self, leader_epoch: int) -> int:
        """Return the end offset of a leader epoch of the ledger topic, as the leader of the topic reports it. Return
        -1 if the leader does not know the epoch."""
        ...

    def load_state(self) -> AsyncIterator[StateRow]:
        """Yield all records of the state topic, from its start to its current end. `read` continues after them."""
        ...

    def seek(self, offset: int) -> None:
        """Make `read` continue at this offset of the ledger."""
        ...

    @property
    def state_position(self) -> int:
        """The offset in the state topic up to which `load_state` and `read` have read."""
        ...

    async def read(self) -> Sequence[LedgerRow | StateRow]:
        """Wait for the next records of either topic and return them.

        Raises LogTrimmed. Raises LedgerWentBack if the ledger no longer contains records that were read from it. Raises
        StateLost if the state topic no longer contains records that were read from it.
        """
        ...

    async def prepare(self) -> None:
        """Prepare `append` and `save`, so that their first calls are not delayed. This method raises no errors."""
        ...

    async def append(self, values: Sequence[bytes]) -> Sequence[int]:
        """Append values to the ledger. Return their offsets when all of them have been replicated. An offset is -1 if
        it is unknown.

        After a failed append, the ledger may contain all of the values, only the first ones, or none.
        """
        ...

    async def save(self, rows: Sequence[StateRow]) -> None:
        """Append records to the state topic. Return when all of them have been replicated."""
        ...

    async def delete_below(self, offset: int) -> None:
        """Delete the records of the ledger below an offset."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


def signed_rows(seal: Seal, rows: Sequence[StateRow]) -> list[StateRow]:
    """Return records of the state topic with their signatures."""
    return [row if row.value is None else StateRow(row.key, seal.sign_row(row.key, row.value)) for row in rows]
