"""The ledger's topics on a real cluster, by aiokafka's producer and consumer.

Each topic has a consumer of its own: aiokafka has one fetch in flight per broker and asks only for partitions whose
records were taken, so with a shared one a new entry would wait until the fetch of the other topic is over. Each has a
producer of its own too, so that a large snapshot does not hold up an entry.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.structs import TopicPartition

from mirrord.ledger.errors import LedgerCorrupt, LedgerUnavailable
from mirrord.model.config import ClusterConfig
from mirrord.shell.credentials import client_options
from mirrord.shell.ledger_log import LedgerRow, LogEnds, LogTrimmed, StateRow
from mirrord.shell.ledger_store import DEADLINE_SECONDS, went_back
from mirrord.shell.ledger_topics import RECORD_BYTES, LedgerTopics

POLL_MS = 60_000
"""How long one look at a topic waits for something new."""
FETCH_WAIT_MS = 500
STOP_SECONDS = 2.0
"""A producer that has something to send first waits for it, even when no one listens any more."""
BATCH_BYTES = 512 << 10


class KafkaLog:
    """A `LedgerLog` over the topics of one flow on its target cluster."""

    def __init__(self, flow: str, cluster: ClusterConfig, *, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._topics = LedgerTopics(flow, cluster, deadline_seconds)
        self._ledger = _Reader(self._topics.ledger, cluster, deadline_seconds)
        self._state = _Reader(self._topics.state, cluster, deadline_seconds)
        self._entries = _Writer(self._topics.ledger, cluster, deadline_seconds)
        self._rows = _Writer(self._topics.state, cluster, deadline_seconds)

    @property
    def topic(self) -> str:
        """The ledger topic's name."""
        return self._topics.ledger

    @property
    def state_position(self) -> int:
        """Offset of the state topic."""
        return self._state.position

    async def open(self, *, read_only: bool) -> None:
        """Find or create the topics, and connect."""
        try:
            await self._topics.find(create=not read_only)
            await self._ledger.start()
            await self._state.start()
        except BaseException:
            await self.close()
            raise

    async def ends(self) -> LogEnds:
        """Ask the leaders."""
        return (await self._topics.ends())[0]

    async def epoch_end(self, leader_epoch: int) -> int:
        """Ask the ledger's leader."""
        return await self._topics.epoch_end(leader_epoch)

    async def load_state(self) -> list[StateRow]:
        """Read the state topic once more."""
        ends, start = await self._topics.ends()
        self._state.seek(start)
        rows: list[StateRow] = []
        while self._state.position < ends.state_end:
            rows.extend(map(_state_row, await self._poll_state()))
        return rows

    def seek(self, offset: int) -> None:
        """Read the ledger from here on."""
        self._ledger.seek(offset)

    async def read(self) -> Sequence[LedgerRow | StateRow]:
        """The next rows of either topic."""
        await asyncio.wait((self._ledger.polling(), self._state.polling()), return_when=asyncio.FIRST_COMPLETED)
        read: list[LedgerRow | StateRow] = []
        if self._ledger.polling().done():
            read.extend(LedgerRow(record.offset, record.value) for record in await self._poll_ledger())
        if self._state.polling().done():
            read.extend(map(_state_row, await self._poll_state()))
        return read

    async def append(self, values: Sequence[bytes]) -> None:
        """Produce entries."""
        await self._entries.write([(None, value) for value in values])

    async def save(self, rows: Sequence[StateRow]) -> None:
        """Produce rows."""
        await self._rows.write([(row.key.encode(), row.value) for row in rows])

    async def delete_below(self, offset: int) -> None:
        """DeleteRecords."""
        await self._topics.delete_below(offset)

    async def close(self) -> None:
        """End all connections."""
        await asyncio.gather(self._ledger.stop(), self._state.stop(), self._entries.stop(), self._rows.stop())
        self._topics.close()

    async def _poll_ledger(self) -> list[Any]:
        try:
            return await self._ledger.take()
        except OffsetOutOfRangeError:
            ends = (await self._topics.ends())[0]
            position = self._ledger.position
            if position < ends.start:
                raise LogTrimmed from None
            if position > ends.end:
                raise went_back(self.topic, f"ends at offset {ends.end} but reached {position} before") from None
            self._ledger.seek(position)
            return []

    async def _poll_state(self) -> list[Any]:
        try:
            return await self._state.take()
        except OffsetOutOfRangeError:
            raise went_back(self._topics.state, "was made anew while it was read") from None


class _Reader:
    """One topic's only partition, from a position on."""

    def __init__(self, topic: str, cluster: ClusterConfig, timeout_s: float) -> None:
        self.position = 0
        self._partition = TopicPartition(topic, 0)
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._consumer: Any = None
        self._polling: asyncio.Task[tuple[list[Any], int]] | None = None

    async def start(self) -> None:
        consumer = self._consumer = cast(
            Any,
            AIOKafkaConsumer(
                bootstrap_servers=",".join(self._cluster.bootstrap),
                client_id="mirrord",
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_wait_ms=FETCH_WAIT_MS,
                max_partition_fetch_bytes=4 << 20,
                request_timeout_ms=int(self._timeout_s * 1000),
                **client_options(self._cluster.security),
            ),
        )
        await _within(self._timeout_s, self._partition.topic, consumer.start)
        consumer.assign([self._partition])
        # Nothing is fetched before the first seek.
        consumer.pause(self._partition)
        consumer.seek(self._partition, 0)

    def seek(self, offset: int) -> None:
        self._forget()
        self.position = offset
        self._consumer.seek(self._partition, offset)
        self._consumer.resume(self._partition)

    def polling(self) -> asyncio.Task[tuple[list[Any], int]]:
        """The present look at the topic."""
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        return self._polling

    async def take(self) -> list[Any]:
        """The next records; none when there were none for a while. Raises OffsetOutOfRangeError."""
        polling = self.polling()
        try:
            records, self.position = await asyncio.shield(polling)
        except OffsetOutOfRangeError:
            raise
        except (KafkaError, OSError) as error:
            raise LedgerUnavailable(f"{self._partition.topic} cannot be read: {error!r}") from error
        finally:
            if polling.done():
                self._polling = None
        return records

    async def _poll(self) -> tuple[list[Any], int]:
        found = await self._consumer.getmany(self._partition, timeout_ms=POLL_MS)
        # Behind the last record there may be offsets that were compacted away.
        return found.get(self._partition, []), await self._consumer.position(self._partition)

    async def stop(self) -> None:
        self._forget()
        if self._consumer is not None:
            await self._consumer.stop()

    def _forget(self) -> None:
        polling, self._polling = self._polling, None
        if polling is not None and not polling.cancel() and not polling.cancelled():
            polling.exception()  # looked at, so that asyncio does not report it


class _Writer:
    """One topic's producer; after a failure there is a new one, so that nothing of the old one is retried."""

    def __init__(self, topic: str, cluster: ClusterConfig, timeout_s: float) -> None:
        self._topic = topic
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._producer: Any = None
        self._stopping: set[asyncio.Task[None]] = set()

    async def write(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        try:
            await _within(self._timeout_s, self._topic, lambda: self._write(records))
        except BaseException:
            self._discard()
            raise

    async def stop(self) -> None:
        self._discard()
        if self._stopping:
            await asyncio.wait(self._stopping, timeout=STOP_SECONDS)

    async def _write(self, records: Sequence[tuple[bytes | None, bytes | None]]) -> None:
        if self._producer is None:
            producer = cast(
                Any,
                AIOKafkaProducer(
                    bootstrap_servers=",".join(self._cluster.bootstrap),
                    client_id="mirrord",
                    acks="all",
                    enable_idempotence=True,
                    compression_type="lz4",
                    max_batch_size=BATCH_BYTES,
                    max_request_size=RECORD_BYTES,
                    request_timeout_ms=int(self._timeout_s * 1000),
                    **client_options(self._cluster.security),
                ),
            )
            self._producer = producer
            await producer.start()
        sent = [await self._producer.send(self._topic, value, key, partition=0) for key, value in records]
        for answer in await asyncio.gather(*sent, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer

    def _discard(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            stopping = asyncio.create_task(producer.stop())
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)


async def _within(seconds: float, topic: str, start: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it, and give every way of not being answered one name."""
    try:
        async with asyncio.timeout(seconds):
            await start()
    except TimeoutError:
        raise LedgerUnavailable(f"no answer for {topic} within {seconds:g} s") from None
    except (KafkaError, OSError) as error:
        raise LedgerUnavailable(f"no answer for {topic}: {error!r}") from error


def _state_row(record: Any) -> StateRow:
    try:
        return StateRow(record.key.decode(), record.value)
    except (AttributeError, UnicodeDecodeError):
        raise LedgerCorrupt(f"{record.topic} holds a record whose key is no text: {record.key!r}") from None
