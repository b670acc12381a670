"""Reads and writes the only partition of a flow's ledger topic or state topic.

A fetch that waits for new records delays all other requests on its connection, and so does a large snapshot. Each
reader and each writer therefore has a separate connection. Lost connections are reopened, and each connection is
replaced before its SASL session ends (KIP-368). After leader changes, broker restarts and refused credentials, requests
are retried until their time limit expires.
"""

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

# aiokafka's compiled classes have no type information.
from aiokafka.record.default_records import (  # pyright: ignore[reportMissingTypeStubs]
    DefaultRecordBatchBuilder,
)

from mirrord.kafka.client.connection import Connection
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.protocol import fetch, produce, producer_ids
from mirrord.kafka.protocol.api_versions import FETCH, FETCH_BY_TOPIC_ID, INIT_PRODUCER_ID, PRODUCE, PRODUCE_BY_TOPIC_ID
from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.record_batch import CONTROL, ScannedBatch, scan
from mirrord.kafka.records.bounded_decompression import TooLarge
from mirrord.kafka.records.header_names import is_utf8
from mirrord.kafka.records.large_batches import decoded
from mirrord.ledger.errors import LedgerUnavailable, LedgerWentBack, StateLost, went_back
from mirrord.ledger.store.topics import AskAgain, LedgerTopics, TopicLeader
from mirrord.model.errors import EnvironmentFault, MirrordError

FETCH_WAIT_MS = 500
FETCH_BYTES = 4 << 20
FOREIGN_AT_ONCE = 100_000
"""Maximum number of records of other clients that one read returns. A batch of a few kilobytes can contain millions."""
BATCH_BYTES = 512 << 10
"""Maximum size in bytes of a batch that combines several records. A single record may be larger."""
EMPTY_LOOKS = 2
"""After this number of consecutive empty answers below the high watermark, the reader of a compacted log assumes that
compaction has removed all records up to the high watermark."""
LONG_WAIT = 0.6
"""Wait time of a fetch after an empty answer below the high watermark, as a fraction of the request timeout.

The answer may have been empty because the records are in remote storage. Brokers older than Kafka 3.8 stop reading from
remote storage when the wait time of the fetch is over. A longer wait time lets them finish."""
_NO_SESSION, _NOT_IN_A_SESSION = 0, -1
_MAGIC, _LZ4 = 2, 3
_UNLIMITED = (1 << 31) - 1
_LAST_SEQUENCE = (1 << 31) - 1
_ROUGH_RECORD_BYTES = 20
"""Estimated size of a record in bytes, without its key and value."""

_LATER = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Errors after which a retry may succeed. A produce request can be retried safely, because the broker recognizes a
retry by its sequence number."""
_FORGOTTEN = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors that mean that the leader has forgotten earlier writes of this producer."""

KeyValue = tuple[bytes | None, bytes | None]


class OutOfRange(Exception):
    """Raised when the partition does not have the requested offset."""


class DivergingEpoch(Exception):
    """Raised when the log no longer contains the records that were most recently read from it (KIP-595)."""


class LogRecord(NamedTuple):
    """A record of the ledger topic or the state topic."""

    offset: int
    key: bytes | None
    value: bytes | None
    leader_epoch: int
    """The leader epoch under which the record was appended."""


class _LogRead(NamedTuple):
    """The result of a fetch: records, the offset after them, and the leader epoch of the last one."""

    records: list[LogRecord]
    position: int
    leader_epoch: int


class _ToLeader:
    """The connection to the current leader of the partition."""

    def __init__(self, topics: LedgerTopics, topic: str, purpose: str) -> None:
        self._topics = topics
        self._topic = topic
        self._purpose = f"{purpose} {topic}"
        self._leader: TopicLeader | None = None
        self._topic_id = ""
        self._connection: Connection | None = None

    async def connect(self) -> tuple[TopicLeader, Connection]:
        """Return the leader and a connection to it. Raises LedgerWentBack if the topic was deleted and created
        again."""
        leader = self._leader = self._leader or await self._topics.leader(self._topic)
        if self._topic_id not in {"", leader.topic_id}:
            raise went_back(self._topic, "was deleted and re-created")
        self._topic_id = leader.topic_id
        self._connection = await self._topics.connection(leader.address, self._purpose)
        return leader, self._connection

    def check(self, code: int, message: str = "") -> None:
        """Raise AskAgain if a retry may succeed after this error code, or LedgerUnavailable if not. Do nothing if the
        code is 0."""
        if code:
            line = f"{self._topic}: {ErrorCode.name_of(code)}{f': {message}' if message else ''}"
            raise AskAgain(line) if code in _LATER else LedgerUnavailable(line)

    def forget(self) -> None:
        """Forget the leader, so that it is looked up again."""
        self._leader = None

    def drop(self) -> None:
        """Close the connection. All requests that are in flight on it fail."""
        self.forget()
        if self._connection is not None:
            self._connection.close()


class PartitionReader:
    """Reads the records of a partition in order, starting at any offset.

    In a compacted log, records may have been removed, possibly all records between the position and the high watermark.
    The reader skips the removed records. In any other log, every record must exist. The reader then skips none, treats
    an empty answer below the high watermark as an error, and retries.
    """

    def __init__(self, topics: LedgerTopics, topic: str, *, compacted: bool) -> None:
        self.position = 0
        """The offset from which `take` returns the next records."""
        self.last_epoch = -1
        """Leader epoch of the last record before the position; -1 if unknown."""
        self._topics = topics
        self._topic = topic
        self._compacted = compacted
        self._to_leader = _ToLeader(topics, topic, "read")
        self._polling: asyncio.Task[_LogRead] | None = None
        self._empty = 0

    def seek(self, offset: int) -> None:
        """Make the next `take` continue at this offset."""
        self.stop()
        self.position, self.last_epoch = offset, -1
        self._empty = 0

    def polling(self) -> asyncio.Task[_LogRead]:
        """Return the task that waits for the next records. Start it if it is not running. When the task is done, `take`
        returns immediately."""
        if self._polling is None:
            self._polling = asyncio.create_task(self._poll())
        return self._polling

    async def take(self) -> list[LogRecord]:
        """Wait for the next records and return them. The list may be empty if records were compacted away.

        Raises OutOfRange and DivergingEpoch. Raises LedgerWentBack if the topic was deleted and re-created, and
        LedgerUnavailable if no answer arrives in time.
        """
        polling = self.polling()
        try:
            records, self.position, self.last_epoch = await asyncio.shield(polling)
        finally:
            if polling.done():
                self._polling = None
        return records

    def stop(self) -> None:
        """Cancel the task that waits for the next records."""
        polling, self._polling = self._polling, None
        if polling is not None and not polling.cancel() and not polling.cancelled():
            polling.exception()  # retrieved so that asyncio does not report it

    async def _poll(self) -> _LogRead:
        while True:
            looked = await self._topics.asking(self._read_next, patient=True)
            if looked.position > self.position:
                return looked

    async def _read_next(self) -> _LogRead:
        """Send one fetch and return the records of its answer."""
        try:
            buffer, fetched = await self._fetch()
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OutOfRange
            self._to_leader.check(fetched.error)
            if fetched.diverging_end >= 0:
                raise DivergingEpoch
            batches, _ = scan(buffer, fetched.records_start, fetched.records_end)
            if not batches:
                return self._behind_nothing(fetched.high_watermark)
            self._empty = 0
            read = _LogRead([], self.position, self.last_epoch)
            for batch in batches:
                read = await self._with_batch(read, buffer, batch)
                if read.position <= batch[3]:
                    break
            return read
        except BaseException:
            self._to_leader.forget()
            raise

    async def _fetch(self) -> tuple[Bytes, fetch.FetchedPartition]:
        leader, connection = await self._to_leader.connect()
        version = connection.version(FETCH)
        name = leader.topic_id if version >= FETCH_BY_TOPIC_ID else leader.topic
        where = fetch.FetchPosition(self.position, leader.epoch, self.last_epoch, FETCH_BYTES)
        step = fetch.SessionStep(_NO_SESSION, _NOT_IN_A_SESSION, [((name, 0), where)], ())
        buffers: list[Bytes] = []

        def take(reader: Reader) -> fetch.FetchResponse:
            buffers.append(reader.buffer)
            return fetch.decode(version, reader)

        response = await ask(connection, FETCH, fetch.encode(version, self._limits(), step), version, take)
        self._to_leader.check(response.error)
        if not response.partitions:  # the broker is throttling this client
            raise AskAgain(f"{leader.topic}: the broker returned nothing")
        return buffers[0], response.partitions[0]

    async def _with_batch(self, read: _LogRead, buffer: Bytes, batch: ScannedBatch) -> _LogRead:
        """Add the records of a batch to a result. If the batch contains very many records that mirrord did not write,
        only the first ones are added."""
        start, end, base, last, _, attributes, header = batch
        if attributes & CONTROL:  # another client has written in a transaction
            return self._with_foreign(read, base, last, header[2])
        try:
            records = await decoded(buffer, start, end)
        except TooLarge:  # mirrord writes no such large batches
            return self._with_foreign(read, base, last, header[2])
        except ValueError as error:
            raise AskAgain(f"the data read at offset {self.position} is not a record batch: {error}") from error
        if not all(is_utf8(name) for each in records for name, _ in each.headers):  # mirrord writes no such headers
            return self._with_foreign(read, base, last, header[2])
        known = (LogRecord(each.offset, each.key, each.value, header[2]) for each in records)
        read.records.extend(each for each in known if each.offset >= read.position)
        return _LogRead(read.records, last + 1, header[2])

    def _with_foreign(self, read: _LogRead, base: int, last: int, leader_epoch: int) -> _LogRead:
        """Add what takes the place of records that mirrord did not write, in a log in which every record must exist."""
        if self._compacted:
            return _LogRead(read.records, last + 1, leader_epoch)
        begin = max(base, read.position)
        end = min(last + 1, begin + FOREIGN_AT_ONCE)
        read.records.extend(LogRecord(offset, None, None, leader_epoch) for offset in range(begin, end))
        return _LogRead(read.records, end, leader_epoch)

    def _limits(self) -> fetch.FetchLimits:
        wait_ms = FETCH_WAIT_MS
        if self._empty and not self._compacted:
            wait_ms = max(wait_ms, int(LONG_WAIT * 1000 * self._topics.timeout_s))
        return fetch.FetchLimits(max_wait_ms=wait_ms, max_bytes=FETCH_BYTES, read_committed=False)

    def _behind_nothing(self, high_watermark: int) -> _LogRead:
        """Return the result of a fetch that returned no records. Raises AskAgain if the log must contain records at the
        position."""
        self._empty = self._empty + 1 if high_watermark > self.position else 0
        if self._empty and not self._compacted:
            raise AskAgain(
                f"{self._topic}: no records at offset {self.position}, although it ends at offset {high_watermark}"
            )
        if self._empty < EMPTY_LOOKS:
            return _LogRead([], self.position, self.last_epoch)
        # The last records were tombstones that compaction has removed. Their leader epoch is unknown, so no epoch is
        # returned. An earlier epoch may end below this position, and a fetch with it would be answered with a diverging
        # epoch.
        return _LogRead([], high_watermark, -1)


class PartitionWriter:
    """Appends records to a partition in order. Each record is appended once, provided that the leader remembers the
    producer.

    If `write` fails, it is unknown which records the broker has appended. The next `write` therefore uses a new
    producer id.
    """

    def __init__(self, topics: LedgerTopics, topic: str, timeout_s: float) -> None:
        self._topics = topics
        self._topic = topic
        self._timeout_ms = int(timeout_s * 1000)
        self._to_leader = _ToLeader(topics, topic, "write")
        self._producer: producer_ids.ProducerIdentity | None = None
        self._sequence = 0
        self._preparing = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def write(self, records: Sequence[KeyValue]) -> list[int]:
        """Append records. Return their offsets when all of them have been replicated. An offset is -1 if it is unknown.

        Raises LedgerUnavailable. After that, the log may contain all of the records, only the first ones, or none.
        """
        async with self._writing:
            return await self._write(deque(_batches(records)))

    async def _write(self, left: "deque[_Batch]") -> list[int]:
        offsets: list[int] = []

        async def send() -> None:
            while left:
                base = await self._send(left[0])
                count = len(left.popleft().records)
                offsets.extend(range(base, base + count) if base >= 0 else [-1] * count)

        try:
            await self._topics.asking(send, patient=True)
        except (LedgerWentBack, StateLost) as error:
            # The reader detects the same error and ends the store.
            raise LedgerUnavailable(f"{error}") from error
        finally:
            if left:
                self._producer = None
                self._to_leader.drop()
        return offsets

    async def prepare(self) -> None:
        """Open a connection and request a producer id before there are records to write. If this fails, `write` tries
        again."""
        with suppress(MirrordError, TimeoutError):
            async with asyncio.timeout(self._timeout_ms / 1000):
                await self._ready()

    async def _ready(self) -> tuple[TopicLeader, Connection, producer_ids.ProducerIdentity]:
        async with self._preparing:
            leader, connection = await self._to_leader.connect()
            if self._producer is None:
                self._producer, self._sequence = await self._new_producer(connection), 0
            return leader, connection, self._producer

    async def _send(self, batch: "_Batch") -> int:
        """Send a batch. Return the offset of its first record, or -1 if the offset is unknown."""
        try:
            leader, connection, producer = await self._ready()
            answer = await self._produce(leader, connection, batch, producer)
            if answer.error in _FORGOTTEN:
                self._producer = None
                if batch.tries > 1:
                    raise LedgerUnavailable(f"{self._topic}: it is not known whether a record was appended")
                raise AskAgain(f"{self._topic}: {ErrorCode.name_of(answer.error)}")
            if answer.error != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self._to_leader.check(answer.error, answer.message)
        except EnvironmentFault:
            self._to_leader.forget()
            raise
        self._sequence = self._sequence + len(batch.records) & _LAST_SEQUENCE
        return answer.base_offset if not answer.error else -1

    async def _produce(
        self, leader: TopicLeader, connection: Connection, batch: "_Batch", producer: producer_ids.ProducerIdentity
    ) -> produce.ProducedPartition:
        version = connection.version(PRODUCE)
        name = leader.topic_id if version >= PRODUCE_BY_TOPIC_ID else leader.topic
        data = batch.encode(producer, self._sequence)
        parts, _ = produce.encode(version, self._timeout_ms, [(name, 0, data)])
        batch.tries += 1
        body = b"".join(parts)
        response = await ask(connection, PRODUCE, body, version, lambda reader: produce.decode(version, reader))
        if len(response.partitions) != 1:
            raise AskAgain(f"{leader.topic}: the broker returned nothing")
        return response.partitions[0]

    async def _new_producer(self, connection: Connection) -> producer_ids.ProducerIdentity:
        version = connection.version(INIT_PRODUCER_ID)
        body = producer_ids.encode_init_producer_id()
        identity = await ask(connection, INIT_PRODUCER_ID, body, version, producer_ids.decode_init_producer_id)
        self._to_leader.check(identity.error)
        return identity


class _Batch:
    """Records that are sent as one batch."""

    def __init__(self, records: Sequence[KeyValue]) -> None:
        self.records = records
        self.tries = 0
        """The number of times that the batch has been sent."""

    def encode(self, producer: producer_ids.ProducerIdentity, sequence: int) -> bytearray:
        builder = DefaultRecordBatchBuilder(
            magic=_MAGIC,
            compression_type=_LZ4,
            is_transactional=0,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=sequence,
            batch_size=_UNLIMITED,
        )
        now_ms = int(time.time() * 1000)
        for offset, (key, value) in enumerate(self.records):
            builder.append(offset, now_ms, key, value, [])
        return bytearray(builder.build())


def _batches(records: Sequence[KeyValue]) -> Iterator[_Batch]:
    together: list[KeyValue] = []
    size = 0
    for key, value in records:
        length = len(key or b"") + len(value or b"") + _ROUGH_RECORD_BYTES
        if together and size + length > BATCH_BYTES:
            yield _Batch(together)
            together, size = [], 0
        together.append((key, value))
        size += length
    if together:
        yield _Batch(together)
