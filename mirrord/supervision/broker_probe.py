"""Probes a target's brokers: tests whether they behave as exactly-once copying requires.

The probe creates a topic with one partition, produces a few batches to it as a lane would, and then deletes it.
`mirrord.supervision.rules.broker_probe` defines the batches and the expected answers. Each flow has one such topic,
with a fixed name. If mirrord lacks the permission to delete the topic, the topic remains, and its records expire.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import groupby
from typing import Any, TypeVar

from aiokafka.errors import KafkaError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import parse_address
from mirrord.kafka.client.connection import Connection, ConnectionOptions, Unreachable, connect
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.client.topic_admin import Admin, TopicToCreate
from mirrord.kafka.protocol import fetch, list_offsets, metadata, produce, producer_ids
from mirrord.kafka.protocol.api_versions import (
    DESCRIBE_PRODUCERS,
    FETCH,
    FETCH_BY_TOPIC_ID,
    INIT_PRODUCER_ID,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    PRODUCE_BY_TOPIC_ID,
    Api,
)
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.errors import ErrorCode, UnsupportedBroker
from mirrord.kafka.protocol.record_batch import HEADER, LOG_APPEND_TIME, Header, patch, records_digest, scan
from mirrord.kafka.rules.error_policy import Produced, produced
from mirrord.kafka.rules.topic import BROKER_DEFAULT
from mirrord.ledger.facts.core import TargetProbed
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import ClusterId
from mirrord.model.shown_text import LONGEST_MESSAGE, printable
from mirrord.runtime.clock import Clock
from mirrord.supervision.rules.broker_probe import (
    PRODUCERS,
    RECORDS,
    STEPS,
    Judgement,
    Observed,
    ProbeAnswer,
    ProbeStep,
    Stored,
    judge,
)

DEADLINE_S = 3.0
"""Time limit for the whole probe, unless the caller sets a different one. It is short because the flow waits for the
probe."""
ROUND_TRIPS = 40
"""The probe takes longer if the brokers are far away, so the time limit is extended by the duration of this many round
trips to a broker."""
MOST_ROUND_TRIP_S = 0.5
"""Longest round-trip time, in seconds, that is assumed when the time limit is extended (see `ROUND_TRIPS`). If a round
trip takes longer, distance is not the cause."""
DELETE_S = 1.0
CONNECT_S = 1.0
POLL_S = 0.02
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000"}
"""The configs that are set for the probe's topic. All other configs keep the brokers' defaults, as they do for target
topics."""

T = TypeVar("T")


class NotProbed(EnvironmentFault):
    """Raised when the probe could not be completed, which means that nothing is known about the brokers. The message
    gives the reason."""


async def probe_target(
    cluster: ClusterConfig, topic: str, clock: Clock, known: TargetProbed | None = None, deadline_s: float = DEADLINE_S
) -> TargetProbed:
    """Probe the target's brokers and return the result. `known` is the result of an earlier probe. If the cluster and
    its brokers' versions are still the same as in `known`, return `known` without probing again.

    `topic` is the name of the topic that the probe writes to. Raises NotProbed if the probe cannot be completed within
    the time limit.
    """
    connections: list[Connection] = []
    try:
        async with asyncio.timeout(deadline_s) as limit:
            return await _Probe(cluster, topic, clock, deadline_s, connections, limit).run(known)
    except TimeoutError:
        raise NotProbed(f"no end within {deadline_s:g} s and {ROUND_TRIPS} round trips") from None
    except NotProbed:
        raise
    except (MirrordError, KafkaError, OSError) as error:
        raise NotProbed(str(error) or repr(error)) from error
    finally:
        for connection in connections:
            connection.close()


def fingerprint(brokers: Iterable[dict[int, tuple[int, int]]]) -> str:
    """Return a string that identifies the brokers' versions. Brokers do not report their version, so the string is
    derived from the versions of the APIs that they offer."""
    kinds = {
        f"{len(offered)} APIs {checksum(repr(sorted(offered.items())).encode()):08x}" for offered in brokers if offered
    }
    return ", ".join(sorted(kinds))


class _Probe:
    """One run of the probe. It adds each connection that it opens to `connections`. The caller closes the
    connections."""

    def __init__(
        self,
        cluster: ClusterConfig,
        topic: str,
        clock: Clock,
        timeout_s: float,
        connections: list[Connection],
        limit: asyncio.Timeout,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._clock = clock
        self._timeout_s = timeout_s
        self._connections = connections
        self._limit = limit
        self._pool = BufferPool(limit_bytes=0)
        self._brokers: dict[int, Connection] = {}
        self._topic_id = ""
        self._epoch = -1

    async def run(self, known: TargetProbed | None) -> TargetProbed:
        seen = await self._read_metadata()
        cluster_id, version = ClusterId(seen.cluster_id or ""), await self._version(seen)
        if known is not None and (known.cluster, known.version) == (cluster_id, version):
            return known
        await self._allow_for_distance()
        async with Admin(self._cluster, self._timeout_s) as admin:
            await self._create(admin)
            try:
                found = await self._observe()
            except UnsupportedBroker as error:
                found = Judgement((f"not met: {error}",), (), disturbed=False)
            finally:
                await self._delete(admin)
        if found.disturbed:
            raise NotProbed(f"another client is writing to the topic {self._topic}")
        return TargetProbed(cluster_id, version, not found.failures, found.failures, found.remarks)

    # Connections and the probe's topic.

    async def _open(self, host: str, port: int) -> Connection:
        timeout_s = min(CONNECT_S, self._timeout_s)
        options = ConnectionOptions(connect_timeout_s=timeout_s, request_timeout_s=self._timeout_s)
        connection = await connect(host, port, self._cluster.security, self._pool, options)
        self._connections.append(connection)
        return connection

    async def _read_metadata(self) -> metadata.Metadata:
        """Return the cluster's metadata from the first broker that answers."""
        fault: EnvironmentFault | None = None
        for known in [*self._connections, *map(parse_address, self._cluster.bootstrap)]:
            try:
                connection = known if isinstance(known, Connection) else await self._open(*known)
                version = connection.version(METADATA)
                names = [self._topic]
                answer = await connection.call(METADATA, metadata.encode(version, names), version)
                return metadata.decode(version, answer, names)
            except (Unreachable, ConnectionLost) as error:
                fault = fault or error
        raise fault or Unreachable("no address is known")

    async def _allow_for_distance(self) -> None:
        """Measure the round-trip time to a broker, and extend the time limit accordingly."""
        loop, until = asyncio.get_running_loop(), self._limit.when()
        began = loop.time()
        await self._read_metadata()
        if until is not None:
            self._limit.reschedule(until + ROUND_TRIPS * min(loop.time() - began, MOST_ROUND_TRIP_S))

    async def _version(self, seen: metadata.Metadata) -> str:
        """Connect to all brokers that can be reached now, and return the fingerprint of their versions."""
        opened = await asyncio.gather(
            *(self._open(broker.host, broker.port) for broker in seen.brokers), return_exceptions=True
        )
        for broker, connection in zip(seen.brokers, opened, strict=True):
            if isinstance(connection, Connection):
                self._brokers[broker.node] = connection
            elif not isinstance(connection, EnvironmentFault):
                raise connection
        return fingerprint(connection.versions for connection in self._brokers.values())

    async def _create(self, admin: Any) -> None:
        wanted = TopicToCreate(self._topic, 1, BROKER_DEFAULT, topic_configs=SETTINGS)
        answer = await admin.create_topics([wanted], int(self._timeout_s * 1000))
        for _, code, message in answer.topic_errors:
            if code not in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                reason = (
                    f"{ErrorCode.name_of(code)}: {printable(message, LONGEST_MESSAGE)}"
                    if message
                    else ErrorCode.name_of(code)
                )
                raise NotProbed(f"the topic {self._topic} cannot be created: {reason}")

    async def _delete(self, admin: Any) -> None:
        # The client raises many kinds of errors. If there is an error, the topic remains.
        with suppress(Exception):
            async with asyncio.timeout(DELETE_S):
                await admin.delete_topics([self._topic], int(DELETE_S * 1000))

    async def _leader(self) -> tuple[metadata.Broker, int]:
        """Return the leader of the topic's partition and the end offset of its log. Wait until the leader itself
        reports the end offset."""
        while True:
            seen = await self._read_metadata()
            topic = next((topic for topic in seen.topics if topic.name == self._topic), None)
            partition = topic.partitions[0] if topic is not None and len(topic.partitions) == 1 else None
            if topic is not None and topic.error in {
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            }:
                raise NotProbed(f"the topic {self._topic} may not be used: {ErrorCode.name_of(topic.error)}")
            if topic is not None and partition is not None and partition.leader in self._brokers:
                self._topic_id, self._epoch = topic.id, partition.leader_epoch
                answer = await self._end(self._brokers[partition.leader])
                if answer.error == 0:
                    return next(broker for broker in seen.brokers if broker.node == partition.leader), answer.end
            await asyncio.sleep(POLL_S)

    # The probe's requests.

    async def _observe(self) -> Judgement:
        leader, start = await self._leader()
        first = self._brokers[leader.node]
        second, ids = await asyncio.gather(
            self._open(leader.host, leader.port),
            asyncio.gather(*(self._producer_id(first) for _ in range(PRODUCERS))),
        )
        pair = (first, second)
        sent: dict[tuple[int, int], int] = {}
        answers: list[ProbeAnswer] = []
        for connection, steps in groupby(STEPS, key=lambda step: step.connection):
            batches: list[bytes] = []
            for step in steps:
                batches.append(_batch(step, ids[step.producer], self._clock.wall_ms() - step.age_ms))
                sent.setdefault((step.producer, step.sequence), records_digest(batches[-1], 0))
            # Batches on one connection are sent without waiting for each answer, just as a lane sends them. The batches
            # on the other connection are not sent until all of these batches have been answered.
            answers += await asyncio.gather(*(self._produce(pair[connection], batch) for batch in batches))
        remembered, end = await asyncio.gather(self._remembered(first, ids), self._end(first))
        if end.error:
            raise NotProbed(f"the end of {self._topic} is not known: {ErrorCode.name_of(end.error)}")
        stored = await self._read(first, start, end.end, ids, sent)
        return judge(Observed(start, answers, remembered, end.end, stored))

    async def _producer_id(self, connection: Connection) -> int:
        """Request a new producer id and return it. A broker that has just started refuses the request, so the request
        is retried."""
        version = connection.version(INIT_PRODUCER_ID)
        while True:
            answer = await ask(
                connection,
                INIT_PRODUCER_ID,
                producer_ids.encode_init_producer_id(),
                version,
                producer_ids.decode_init_producer_id,
            )
            if answer.error == 0:
                return answer.producer_id
            if produced(answer.error) is Produced.DENIED:
                raise NotProbed(f"no producer id was assigned: {ErrorCode.name_of(answer.error)}")
            await asyncio.sleep(POLL_S)

    async def _produce(self, connection: Connection, batch: bytes) -> ProbeAnswer:
        version = connection.version(PRODUCE)
        topic = self._topic_id if version >= PRODUCE_BY_TOPIC_ID else self._topic
        parts, _ = produce.encode(version, int(self._timeout_s * 1000), [(topic, 0, batch)])
        (answer,) = produce.decode(version, await connection.call(PRODUCE, b"".join(parts), version)).partitions
        if _passes(answer.error):
            raise NotProbed(
                f"the topic {self._topic} currently cannot be written to: {ErrorCode.name_of(answer.error)}"
            )
        return ProbeAnswer(answer.error, answer.base_offset)

    async def _remembered(self, connection: Connection, ids: list[int]) -> dict[int, int] | None:
        try:
            (answer,) = await self._ask(
                connection,
                DESCRIBE_PRODUCERS,
                producer_ids.encode_describe_producers({self._topic: [0]}),
                producer_ids.decode_describe_producers,
            )
        except UnsupportedBroker:
            return None
        if answer.error:
            raise NotProbed(f"the state of the producers is not known: {ErrorCode.name_of(answer.error)}")
        return {ids.index(each.producer_id): each.last_sequence for each in answer.producers if each.producer_id in ids}

    async def _end(self, connection: Connection) -> list_offsets.EpochEnd:
        question = list_offsets.EpochQuestion(self._topic, 0, self._epoch, self._epoch)
        body = list_offsets.encode_epoch_ends([question])
        (answer,) = await self._ask(connection, OFFSET_FOR_LEADER_EPOCH, body, list_offsets.decode_epoch_ends)
        return answer

    async def _read(
        self, connection: Connection, start: int, end: int, ids: list[int], sent: dict[tuple[int, int], int]
    ) -> list[Stored]:
        """Read the batches in the topic from offset `start` up to `end`. For each batch, return the properties by which
        the brokers are judged."""
        stored: list[Stored] = []
        version = connection.version(FETCH)
        topic = self._topic_id if version >= FETCH_BY_TOPIC_ID else self._topic
        while start < end:
            step = fetch.SessionStep(0, -1, [((topic, 0), fetch.FetchPosition(start, self._epoch))], ())
            body = fetch.encode(version, fetch.FetchLimits(max_wait_ms=100, read_committed=False), step)
            reader = await connection.call(FETCH, body, version)
            response = fetch.decode(version, reader)
            error = response.error or (response.partitions[0].error if response.partitions else ErrorCode.NONE)
            if error or not response.partitions:
                raise NotProbed(f"the topic {self._topic} cannot be read: {ErrorCode.name_of(error)}")
            found = response.partitions[0]
            for at, _, _, last, _, _, header in scan(reader.buffer, found.records_start, found.records_end)[0]:
                stored.append(_stored(Header(*header), records_digest(reader.buffer, at), ids, sent))
                start = last + 1
        return stored

    async def _ask(self, connection: Connection, api: Api, body: bytes, decode: Callable[[Any], T]) -> T:
        return await ask(connection, api, body, connection.version(api), decode)


def _passes(error: int) -> bool:
    """Return whether an error is temporary or due to missing permissions. Such an error says nothing about the broker's
    behavior."""
    if error in {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
        return False
    if error == ErrorCode.UNKNOWN_PRODUCER_ID:
        return False
    return produced(error) in {Produced.DOUBT, Produced.UNKNOWN, Produced.DENIED}


def _batch(step: ProbeStep, producer_id: int, time_ms: int) -> bytes:
    """Return a batch as a lane would produce it: the batch of another producer, with a patched header and an adjusted
    checksum."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    for number in range(RECORDS):
        builder.append(number, time_ms, b"key", b"%d-%d-%d" % (step.producer, step.sequence, number), [])
    batch = bytearray(builder.build())
    patch(batch, 0, HEADER.unpack_from(batch), producer_id, 0, step.sequence)
    if step.damaged:
        batch[-1] ^= 1
    return bytes(batch)


def _stored(header: Header, digest: int, ids: list[int], sent: dict[tuple[int, int], int]) -> Stored:
    producer = ids.index(header.producer_id) if header.producer_id in ids else -1
    return Stored(
        header.base_offset,
        header.last_offset_delta + 1,
        producer,
        header.producer_epoch,
        header.base_sequence,
        same_records=sent.get((producer, header.base_sequence)) == digest,
        append_time=bool(header.attributes & LOG_APPEND_TIME),
    )
