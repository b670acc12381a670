"""The dead-letter topic of a flow: what people leave out lies there, until somebody brings it back.

Whoever writes does so in transactions under one id. So a second writer ends the first one's, nothing is half done, and
what was done before can be seen from the moment on at which the writer has its producer id (KIP-98): nothing is parked
twice, and nothing is brought back twice.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from mirrord.cluster.settings import TopicShape
from mirrord.flow.compare import Record
from mirrord.model.config import Config, FlowConfig
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.fact import Origin
from mirrord.model.letters import Letter, Place, Returned, headers_of, understood
from mirrord.model.names import LaneKey, TopicPartition, dead_letter_topic
from mirrord.shell.credentials import client_options
from mirrord.shell.ledger_topics import IN_SYNC, REPLICAS
from mirrord.shell.log_reader import LogReader, open_logs
from mirrord.shell.records import decode
from mirrord.shell.topics import KafkaTopicAdmin
from mirrord.wire.batch import CONTROL
from mirrord.wire.errors import ErrorCode
from mirrord.wire.old_messages import NO_TIME

PATIENCE_S = 30.0
RECORD_BYTES = 100 << 20
"""The largest batch that the topic takes; a broker's socket.request.max.bytes is as much by default."""
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
"""A time out of bounds may be why the record was left out. Brokers before 3.6 do not know these (KIP-937)."""
_UNBOUNDED = 1 << 30


class NotParked(EnvironmentFault):
    """Records cannot be put into the topic; the text says why."""


class DeadLetters:
    """The dead-letter topic of one flow. Whatever cannot be done raises an EnvironmentFault."""

    def __init__(self, config: Config, flow: FlowConfig) -> None:
        self.topic = dead_letter_topic(flow.name)
        self._flow = flow
        self._source = config.clusters[flow.source]
        self._target = config.clusters[flow.target]

    async def park(self, place: Place, end: int, origin: Origin) -> int:
        """See that all records of the source from `place` to `end` lie in the topic; how many those are.

        Raises NotParked when the source does not give them, or the target does not take them.
        """
        try:
            async with open_logs(self._flow.source, self._source, [place.topic]) as source:
                self._check(source, place)
                await self._create()
                async with self._writer() as writer:
                    there = await self._offsets(place, end)
                    return await self._park(source, writer, place, end, origin, there)
        except (ConfigError, EnvironmentFault, KafkaError, ValueError) as error:
            raise NotParked(str(error) or repr(error)) from error

    async def bring_back(self, place: Place, end: int, to: TopicPartition, origin: Origin) -> list[Returned]:
        """Append the records from `place` to `end` to a partition of the target, each once; where all of them stand.

        What was brought back before stays where it is, also where that is another topic.
        """
        try:
            async with self._writer() as writer:
                returned = {each.offset: each for each in await self._receipts(place, end)}
                async with aclosing(self._letters(place, end)) as letters:
                    async for letter, record in letters:
                        if letter.returned or letter.place.offset in returned:
                            continue
                        where = await self._bring_back(writer, letter, record, to, origin)
                        returned[letter.place.offset] = Returned(letter.place.offset, where)
        except (KafkaError, ValueError) as error:
            raise EnvironmentFault(f"{to} does not take it: {error or repr(error)}") from error
        return [returned[offset] for offset in sorted(returned)]

    async def returned(self, place: Place, end: int) -> list[Returned]:
        """What was brought back of the records from `place` to `end`; nothing where there is no topic."""
        return await self._receipts(place, end) if await self._exists() else []

    # how

    def _check(self, source: LogReader, place: Place) -> None:
        key = LaneKey.parse(place.lane)
        if source.topics[place.topic].topic_id != key.source_topic_id:
            raise NotParked(f"{place.topic} was created again at {self._flow.source}, and its former records are gone")

    async def _park(
        self, source: LogReader, writer: Any, place: Place, end: int, origin: Origin, there: set[int]
    ) -> int:
        named = TopicPartition(place.topic, place.partition)
        first, _ = await source.bounds(named, committed=False)
        if place.offset < first:
            raise NotParked(f"{named} begins at source offset {first}: what lies in front is deleted at the source")
        count = 0
        async with aclosing(_records(source, named, place.offset, end, committed=self._is_committed)) as pieces:
            async for records in pieces:
                count += len(records)
                missing = [record for record in records if record.offset not in there]
                if missing:
                    async with _transaction(writer):
                        for record in missing:
                            headers = headers_of(place._replace(offset=record.offset), origin, record.headers)
                            await _send(writer, TopicPartition(self.topic, 0), record, headers)
        return count

    async def _bring_back(self, writer: Any, letter: Letter, record: Record, to: TopicPartition, origin: Origin) -> str:
        async with _transaction(writer):
            offset = await _send(writer, to, record, letter.headers)
            where = f"{to} offset {offset}"
            receipt = Record(0, NO_TIME, None, None, ())
            headers = headers_of(letter.place, origin, (), where)
            await _send(writer, TopicPartition(self.topic, 0), receipt, headers)
        return where

    async def _receipts(self, place: Place, end: int) -> list[Returned]:
        """Raises EnvironmentFault, ConfigError where no topic is seen: that is no word on what was done."""
        async with aclosing(self._letters(place, end)) as letters:
            found = [Returned(letter.place.offset, letter.returned) async for letter, _ in letters if letter.returned]
        return sorted(found)

    async def _offsets(self, place: Place, end: int) -> set[int]:
        """Which records lie in the topic."""
        found: set[int] = set()
        async with aclosing(self._letters(place, end)) as letters:
            async for letter, _ in letters:
                if not letter.returned:
                    found.add(letter.place.offset)
        return found

    async def _letters(self, place: Place, end: int) -> AsyncGenerator[tuple[Letter, Record]]:
        """Letters and receipts of these source offsets, in the order in which they were written."""
        async with open_logs(self._flow.target, self._target, [self.topic]) as logs:
            named = TopicPartition(self.topic, 0)
            start, stable = await logs.bounds(named, committed=True)
            async with aclosing(_records(logs, named, start, stable, committed=True)) as pieces:
                async for records in pieces:
                    for record in records:
                        letter = understood(record.headers)
                        is_of = letter is not None and letter.place.lane == place.lane
                        if letter is not None and is_of and place.offset <= letter.place.offset < end:
                            yield letter, record

    async def _exists(self) -> bool:
        admin = KafkaTopicAdmin(self._target, PATIENCE_S)
        try:
            return self.topic in (await admin.look([self.topic])).topics
        finally:
            await admin.close()

    async def _create(self) -> None:
        """See that the topic is there."""
        admin = KafkaTopicAdmin(self._target, PATIENCE_S)
        try:
            seen = await admin.look([self.topic])
            if self.topic in seen.topics:
                return
            replicas = max(1, min(REPLICAS, seen.brokers))
            in_sync = {"min.insync.replicas": str(IN_SYNC if replicas == REPLICAS else 1)}
            for settings in (SETTINGS | in_sync | _TIMES, SETTINGS | in_sync):
                shape = TopicShape(1, replicas, settings)
                refused = (await admin.create({self.topic: shape})).get(self.topic, "")
                if not refused.startswith("INVALID_CONFIG"):
                    break
            if refused and not refused.startswith(ErrorCode.TOPIC_ALREADY_EXISTS.name):
                need = "; CREATE is missing" if "AUTHORIZATION" in refused else ""
                raise NotParked(f"the topic {self.topic} cannot be created: {refused}{need}")
            async with asyncio.timeout(PATIENCE_S):
                # The controller knows it; the brokers learn of it.
                while True:
                    if self.topic in (await admin.look([self.topic])).topics:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise NotParked(f"the topic {self.topic} was created, and no broker tells of it") from None
        finally:
            await admin.close()

    @property
    def _is_committed(self) -> bool:
        return self._flow.isolation == "read_committed"

    @asynccontextmanager
    async def _writer(self) -> AsyncGenerator[Any]:
        """Nobody else writes from here on, and what others wrote is to be seen."""
        writer: Any = AIOKafkaProducer(
            bootstrap_servers=",".join(self._target.bootstrap),
            client_id="mirrord",
            transactional_id=self.topic,
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
        finally:
            with suppress(Exception):
                async with asyncio.timeout(PATIENCE_S):
                    await writer.stop()


async def _records(
    logs: LogReader, named: TopicPartition, start: int, end: int, *, committed: bool
) -> AsyncGenerator[list[Record]]:
    """Those of a batch at a time that a reader would see. Raises ValueError for one that cannot be read."""
    async with aclosing(logs.read(named, start, end, committed=committed)) as batches:
        async for batch in batches:
            if not batch.aborted and not batch.header.attributes & CONTROL:
                found = decode(batch.buffer, batch.start, batch.end)
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


async def _send(writer: Any, to: TopicPartition, record: Record, headers: Sequence[tuple[str, bytes | None]]) -> int:
    """Where it stands."""
    # A batch of its own: aiokafka's `send` takes no record with neither key nor value.
    batch = writer.create_batch()
    when = record.time_ms if record.time_ms != NO_TIME else None
    batch.append(timestamp=when, key=record.key, value=record.value, headers=list(headers))
    batch.close()
    async with asyncio.timeout(PATIENCE_S):
        told = await (await writer.send_batch(batch, to.topic, partition=to.partition))
    return told.offset
