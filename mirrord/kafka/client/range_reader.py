"""Reads ranges of offsets from a partition's log, to scan the target log or to compare it with the source log.

Like a lane, the reader decodes only the headers of batches. It sends one fetch at a time for each range, outside any
fetch session, and limits the size of each response.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.log_offsets import offsets_request
from mirrord.kafka.client.quota_throttle import Throttle
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.protocol.api_versions import FETCH, FETCH_BY_TOPIC_ID, LIST_LOCAL_OFFSETS
from mirrord.kafka.protocol.crc32c import Bytes
from mirrord.kafka.protocol.errors import ErrorCode, OldMagic, WireError
from mirrord.kafka.protocol.fetch import FetchedPartition, FetchLimits, FetchPosition, SessionStep, decode, encode
from mirrord.kafka.protocol.legacy_messages import Group, group, is_old
from mirrord.kafka.protocol.list_offsets import EARLIEST_LOCAL, OffsetQuestion
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import (
    CONTROL,
    TRANSACTIONAL,
    Header,
    HeaderTuple,
    ScannedBatch,
    records_digest,
    scan,
)
from mirrord.kafka.records.large_batches import decoded
from mirrord.kafka.records.record_decoding import decode as decode_records
from mirrord.model.errors import EnvironmentFault, MirrordError

CHUNK_BYTES = 1 << 20
"""Approximate size of the response to one fetch. A single batch may be larger."""
_NO_SESSION, _NOT_IN_A_SESSION = 0, -1
WAIT_MS = 100
REMOTE_CHUNK_BYTES = 4 << 20
"""Approximate size of the response to one fetch from remote storage. This size is larger than `CHUNK_BYTES`, because
each such fetch takes longer."""
REMOTE_PATIENCE = 10
"""Factor by which the wait for a batch is extended if the batch is known to be in remote storage."""
AGAIN_S = 1.0
"""While fetches return nothing, the reader repeatedly asks the broker where the local part of the log begins. This is
the minimum interval between two such requests, in seconds."""
_WAIT_GROWTH = 5
_NO_WAIT = FetchLimits(max_wait_ms=0, max_bytes=1)
_AT_ONCE = 4
_TURN = 200
_MAGIC = 2
_OF_ANOTHER_EPOCH = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)


class ReadFailed(EnvironmentFault):
    """Raised when a partition cannot be read. `error` is the Kafka error code, or NETWORK_EXCEPTION if no broker
    answered."""

    def __init__(self, error: int) -> None:
        super().__init__(f"reading failed with {ErrorCode.name_of(error)}")
        self.error = error


class LogDiverged(ReadFailed):
    """Raised if the log no longer has a batch that was read from it, because a new leader had not replicated the
    batch."""

    def __init__(self) -> None:
        super().__init__(int(ErrorCode.FENCED_LEADER_EPOCH))


class _Throttled(Exception):
    """Raised if the broker currently returns no data over a connection, because a quota was exceeded. `left_s` is the
    remaining throttle time in seconds."""

    def __init__(self, left_s: float) -> None:
        super().__init__(f"throttled for {left_s:g} s")
        self.left_s = left_s


class ReadBatch(NamedTuple):
    """A batch as it is stored in a log. Its bytes are buffer[start:end].

    Messages of formats 0 and 1 are returned in groups. In the header of a group, only the magic and the offsets are
    valid. If a group consists of compressed messages, its first message may have a higher offset than the header
    states.
    """

    header: Header
    buffer: Bytes
    start: int
    end: int
    aborted: bool = False
    """Whether the batch belongs to an aborted transaction. Always false if uncommitted records are also read, because
    the broker then does not report which transactions were aborted."""
    rebuild_bytes: int | None = None
    """The flow's `limits.rebuild_bytes`. None if the batch does not belong to a flow."""

    cluster: str = ""
    """The alias of the cluster that the batch was read from, if it is known."""

    def records(self) -> list[DecodedRecord]:
        """Decode the records at once. Raises ValueError if they cannot be read, or if they are larger than
        `rebuild_bytes`. In a daemon, only `decoded` may be used."""
        return decode_records(self.buffer, self.start, self.end, self.rebuild_bytes)

    async def decoded(self) -> list[DecodedRecord]:
        """Decode the records as `records` does, without holding up the event loop if the batch is large."""
        return await decoded(self.buffer, self.start, self.end, self.rebuild_bytes, self.cluster)

    @property
    def is_old(self) -> bool:
        """Whether this is a group of messages of format 0 or 1."""
        return self.header.magic < _MAGIC

    @property
    def records_crc(self) -> int:
        """The checksum of the records without the header. Only batches of format 2 have this checksum."""
        return records_digest(self.buffer, self.start)


class _Response(NamedTuple):
    """The response to a fetch of one partition. Its records are in `buffer`."""

    buffer: Bytes
    fetched: FetchedPartition
    leader_epoch: int
    """The leader epoch in the request. A broker with a different leader epoch returns an error instead of records. If
    the value is -1, the epoch was not known, and the broker did not compare it with its own."""
    throttle_ms: int = 0


class Stretches:
    """Reads ranges of offsets from the partitions of one cluster. It limits how many fetches are in flight at the same
    time."""

    def __init__(
        self,
        view: ClusterView,
        patience_s: float,
        rebuild_bytes: int | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """A read fails if no batch arrives for `patience_s` seconds. If the next batch is in remote storage, this time
        is multiplied by `REMOTE_PATIENCE`. Throttle times do not count. `rebuild_bytes` is the flow's limit for
        decompressed batches. `chunk_bytes` is the approximate size of a response from local storage."""
        self._rebuild_bytes = rebuild_bytes
        self._chunk_bytes = chunk_bytes
        self._view = view
        self._patience_s = patience_s
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._remote_links = asyncio.LifoQueue[str]()
        for number in range(_AT_ONCE):
            self._remote_links.put_nowait(f"read-remote-{number}")
        self._throttles: dict[tuple[int, str], Throttle] = {}
        """The throttle times of the connections, by broker and purpose."""

    async def read(
        self, partition: PartitionId, start: int, end: int, *, committed: bool = False, last_epoch: int = -1
    ) -> AsyncGenerator[ReadBatch, None]:
        """Yield the batches that contain any of the offsets from `start` up to but not including `end`. Batches of open
        and aborted transactions are included.

        If `committed` is set, only batches below the last stable offset are yielded, and aborted batches are marked. A
        batch remains valid after the next batch is read.

        There may be no batch for the last offsets of the range, because the log cleaner has removed it. The read ends
        when a later batch or the broker's responses show that there is none (see `_Place.answered`).

        All batches are from one history of the log: after a change of the leader, the new leader must have the last
        batch that was read. `last_epoch` is the leader epoch of the batch before `start` if that batch was read before,
        or -1. Raises LogDiverged if the log has lost that batch, or another ReadFailed.
        """
        position = start
        place = _Place(self._view, partition, self._patience_s)
        read = FetchPosition(start, last_epoch=last_epoch)
        while position < end:
            try:
                response, took_s = await self._fetch_some(partition, read, place, committed=committed)
            except _Throttled as throttled:
                await place.pause(throttled.left_s)
                continue
            if response.fetched.diverging_epoch >= 0:
                raise LogDiverged
            if await place.answered(position, end, response, took_s, committed=committed):
                return
            buffer, fetched = response.buffer, response.fetched
            batches = _scan(buffer, fetched, position)
            aborted = aborted_of(fetched.aborted, [batch[6] for batch in batches])
            for number, (at, behind, base, last, _, _, header) in enumerate(batches):
                if number % _TURN == _TURN - 1:
                    await asyncio.sleep(0)  # a response with many small batches must not block the lanes
                if last >= position and base < end:
                    more = (number in aborted, self._rebuild_bytes, self._view.alias)
                    yield ReadBatch(Header(*header), buffer, at, behind, *more)
            if batches:
                position = batches[-1][3] + 1
                read = FetchPosition(position, response.leader_epoch, batches[-1][6][2])
                place.came()
            else:
                place.came_empty(position)

    async def _fetch_some(
        self, partition: PartitionId, position: FetchPosition, place: "_Place", *, committed: bool
    ) -> tuple[_Response, float]:
        """Return the response to one fetch, and the time in seconds that it took. If the broker may have to read from
        remote storage, the time is not measured, and 0 is returned for it."""
        loop = asyncio.get_running_loop()
        if not (place.is_remote(position.offset) or place.seems_empty(position.offset)):
            async with self._slots:
                asked = loop.time()
                limits = FetchLimits(WAIT_MS, max_bytes=self._chunk_bytes, read_committed=committed)
                response = await self._fetch(partition, replace(position, max_bytes=self._chunk_bytes), limits)
                return response, loop.time() - asked
        where = replace(position, max_bytes=REMOTE_CHUNK_BYTES)
        limits = FetchLimits(place.wait_ms, REMOTE_CHUNK_BYTES, read_committed=committed)
        link = await self._remote_links.get()
        try:
            return await self._fetch(partition, where, limits, link), 0.0
        finally:
            self._remote_links.put_nowait(link)

    async def parting(self, partition: PartitionId, position: int, epoch: int) -> tuple[int, int, int]:
        """Return the point at which the partition's log diverges from another log. In the other log, a batch of the
        leader epoch `epoch` ends at `position`.

        The result is the diverging leader epoch and its end offset, as the broker reports them (KIP-595), followed by
        the leader epoch of the broker itself. The first two are -1 if the logs do not diverge. Raises ReadFailed.
        """
        where = FetchPosition(position, last_epoch=epoch, max_bytes=1)
        while True:
            try:
                async with self._slots:
                    response = await self._fetch(partition, where, _NO_WAIT)
                return response.fetched.diverging_epoch, response.fetched.diverging_end, response.leader_epoch
            except _Throttled as throttled:
                await asyncio.sleep(throttled.left_s)

    async def _fetch(
        self, partition: PartitionId, position: FetchPosition, limits: FetchLimits, link: str = "read"
    ) -> _Response:
        """Return the response to one fetch. Raises ReadFailed. Raises _Throttled if the broker is throttling the
        connection and returns no data.

        `position.leader_epoch` is the leader epoch of the previous fetch, or -1. If that epoch is still the current
        one, the log cannot have diverged since the previous fetch, and the broker is not asked to check for a
        divergence.
        """
        leader = self._view.leader(partition)
        if leader is None:
            self._view.refresh()
            raise ReadFailed(int(ErrorCode.LEADER_NOT_AVAILABLE))
        throttle = self._throttles.setdefault((leader.node, link), Throttle(self._view.fetches))
        if throttle.left_s:
            raise _Throttled(throttle.left_s)
        try:
            connection = await self._view.link(leader.node, link).get()
            version = connection.version(FETCH)
            topic = partition.topic_id if version >= FETCH_BY_TOPIC_ID else partition.topic
            is_same_leader = 0 <= position.leader_epoch == leader.epoch
            last_epoch = -1 if is_same_leader else position.last_epoch
            where = replace(position, leader_epoch=leader.epoch, last_epoch=last_epoch)
            step = SessionStep(_NO_SESSION, _NOT_IN_A_SESSION, [((topic, partition.partition), where)], ())

            def take(reader: Reader) -> _Response:
                response = decode(version, reader)
                throttle.record(response.throttle_ms, connection.pipe)
                if response.throttle_ms and not response.error and not response.partitions:
                    raise _Throttled(response.throttle_ms / 1000)
                if response.error or not response.partitions:
                    raise ReadFailed(response.error or int(ErrorCode.UNKNOWN_SERVER_ERROR))
                return _Response(reader.buffer, response.partitions[0], leader.epoch, response.throttle_ms)

            response = await ask(connection, FETCH, encode(version, limits, step), version, take)
        except ReadFailed:
            raise
        except MirrordError as error:
            self._view.refresh()
            raise ReadFailed(int(ErrorCode.NETWORK_EXCEPTION)) from error
        if response.fetched.error:
            raise ReadFailed(response.fetched.error)
        return response


class _Place:
    """Tracks, for one read, whether the next batch is in remote storage (KIP-405), how long the broker may wait for it,
    and whether there is a next batch at all.

    Remote batches are fetched over separate connections. A broker handles the requests of a connection one at a time,
    so a slow remote read would otherwise delay other requests. These fetches have a longer max wait, because brokers
    older than Kafka 3.8 cancel a remote read when the max wait has elapsed.
    """

    def __init__(self, view: ClusterView, partition: PartitionId, patience_s: float) -> None:
        self.wait_ms = WAIT_MS
        self._view = view
        self._partition = partition
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._local_start = 0
        """Records below this offset are in remote storage. The value -1 means that any record may be in remote storage:
        fetches return nothing, and the broker does not report this offset."""
        self._looked = float("-inf")
        self._last = self._loop.time()
        """The time, on the event loop's clock, at which the last batch arrived."""
        self._found_empty: tuple[int, int] | None = None
        """A position and a leader epoch. In this epoch, a fetch has found no batch between the position and the end of
        the range, although the position is in the local part of the log."""

    def is_remote(self, position: int) -> bool:
        """Return whether the records at this position are in remote storage. Also return true if fetches return nothing
        and the broker does not report which records are in remote storage."""
        return self._local_start < 0 or position < self._local_start

    def seems_empty(self, position: int) -> bool:
        """Return whether the next fetch at this position has to confirm that the log has no batch there."""
        return self._found_empty is not None and self._found_empty[0] == position

    async def answered(self, position: int, end: int, response: _Response, took_s: float, *, committed: bool) -> bool:
        """Record that a fetch at `position` took `took_s` seconds. Return whether the log has no batch from `position`
        up to `end`.

        A broker returns no records for a position below the high watermark if the records at this position are in
        remote storage, or if there is no batch at or above the position (see `LocalLog.read` in Kafka). The latter is
        possible if the log cleaner has removed batches at the end of a log whose later batches were then removed by a
        truncation.

        To find out which of the two is the case, the broker is asked where the local part of the log begins. In one
        leader epoch, this offset never decreases. If this offset is not above the position, the records were not in
        remote storage when the broker responded. A second response in the same leader epoch must confirm that there is
        no batch, because the cleaner may replace segments during a read. Like a fetch from remote storage, the second
        fetch has a long max wait, in case the broker is not Apache Kafka and does not report remote records correctly.
        """
        visible = response.fetched.last_stable_offset if committed else response.fetched.high_watermark
        lacking = _is_empty(response.fetched) and position < visible
        if self.is_remote(position):
            if lacking:
                self.wait_ms = min(self.wait_ms * _WAIT_GROWTH, self._view.longest_wait_ms)
            return False
        shown = (position, response.leader_epoch) if lacking and end <= visible and _is_conclusive(response) else None
        if shown is None:
            self._found_empty = None
        elif shown == self._found_empty:
            return True
        age_s = self._loop.time() - self._looked
        if age_s > AGAIN_S if lacking else took_s > WAIT_MS / 1000 + SLOW_S and age_s > LOOK_S:
            self._looked = self._loop.time()
            found = await local_start(self._view, self._partition, -1 if shown is None else response.leader_epoch)
            self._local_start = found if found >= 0 or lacking else 0
            self.wait_ms = min(WAIT_MS * _WAIT_GROWTH, self._view.longest_wait_ms)
            self._found_empty = shown if 0 <= found <= position else None
            if self._found_empty is not None:
                self.wait_ms = min(self._view.longest_wait_ms, int(self._patience_s * 1000))
        return False

    async def pause(self, throttle_s: float) -> None:
        """Wait until the broker no longer throttles the connection. This wait does not count toward the time for which
        a read may receive no batch before it fails."""
        await asyncio.sleep(throttle_s)
        self._last += throttle_s

    def came(self) -> None:
        """Record that a fetch returned batches."""
        self._last = self._loop.time()

    def came_empty(self, position: int) -> None:
        """Record that a fetch returned no batches. Raises ReadFailed if no batch has arrived for too long."""
        waited_s = self._loop.time() - self._last
        if position < self._local_start:
            if waited_s > REMOTE_PATIENCE * self._patience_s:
                raise ReadFailed(int(ErrorCode.KAFKA_STORAGE_ERROR))
        elif waited_s > self._patience_s:
            raise ReadFailed(int(ErrorCode.REQUEST_TIMED_OUT))


def _is_empty(fetched: FetchedPartition) -> bool:
    return fetched.records_end == fetched.records_start


def _is_conclusive(response: _Response) -> bool:
    """Return whether this response, which contains no records, shows that the leader has found none in its log.

    A broker also returns no records if a quota was exceeded (KIP-219), or if it refers the client to another replica
    (KIP-392). If the request contained no leader epoch, a follower may have answered.
    """
    is_read = response.fetched.preferred_read_replica < 0
    return is_read and response.throttle_ms == 0 and response.leader_epoch >= 0


async def local_start(view: ClusterView, partition: PartitionId, leader_epoch: int) -> int:
    """Return the offset at which the local part of a log begins. Records below it are in remote storage. Return -1 if
    the offset is unknown.

    Raises ReadFailed if the broker's leader epoch differs from `leader_epoch`, unless `leader_epoch` is -1.
    """
    leader = view.leader(partition)
    if leader is None:
        return -1
    try:
        connection = await view.link(leader.node, "ask").get()
        version = connection.version(LIST_LOCAL_OFFSETS)
        question = OffsetQuestion(partition.topic, partition.partition, EARLIEST_LOCAL, leader_epoch)
        body, decode = offsets_request([question])
        (answer,) = (await ask(connection, LIST_LOCAL_OFFSETS, body, version, decode)).values()
    except MirrordError:
        return -1
    if answer.error in _OF_ANOTHER_EPOCH:
        raise ReadFailed(answer.error)
    return -1 if answer.error else answer.offset


def _scan(buffer: Bytes, fetched: FetchedPartition, position: int) -> list[ScannedBatch]:
    """Return the complete batches in the response to a fetch at `position`. Groups of old messages are returned as
    batches."""
    start, end = fetched.records_start, fetched.records_end
    batches: list[ScannedBatch] = []
    try:
        while True:
            found, start = _scan_batches(buffer, start, end)
            batches += found
            messages = group(buffer, start, end) if is_old(buffer, start, end) else None
            if messages is None:
                return batches
            batches.append(_as_batch(messages, batches[-1][3] + 1 if batches else position))
            start = messages.end
    except WireError as error:
        raise ReadFailed(int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)) from error


def _scan_batches(buffer: Bytes, start: int, end: int) -> tuple[list[ScannedBatch], int]:
    """Return the batches up to the first message of an old format, and the buffer position after these batches."""
    try:
        return scan(buffer, start, end)
    except OldMagic as old:
        return scan(buffer, start, old.at)


def _as_batch(messages: Group, position: int) -> ScannedBatch:
    """Return a group of old messages as a batch. `position` is the lowest offset that these messages can have."""
    first = messages.first if messages.first >= 0 else min(position, messages.last)
    length, delta = messages.end - messages.start, messages.last - first
    header: HeaderTuple = (first, length, -1, 0, 0, 0, delta, -1, -1, -1, -1, -1, -1)
    return messages.start, messages.end, first, messages.last, -1, 0, header


def aborted_of(aborted: Sequence[tuple[int, int]], headers: Sequence[HeaderTuple]) -> set[int]:
    """Return the indexes of those batches in a fetch response that belong to aborted transactions.

    `aborted` contains the aborted transactions in the response as (producer id, first offset) (KIP-98). `headers` are
    the headers of the batches.
    """
    ahead = sorted((first, producer) for producer, first in aborted)
    begun: set[int] = set()
    found: set[int] = set()
    for number, header in enumerate(headers):
        base, attributes, producer = header[0], header[5], header[9]
        while ahead and ahead[0][0] <= base:
            begun.add(ahead.pop(0)[1])
        if attributes & CONTROL:
            begun.discard(producer)
        elif attributes & TRANSACTIONAL and producer in begun:
            found.add(number)
    return found


LOOK_S = 10.0
"""While fetches are slow, the reader repeatedly asks the broker where the local part of the log begins. This is the
minimum interval between two such requests, in seconds."""


SLOW_S = 0.1
"""If a fetch exceeds its max wait by this number of seconds, the broker may have read from remote storage."""
