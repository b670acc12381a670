"""The dead-letter topic of a flow. It keeps skipped records, so that an operator can replay them later.

Each lane has its own transactional id for this topic. A new writer for a lane therefore fences the previous writer, and
each operation takes effect either completely or not at all. By the time a writer receives its producer id, the
transactions of the lane's earlier writers have been committed or aborted (KIP-98). Transactions of other lanes may
still be open, and records after the start of an open transaction are not yet visible to read_committed consumers. The
writer therefore waits until these transactions have ended, and then reads the topic to find out which records the topic
already holds. In this way, no record is parked twice, and no record is replayed twice.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from hashlib import blake2b
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client import internal_topics
from mirrord.kafka.client.bulk_log_reader import LogReader, open_logs
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.legacy_messages import NO_TIME
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.kafka.records.header_names import is_utf8, name_bytes
from mirrord.kafka.records.large_batches import decoded
from mirrord.ledger.facts.base import Origin
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import LaneId, LaneKey, TopicId, TopicPartition, dead_letter_topic, parking_id
from mirrord.replication.dead_letters.records import (
    Letter,
    LetterPlace,
    Returned,
    TargetPosition,
    headers_of,
    understood,
)

PATIENCE_S = 30.0
_OPEN_MS = 10_000
"""The transaction timeout in milliseconds. A broker aborts a transaction that has been open for longer than this. By
default, it looks for such transactions every 10 s."""
RECORD_BYTES = 100 << 20
"""Largest batch that the topic accepts, in bytes. This is the default value of the broker config
`socket.request.max.bytes`, which limits the size of a whole request."""
_NEVER_MS = str((1 << 63) - 1)
SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(RECORD_BYTES),
    "message.timestamp.type": "CreateTime",
    "unclean.leader.election.enable": "false",
}
_TIMES = {"message.timestamp.before.max.ms": _NEVER_MS, "message.timestamp.after.max.ms": _NEVER_MS}
"""Configs that let the topic accept any timestamp. They are needed because a timestamp that is out of bounds may be the
reason why a record was skipped. Brokers before Kafka 3.6 do not have these configs (KIP-937)."""
_UNBOUNDED = 1 << 30


There = dict[tuple[int, bytes], int]
"""Maps the source offset and the content digest of each parked record to the record's offset in the dead-letter
topic."""


class NotParked(EnvironmentFault):
    """Raised when records cannot be written to the dead-letter topic. The message says why."""


class Lying(NamedTuple):
    """States which records of a range of source offsets lie in the dead-letter topic."""

    letters: int
    at: int
    """The lowest offset of the parked records in the dead-letter topic; -1 if none of the records is parked."""
    offsets: tuple[int, ...] = ()
    """Source offsets of the records that `DeadLetters.park` read from the source. All of these records are in the
    dead-letter topic. Empty in the results of other methods."""
    lacks: int = -1
    """Source offset of the first record that is still on the source but not in the dead-letter topic. -1 if there is no
    such record, or if `DeadLetters.lying` did not read the source to look for one."""


class DeadLetters:
    """The dead-letter topic of one flow, or another topic with records in the same format.

    If a topic does not exist, or mirrord has no permission to see it, ConfigError is raised. Other failures are raised
    as EnvironmentFault.
    """

    def __init__(self, flow: FlowConfig, source: ClusterConfig, target: ClusterConfig, topic: str = "") -> None:
        self.topic = topic or dead_letter_topic(flow.name)
        self._flow = flow
        self._source = source
        self._target = target
        self._limit = flow.limits.rebuild_bytes
        self._is_there = False
        # The following fields cache what was read from the topic with this id, so that not every operation has to read
        # the whole topic.
        self._topic_id: TopicId = TopicId("")
        self._read_to = 0
        self._seen: set[LaneId] = set()
        """Lanes that have records in the part of the topic that has been read so far."""
        self._last: dict[LaneId, int] = {}
        """For each lane, the offset in the topic of the last record that was passed to `keep`."""

    async def park(self, place: LetterPlace, end: int, origin: Origin, behind: int = -1) -> Lying:
        """Make sure that all source records from `place` to `end` (exclusive) are in the dead-letter topic, and return
        where they are.

        `behind` is an offset in the dead-letter topic: if earlier calls parked any of these records, they are at this
        offset or later. Raises NotParked when the source does not return the records, or when the target does not
        accept them.
        """
        with _not_parked():
            async with open_logs(self._flow.source, self._source, [place.topic], rebuild_bytes=self._limit) as source:
                self._check(source, place)
                await self._create()
                async with self._writer(place.lane) as writer:
                    there = await self._there(place, end, behind)
                    return await self._park(source, writer, place, end, origin, there)

    async def keep(self, place: LetterPlace, data: bytes, origin: Origin, behind: int = -1) -> int:
        """Make sure that a record is in the dead-letter topic, and return its offset there. `data` is a batch that
        contains only this record.

        `place` is the position of the record on the source. `behind` is an offset in the dead-letter topic: if an
        earlier call has parked the record, it is at this offset or later. Raises NotParked if the record cannot be
        written.
        """
        with _not_parked():
            (record,) = await decoded(data, 0, len(data), self._limit, self._flow.source)
            await self._create()
            async with self._writer(place.lane) as writer:
                there = await self._there(place, place.offset + 1, max(behind, self._last.get(place.lane, -1)))
                at = there.get((place.offset, _content(record, record.headers)))
                if at is None:
                    async with _transaction(writer):
                        headers = headers_of(place, origin, record.headers)
                        at = await _send(writer, TopicPartition(self.topic, 0), record, headers)
        self._last[place.lane] = at
        return at

    async def bring_back(
        self, place: LetterPlace, end: int, to: TopicPartition, origin: Origin, since: int = -1
    ) -> list[Returned]:
        """Append each parked record from `place` to `end` (exclusive) to the target partition `to`, and return where
        the records are stored.

        A record that was replayed earlier is not appended again, even if it was replayed into another topic. `since` is
        the lowest offset of these parked records in the dead-letter topic, or -1 if it is not known.
        """
        try:
            async with self._writer(place.lane) as writer:
                returned = {each.offset: each for each in await self._receipts(place, end, since, settled=True)}
                async with aclosing(self._letters(place, end, since, settled=True)) as letters:
                    async for _, letter, record in letters:
                        if letter.returned or letter.place.offset in returned:
                            continue
                        where = await self._bring_back(writer, letter, record, to, origin)
                        returned[letter.place.offset] = Returned(letter.place.offset, where)
        except (KafkaError, ValueError) as error:
            raise EnvironmentFault(f"{to} refuses it: {error or repr(error)}") from error
        return [returned[offset] for offset in sorted(returned)]

    async def returned(self, place: LetterPlace, end: int, since: int = -1) -> list[Returned]:
        """Return which of the source records from `place` to `end` (exclusive) were replayed. The list is empty if the
        dead-letter topic does not exist."""
        return await self._receipts(place, end, since) if await self._exists() else []

    async def all_returned(self, since: int = -1) -> dict[LaneId, list[Returned]]:
        """Return, for each lane, which of its records were replayed. For each replayed record, the dead-letter topic
        contains a receipt. Only receipts at offset `since` or later are read."""
        found: dict[LaneId, list[Returned]] = {}
        if await self._exists():
            async with aclosing(self._all(since)) as letters:
                async for _, letter, _ in letters:
                    if letter.returned:
                        returned = Returned(letter.place.offset, letter.returned)
                        found.setdefault(letter.place.lane, []).append(returned)
        return {lane: sorted(each) for lane, each in found.items()}

    async def lying(self, place: LetterPlace, end: int, *, compared: bool = False) -> Lying:
        """Return which of the source records from `place` to `end` (exclusive) are in the dead-letter topic. The topic
        need not exist.

        If `compared` is set and some of the records are in the topic, the source is read as well, to find a record that
        is missing from the topic. Raises NotParked when the source does not return the records.
        """
        there = await self._there(place, end, -1) if await self._exists() else {}
        lacks = await self._lacks(place, end, there) if compared and there else -1
        return Lying(len(there), min(there.values(), default=-1), lacks=lacks)

    # The implementation of the methods above.

    def _check(self, source: LogReader, place: LetterPlace) -> None:
        key = LaneKey.parse(place.lane)
        if source.topics[place.topic].topic_id != key.source_topic_id:
            raise NotParked(
                f"{place.topic} was re-created on {self._flow.source}, and its former records no longer exist"
            )

    async def _lacks(self, place: LetterPlace, end: int, there: There) -> int:
        """Return the offset of the first source record from `place` to `end` (exclusive) that is missing from the
        dead-letter topic, or -1 if none is missing. `there` contains the records that are in the topic."""
        with _not_parked():
            async with open_logs(self._flow.source, self._source, [place.topic], rebuild_bytes=self._limit) as source:
                self._check(source, place)
                named = TopicPartition(place.topic, place.partition)
                reading = _records(source, named, place.offset, end, committed=self._is_committed)
                async with aclosing(reading) as pieces:
                    async for records in pieces:
                        for record in records:
                            if (record.offset, _content(record, record.headers)) not in there:
                                return record.offset
        return -1

    async def _park(
        self,
        source: LogReader,
        writer: Any,
        place: LetterPlace,
        end: int,
        origin: Origin,
        there: There,
    ) -> Lying:
        named = TopicPartition(place.topic, place.partition)
        first, _ = await source.bounds(named, committed=False)
        if place.offset < first:
            raise NotParked(
                f"{named} begins at source offset {first}: the records before it have been deleted on the source"
            )
        positions: list[int] = []
        offsets: list[int] = []
        async with aclosing(_records(source, named, place.offset, end, committed=self._is_committed)) as pieces:
            async for records in pieces:
                found = [(record, there.get((record.offset, _content(record, record.headers)))) for record in records]
                positions += [at for _, at in found if at is not None]
                offsets += [record.offset for record in records]
                if missing := [record for record, at in found if at is None]:
                    async with _transaction(writer):
                        for record in missing:
                            headers = headers_of(place._replace(offset=record.offset), origin, record.headers)
                            positions.append(await _send(writer, TopicPartition(self.topic, 0), record, headers))
        return Lying(len(positions), min(positions, default=-1), tuple(offsets))

    async def _bring_back(
        self, writer: Any, letter: Letter, record: DecodedRecord, to: TopicPartition, origin: Origin
    ) -> str:
        async with _transaction(writer):
            where = str(TargetPosition(to, await _send(writer, to, record, letter.headers)))
            receipt = DecodedRecord(0, NO_TIME, None, None, ())
            headers = headers_of(letter.place, origin, (), where)
            await _send(writer, TopicPartition(self.topic, 0), receipt, headers)
        return where

    async def _receipts(self, place: LetterPlace, end: int, since: int, *, settled: bool = False) -> list[Returned]:
        """Return which of the source records from `place` to `end` (exclusive) were replayed, according to the
        receipts.

        Raises ConfigError if the dead-letter topic does not exist or mirrord has no permission to see it. Raises
        EnvironmentFault for other failures.
        """
        async with aclosing(self._letters(place, end, since, settled=settled)) as letters:
            found = [
                Returned(letter.place.offset, letter.returned) async for _, letter, _ in letters if letter.returned
            ]
        return sorted(found)

    async def _there(self, place: LetterPlace, end: int, behind: int) -> There:
        """Return the offsets of parked records in the dead-letter topic, by source offset and content digest.

        The content is part of the key, because the source may have had other records at the same offsets before a
        truncation.
        """
        found: There = {}
        async with aclosing(self._letters(place, end, behind, settled=True)) as letters:
            async for at, letter, record in letters:
                if not letter.returned:
                    found.setdefault((letter.place.offset, _content(record, letter.headers)), at)
        return found

    async def _letters(
        self, place: LetterPlace, end: int, since: int, *, settled: bool
    ) -> AsyncGenerator[tuple[int, Letter, DecodedRecord]]:
        """Yield the parked records and the receipts for the source offsets from `place` to `end` (exclusive), in log
        order, with their offsets in the dead-letter topic.

        If `settled` is set, first wait until no record that is already in the topic belongs to an open transaction.
        """
        async with aclosing(self._all(since, place.lane, settled=settled)) as letters:
            async for at, letter, record in letters:
                if letter.place.lane == place.lane and place.offset <= letter.place.offset < end:
                    yield at, letter, record

    async def _all(
        self, since: int, lane: LaneId | None = None, *, settled: bool = False
    ) -> AsyncGenerator[tuple[int, Letter, DecodedRecord]]:
        """Yield the parked records and the receipts of all lanes in log order. If a lane is given, skip the part at the
        beginning of the topic that is known to hold no records of this lane."""
        async with open_logs(self._flow.target, self._target, [self.topic], rebuild_bytes=self._limit) as logs:
            named = TopicPartition(self.topic, 0)
            start, stable = await (self._settled_bounds(logs, named) if settled else logs.bounds(named, committed=True))
            if lane is not None:
                since = self._since(lane, logs.topics[self.topic].topic_id, since)
            begin = since if start <= since <= stable else start
            async with aclosing(_records(logs, named, begin, stable, committed=True)) as pieces:
                async for records in pieces:
                    for record in records:
                        letter = understood(record.headers)
                        if letter is not None:
                            self._seen.add(letter.place.lane)
                            yield record.offset, letter, record
            if begin <= max(self._read_to, start):
                self._read_to = max(self._read_to, stable)

    def _since(self, lane: LaneId, topic_id: TopicId, since: int) -> int:
        if topic_id != self._topic_id:
            self._topic_id, self._read_to = topic_id, 0
            self._seen.clear()
            self._last.clear()
        return since if lane in self._seen else max(since, self._read_to)

    async def _settled_bounds(self, logs: LogReader, named: TopicPartition) -> tuple[int, int]:
        _, end = await logs.bounds(named, committed=False)
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = await logs.bounds(named, committed=True)
                if found[1] >= end:
                    return found
                await asyncio.sleep(0.05)

    async def _exists(self) -> bool:
        admin = KafkaTopicAdmin(self._target, PATIENCE_S)
        try:
            return self.topic in (await admin.describe([self.topic])).topics
        finally:
            await admin.close()

    async def _create(self) -> None:
        """Create the dead-letter topic if it does not exist."""
        if self._is_there:
            return
        admin = KafkaTopicAdmin(self._target, PATIENCE_S)
        try:
            seen = await admin.describe([self.topic])
            if self.topic not in seen.topics:
                shape = internal_topics.safe_shape(SETTINGS, seen.brokers)
                await internal_topics.create(admin, self.topic, shape, seen.brokers, _TIMES)
                await internal_topics.until_shown(admin, self.topic, PATIENCE_S)
            self._is_there = True
        finally:
            await admin.close()

    @property
    def _is_committed(self) -> bool:
        return self._flow.isolation == "read_committed"

    @asynccontextmanager
    async def _writer(self, lane: LaneId) -> AsyncGenerator[Any]:
        """Provide a transactional producer that writes the dead-letter records of this lane.

        Earlier producers of the lane can no longer write, and their transactions have been committed or aborted.
        """
        writer: Any = AIOKafkaProducer(
            bootstrap_servers=",".join(self._target.bootstrap),
            client_id="mirrord",
            transactional_id=parking_id(self.topic, lane),
            transaction_timeout_ms=_OPEN_MS,
            request_timeout_ms=int(PATIENCE_S * 1000),
            compression_type="lz4",
            max_request_size=_UNBOUNDED,
            **client_options(self._target.security),
        )
        try:
            async with asyncio.timeout(PATIENCE_S):
                await writer.start()
            yield writer
        except TimeoutError:
            raise EnvironmentFault(f"no answer from {self._flow.target} within {PATIENCE_S:g} s") from None
        except BaseException:
            self._is_there = False  # the topic may have been deleted since it was last seen
            raise
        finally:
            with suppress(Exception):
                async with asyncio.timeout(PATIENCE_S):
                    await writer.stop()


async def _records(
    logs: LogReader, named: TopicPartition, start: int, end: int, *, committed: bool
) -> AsyncGenerator[list[DecodedRecord]]:
    """Yield the records from offset `start` to `end` (exclusive) that a consumer would see, one list per batch.

    Raises ValueError for a batch that cannot be decoded.
    """
    async with aclosing(logs.read(named, start, end, committed=committed)) as batches:
        async for batch in batches:
            if not batch.aborted and not batch.header.attributes & CONTROL:
                found = await batch.decoded()
                yield [record for record in found if start <= record.offset < end]


@asynccontextmanager
async def _transaction(writer: Any) -> AsyncGenerator[None]:
    await writer.begin_transaction()
    try:
        yield
    except BaseException:
        with suppress(Exception):
            async with asyncio.timeout(PATIENCE_S):
                await writer.abort_transaction()
        raise
    async with asyncio.timeout(PATIENCE_S):
        await writer.commit_transaction()


async def _send(
    writer: Any, to: TopicPartition, record: DecodedRecord, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """Send the record to the partition `to`, and return its offset there. Raises NotParked if the name of a header is
    not UTF-8, because aiokafka's producer cannot write it."""
    if strange := [name for name, _ in headers if not is_utf8(name)]:
        raise NotParked(f"the name of a header, {name_bytes(strange[0])!r}, is not UTF-8, and cannot be parked")
    # The record is sent in a separate batch, because aiokafka's `send` refuses a record that has neither a key nor a
    # value.
    batch = writer.create_batch()
    when = record.time_ms if record.time_ms != NO_TIME else None
    batch.append(timestamp=when, key=record.key, value=record.value, headers=list(headers))
    batch.close()
    async with asyncio.timeout(PATIENCE_S):
        stored = await (await writer.send_batch(batch, to.topic, partition=to.partition))
    return stored.offset


def _content(record: DecodedRecord, headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return a digest of the record's key and value and of the given headers.

    The timestamp is not part of the digest: if a source record has no timestamp, its parked copy has the time at which
    it was parked.
    """
    return blake2b(repr((record.key, record.value, tuple(headers))).encode(), digest_size=16).digest()


@contextmanager
def _not_parked() -> Generator[None]:
    try:
        yield
    except (ConfigError, EnvironmentFault, KafkaError, TimeoutError, ValueError) as error:
        raise NotParked(str(error) or repr(error)) from error
