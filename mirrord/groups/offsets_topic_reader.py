"""Reads one cluster's `__consumer_offsets`: every partition from its log start offset to its end, and then each new
record.

A commit inside a transaction is used only after the transaction has been committed. Initially, each partition is read
up to the end that it had when reading began. No commits from the partition are reported until this end has been
reached, because a newer commit by the same group may still follow.

The topic is compacted, so the last offsets of a partition may hold no records. If no records have arrived for a while,
the reader uses `mirrord.groups.empty_tail` to check whether this is the case.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from functools import partial

import structlog

from mirrord.groups.empty_tail import empty_until as empty_until_of
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.metadata_decoding import ask_metadata
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.range_reader import aborted_of
from mirrord.kafka.protocol.api_versions import METADATA
from mirrord.kafka.protocol.consumer_offsets import TOPIC, OffsetKey, OffsetValue, decode_key, decode_value
from mirrord.kafka.protocol.errors import ErrorCode, OldMagic, WireError
from mirrord.kafka.protocol.legacy_messages import group as old_messages
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, ScannedBatch, scan
from mirrord.kafka.records.large_batches import decoded, in_parts
from mirrord.model.errors import EnvironmentFault, internal_error
from mirrord.model.names import TopicId
from mirrord.replication.host.fetcher import SourceFetcher
from mirrord.replication.host.partition_fetch import PartitionFetch
from mirrord.replication.lane.signals import Chunk, FetchFrom
from mirrord.runtime.tasks import report_failure

PARTITION_BYTES = 256 << 10
"""Maximum number of bytes that a fetch returns for one partition."""
AGAIN_S = 0.5
TAIL_S = 2.0
"""How long the reader waits for records from a partition whose end it has not reached. After this time, it checks
whether the last offsets hold no records."""

log = structlog.get_logger()


class MayNotRead(EnvironmentFault):
    """Raised when the permission to READ `__consumer_offsets` is missing."""


class NoSuchTopic(EnvironmentFault):
    """Raised when `__consumer_offsets` does not exist because no group has ever committed an offset."""


class GroupLog:
    """Reads one cluster's `__consumer_offsets`, and reports the commits of the selected groups."""

    def __init__(
        self,
        source: SourceFetcher,
        asks: Asks,
        passes: Callable[[str], bool],
        take: Callable[[OffsetKey, OffsetValue | None], None],
        changed: Callable[[set[str]], None],
    ) -> None:
        """`passes` selects groups by name. `take` is called with the key and value of each record of a selected group;
        the value is None for a tombstone. `changed` is called after records have been passed to `take`, with the names
        of the groups that these records belong to."""
        self.skipped = 0
        """Number of records and batches that could not be decoded."""
        self.lost = ""
        """Why reading has stopped. Empty while reading continues."""
        self._source = source
        self._asks = asks
        self._passes = passes
        self._take = take
        self._changed = changed
        self._followed: list[_Partition] = []

    @property
    def cluster(self) -> str:
        """The alias of the cluster."""
        return self._source.view.alias

    @property
    def ready(self) -> bool:
        """Whether every partition has been read up to the end that it had when reading began."""
        return bool(self._followed) and all(each.ready for each in self._followed)

    @property
    def age_s(self) -> float:
        """How many seconds ago the least recently fetched partition was known to have no newer records than those that
        were read."""
        return max((each.age_s for each in self._followed), default=0.0)

    async def check_tails(self, view: ClusterView) -> None:
        """Check the partitions from which no records arrive although their expected end has not been reached. If the
        remaining offsets hold no records, for example because the log cleaner removed them, the partition is ready."""
        for each in self._followed:
            await each.check_tail(view)

    async def open(self, view: ClusterView) -> None:
        """Start reading the topic. Raises MayNotRead or NoSuchTopic, or EnvironmentFault if no broker answers."""
        connection = await view.any_broker()
        response = await ask_metadata(connection, [TOPIC], connection.version(METADATA))
        topic = next((each for each in response.topics if each.name == TOPIC), None)
        if topic is None or topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise NoSuchTopic(f"{view.alias} has no {TOPIC} yet")
        if topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise MayNotRead(f"READ on the topic {TOPIC} of {view.alias} is missing")
        if topic.error:
            raise EnvironmentFault(f"{TOPIC} of {view.alias}: {ErrorCode.name_of(topic.error)}")
        view.watch(TOPIC, TopicId(topic.id))
        self._followed = [
            _Partition(self, PartitionId(TOPIC, TopicId(topic.id), each.partition)) for each in topic.partitions
        ]
        for each in self._followed:
            each.start(self._source, self._asks)

    def close(self, view: ClusterView) -> None:
        """Stop reading the topic."""
        for each in self._followed:
            each.stop(self._source)
        if self._followed:
            view.unwatch(self._followed[0].partition.topic_id)
        self._followed = []

    def records(self, records: Sequence[DecodedRecord], position: int) -> set[str]:
        """Pass the commits at or after `position` to `take`, and return the names of their groups."""
        groups: set[str] = set()
        for record in records:
            if record.offset < position or record.key is None:
                continue
            try:
                key = decode_key(record.key)
                if isinstance(key, int) or not self._passes(key.group):
                    continue
                value = None if record.value is None else decode_value(record.value)
            except WireError as error:
                self.skip(str(error))
                continue
            self._take(key, value)
            groups.add(key.group)
        return groups

    def changed(self, groups: set[str]) -> None:
        """Report that the newest commits of these groups have been passed to `take`."""
        if groups:
            self._changed(groups)

    def skip(self, reason: str) -> None:
        """Count a record or batch that cannot be decoded. Only the first one is logged."""
        if not self.skipped:
            log.warning("group_records_skipped", reason=reason)
        self.skipped += 1


class _Partition:
    """Reads one partition of `__consumer_offsets`."""

    def __init__(self, owner: GroupLog, partition: PartitionId) -> None:
        self.partition = partition
        self.ready = False
        self._owner = owner
        self._end = -1
        """The high watermark that the partition had when reading began, or -1 until it is known."""
        self._position = 0
        self._behind = 0
        """The offset after the last batch in the most recently fetched chunk."""
        self._empty_until = -1
        """The partition has no records from `_position` up to this offset. -1 if no such offset is known."""
        self._moved_at = time.monotonic()
        """When the last records arrived, or when `check_tail` sent its last request, whichever is later."""
        self._complete_at = self._moved_at
        """The latest time at which all records of the partition were known to have been read."""
        self._waiting: set[str] = set()
        """Groups with commits before `_end`. These groups are reported when the partition has been read up to
        `_end`."""
        self._stopped = False
        self._reading: asyncio.Task[None] | None = None
        """The task that reads the most recently fetched chunk. The next chunk is requested after that."""
        self._tap = PartitionFetch(partition, PARTITION_BYTES, self._deliver)

    @property
    def age_s(self) -> float:
        self._note_complete()
        return time.monotonic() - self._complete_at

    def _note_complete(self) -> None:
        bounds = self._tap.last_bounds()
        if self._tap.is_at_end:
            self._complete_at = max(self._complete_at, time.monotonic() - bounds.age_s)

    def start(self, source: SourceFetcher, asks: Asks) -> None:
        if not self._stopped:
            asks.bounds(self.partition, -1, partial(self._bounds, source, asks))

    def stop(self, source: SourceFetcher) -> None:
        self._stopped = True
        source.stop(self._tap)
        if self._reading is not None:
            self._reading.cancel()

    async def check_tail(self, view: ClusterView) -> None:
        now = time.monotonic()
        if self.ready or self._stopped or self._end < 0 or now - self._moved_at < TAIL_S:
            return
        self._moved_at, position = now, self._position
        with suppress(EnvironmentFault, WireError):
            empty_until = await empty_until_of(view, self.partition, position)
            if self._position == position and empty_until > position:
                self._empty_until = empty_until
                self._find_ready(empty_until)

    def _bounds(self, source: SourceFetcher, asks: Asks, error: int, high_watermark: int, log_start: int) -> None:
        if self._stopped:
            return
        if error in {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID}:
            self._owner.lost = self._owner.lost or ErrorCode.name_of(error)
        elif error:
            asks.view.refresh()
            asyncio.get_running_loop().call_later(AGAIN_S, self.start, source, asks)
        else:
            self._source = source
            self._position, self._end = log_start, high_watermark
            self._find_ready(high_watermark)
            self._want()

    def _want(self, delay_s: float = 0.0) -> None:
        if not self._stopped:
            wish = FetchFrom(0, 0, self._position, -1, delay_s, refresh=delay_s > 0)
            self._source.want(self._tap, wish)
            self._note_complete()

    def _deliver(self, chunk: Chunk) -> None:
        if self._stopped:
            return
        if chunk.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The log was truncated. All remaining records are read again, beginning at the log start offset. Reading a
            # commit again does no harm, because the last commit of a group replaces earlier commits.
            self._position, self._empty_until = max(chunk.log_start, 0), -1
            self._want(AGAIN_S)
        elif chunk.error in {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_TOPIC_ID}:
            self._owner.lost = self._owner.lost or ErrorCode.name_of(chunk.error)
        elif chunk.error:
            self._want(AGAIN_S)
        else:
            self._reading = asyncio.get_running_loop().create_task(self._take(chunk))
            self._reading.add_done_callback(report_failure("group_log_failed", partition=f"{self.partition.partition}"))

    async def _take(self, chunk: Chunk) -> None:
        try:
            await self._read(chunk)
        except WireError as error:
            self._owner.lost = self._owner.lost or str(error)
            return
        except Exception as error:
            self._owner.lost = self._owner.lost or internal_error(error)
            raise
        self._find_ready(chunk.last_stable)
        self._want()

    async def _read(self, chunk: Chunk) -> None:
        groups: set[str] = set()
        async for records in self._batches(chunk):
            async for some in in_parts(records):
                groups |= self._owner.records(some, self._position)
        if self._behind > self._position:
            self._position, self._moved_at = self._behind, time.monotonic()
        if self.ready:
            self._owner.changed(groups)
        else:
            self._waiting |= groups

    async def _batches(self, chunk: Chunk) -> AsyncGenerator[Sequence[DecodedRecord]]:
        """Yield the records of each batch that is neither a control batch nor part of an aborted transaction."""
        start = chunk.start
        while start < chunk.end:
            batches, start, is_old = _scan(chunk, start)
            aborted = aborted_of(chunk.aborted, [batch[6] for batch in batches])
            for number, (at, behind, _, last, _, attributes, _) in enumerate(batches):
                self._behind = last + 1
                if not attributes & CONTROL and number not in aborted:
                    yield await self._decode(chunk, at, behind)
            if not is_old:
                return
            messages = old_messages(chunk.buffer, start, chunk.end)
            if messages is None:
                return
            yield await self._decode(chunk, messages.start, messages.end)
            start, self._behind = messages.end, messages.last + 1

    async def _decode(self, chunk: Chunk, start: int, end: int) -> Sequence[DecodedRecord]:
        try:
            return await decoded(chunk.buffer, start, end, cluster=self._owner.cluster)
        except ValueError as error:
            self._owner.skip(str(error))
            return ()

    def _find_ready(self, last_stable: int) -> None:
        if not self.ready and max(self._position, self._empty_until) >= min(self._end, last_stable):
            self.ready = True
            waiting, self._waiting = self._waiting, set()
            self._owner.changed(waiting)


def _scan(chunk: Chunk, start: int) -> tuple[list[ScannedBatch], int, bool]:
    """Return the batches that begin at the buffer position `start` or later, and the buffer position after the last of
    them. Also return whether messages of format 0 or 1 follow at that position."""
    try:
        batches, behind = scan(chunk.buffer, start, chunk.end)
    except OldMagic as old:
        return scan(chunk.buffer, start, old.at)[0], old.at, True
    return batches, behind, False
