"""The ledger topic and the state topic of a flow on a real cluster."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress

from mirrord.config.ledger import LedgerConfig
from mirrord.config.schema import ClusterConfig
from mirrord.ledger.errors import LedgerWentBack, StateLost, went_back
from mirrord.ledger.store.log_interface import LedgerRow, LogEnds, LogTrimmed, StateRow, signed_rows
from mirrord.ledger.store.partition_io import DivergingEpoch, LogRecord, OutOfRange, PartitionReader, PartitionWriter
from mirrord.ledger.store.seal import NO_SEAL, Seal, SigningKey
from mirrord.ledger.store.store import DEADLINE_SECONDS
from mirrord.ledger.store.topics import LedgerTopics
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ledger_topic, state_topic


class KafkaLog:
    """A `LedgerLog` for the two topics of one flow on its target cluster."""

    def __init__(
        self,
        flow: str,
        cluster: ClusterConfig,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        alone: bool = False,
        adopts: bool = False,
    ) -> None:
        """Create the log without connecting. `alone` means that the flow has no state topic, and therefore no
        snapshots. Its ledger can be read only if no entry has been deleted from it. With
        `adopts`, records without a signature are accepted although a key is configured."""
        self._alone = alone
        self._flow, self._keys, self._adopts = flow, cluster.ledger, adopts
        self.seal = NO_SEAL
        """The seal of the ledger. `open` creates it, because only then secrets are read."""
        self._topics = LedgerTopics(flow, cluster, deadline_seconds, alone=alone)
        self._ledger = PartitionReader(self._topics, self._topics.ledger, compacted=False)
        self._state = PartitionReader(self._topics, self._topics.state, compacted=True)
        self._entries = PartitionWriter(self._topics, self._topics.ledger, deadline_seconds)
        self._rows = PartitionWriter(self._topics, self._topics.state, deadline_seconds)

    @property
    def topic(self) -> str:
        """The name of the ledger topic."""
        return self._topics.ledger

    @property
    def state_topic(self) -> str:
        """The name of the state topic."""
        return self._topics.state

    @property
    def state_position(self) -> int:
        """The offset of the state topic from which the next records are read."""
        return self._state.position

    async def open(self, *, create: bool, again: bool = False) -> None:
        """Find or create the two topics and connect. A ledger topic that was deleted is re-created only with
        `again`."""
        self.seal = seal_of(self._flow, self._keys, adopts=self._adopts)
        try:
            await self._topics.find(create=create, again=again)
        except BaseException:
            await self.close()
            raise

    async def ends(self) -> LogEnds:
        """Return the bounds of the ledger topic and the end of the state topic, as their leaders report them."""
        ends = (await self._topics.ends())[0]
        self.seal.topic_id = ends.topic_id
        return ends

    async def epoch_end(self, leader_epoch: int) -> int:
        """Return the end offset of a leader epoch of the ledger topic, as the leader of the topic reports it."""
        return await self._topics.epoch_end(leader_epoch)

    async def load_state(self) -> AsyncIterator[StateRow]:
        """Yield all records of the state topic, from its start to its current end."""
        if self._alone:
            return
        ends, start = await self._topics.ends()
        self._state.seek(start)
        while self._state.position < ends.state_end:
            for record in await self._poll_state():
                yield _state_row(record)

    def seek(self, offset: int) -> None:
        """Make `read` continue at this offset of the ledger."""
        self._ledger.seek(offset)

    async def read(self) -> Sequence[LedgerRow | StateRow]:
        """Return the next records of both topics, as soon as one of the topics has new records."""
        if self._alone:
            return [LedgerRow(record.offset, record.value, record.leader_epoch) for record in await self._poll_ledger()]
        await asyncio.wait((self._ledger.polling(), self._state.polling()), return_when=asyncio.FIRST_COMPLETED)
        if not self._ledger.polling().done():
            return [_state_row(record) for record in await self._poll_state()]
        # The reader has now passed these records. They are returned before the state topic is read, because they would
        # be lost if that failed.
        return [LedgerRow(record.offset, record.value, record.leader_epoch) for record in await self._poll_ledger()]

    async def prepare(self) -> None:
        """Open the connections on which `append` and `save` write, so that their first calls are not delayed."""
        await asyncio.gather(self._entries.prepare(), self._rows.prepare())

    async def append(self, values: Sequence[bytes]) -> Sequence[int]:
        """Append entries to the ledger topic and return their offsets."""
        return await self._entries.write([(None, self.seal.sign_entry(value)) for value in values])

    async def save(self, rows: Sequence[StateRow]) -> None:
        """Write records to the state topic."""
        await self._rows.write([(row.key.encode(), row.value) for row in signed_rows(self.seal, rows)])

    async def delete_below(self, offset: int) -> None:
        """Delete the records of the ledger topic below an offset (DeleteRecords)."""
        await self._topics.delete_below(offset)

    async def close(self) -> None:
        """Close all connections."""
        self._ledger.stop()
        self._state.stop()
        self._topics.close()

    async def _poll_ledger(self) -> list[LogRecord]:
        position, epoch = self._ledger.position, self._ledger.last_epoch
        try:
            return await self._ledger.take()
        except DivergingEpoch:
            raise went_back(self.topic, f"lost what it held below offset {position} when its leader changed") from None
        except OutOfRange:
            ends = (await self._topics.ends())[0]
            if position < ends.start:
                raise LogTrimmed from None
            if position > ends.end:
                raise went_back(self.topic, f"ends at offset {ends.end} but reached {position} before") from None
            # A leader that does not know the epoch also answers OFFSET_OUT_OF_RANGE.
            if epoch >= 0 and await self._topics.epoch_end(epoch) < position:
                raise went_back(self.topic, f"no longer holds anything of leader epoch {epoch}") from None
            return []

    async def _poll_state(self) -> list[LogRecord]:
        try:
            return await self._state.take()
        except (OutOfRange, DivergingEpoch):
            raise StateLost(f"{self._topics.state} lost rows that had been read; it is being read again") from None
        except LedgerWentBack:
            raise StateLost(f"{self._topics.state} was deleted and re-created; it is being read again") from None


def seal_of(flow: str, keys: LedgerConfig | None, *, adopts: bool = False) -> Seal:
    """Return the seal for the ledger of a flow. Raises EnvironmentFault if a key cannot be read or is too short."""
    names = (ledger_topic(flow), state_topic(flow))
    if keys is None or keys.key is None or flow in keys.unsigned:
        return Seal(*names)
    try:
        return Seal(*names, [SigningKey(secret.resolve()) for secret in (keys.key, *keys.keys)], adopts=adopts)
    except ValueError as error:
        raise EnvironmentFault(f"a key in [ledger] cannot be used: {error}") from None


def _state_row(record: LogRecord) -> StateRow:
    with suppress(UnicodeDecodeError):
        if record.key is not None:
            return StateRow(record.key.decode(), record.value, record.offset)
    # No record of mirrord has such a key, or the kind of key that this text is, so the record will be skipped.
    return StateRow(f"not text: {(record.key or b'')[:64]!r}", record.value, record.offset)
