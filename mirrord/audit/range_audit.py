"""Reads a range from the source log and the target log and compares the records. Batch headers are compared first.
Individual records are compared only if the headers do not prove that source and target are equal."""

import hashlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal

import msgspec

from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.batch_compare import SeenBatch, compare_batches
from mirrord.audit.rules.key_compare import KeyedCopy, Newest, merged, open_rows, source_rows, target_rows
from mirrord.audit.rules.record_compare import compare_records
from mirrord.audit.rules.results import Compared, RangeResult, Seen, Surroundings
from mirrord.kafka.client.bulk_log_reader import LogReader, RangeGone
from mirrord.kafka.client.committed_batches import unaborted_batches
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import CONTROL, LOG_APPEND_TIME
from mirrord.kafka.records.record_decoding import decode
from mirrord.kafka.records.record_digest import digest
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.runtime.rate_limit import Pace

TRIES = 3
"""How many times a range is read again if retention deletes some of its records while it is being read."""
_KEY_BYTES = 16


class AuditedLane(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a lane that are needed to read its source log and its target log and to compare them."""

    source: TopicPartition
    target: TopicPartition
    committed: bool
    """Whether the lane read the source with the isolation level `read_committed` when it copied the records."""
    source_compacted: bool = False
    target_compacted: bool = False
    others_write: bool = False
    rebuild_bytes: int | None = None
    """The flow's `limits.rebuild_bytes`."""


class RangeReader:
    """Compares ranges of the lanes of one flow."""

    def __init__(self, source: LogReader, target: LogReader, *, by_records: bool, pace: Pace | None = None) -> None:
        """Store the readers of both logs. With `by_records`, every range is compared record by record. `pace` limits
        the rate of reading."""
        self._source = source
        self._target = target
        self._pace = pace or Pace(None)
        self._by_records = by_records

    async def audit(self, lane: AuditedLane, wanted: AuditRange) -> RangeResult:
        """Compare a range of a lane on the source with the same range on the target. Raises EnvironmentFault if a log
        cannot be read."""
        for _ in range(TRIES):
            try:
                return await self._audit(lane, wanted)
            except RangeGone:
                continue
        return await self._audit(lane, wanted)

    async def keys(
        self, lane: AuditedLane, wanted: AuditRange, *, with_source: bool
    ) -> tuple[dict[bytes, Newest], KeyedCopy, int]:
        """Return three values: for each key in the range, the newest source record and the newest target record; the
        properties of the target partition that determine which keys it may lack; and the number of bytes read. The
        source is read only if `with_source` is set.

        Raises EnvironmentFault if a log cannot be read.
        """
        for _ in range(TRIES):
            try:
                return await self._keys(lane, wanted, with_source=with_source)
            except RangeGone:
                continue
        return await self._keys(lane, wanted, with_source=with_source)

    async def _keys(
        self, lane: AuditedLane, wanted: AuditRange, *, with_source: bool
    ) -> tuple[dict[bytes, Newest], KeyedCopy, int]:
        both = _Both(self._source, self._target, lane, wanted, self._pace)
        await both.read_bounds()
        found: dict[bytes, Newest] = {}
        sides = [both.source_keys()] if with_source else []
        for side in (*sides, both.target_keys()):
            async for key, newest in side:
                found[key] = merged(found[key], newest) if key in found else newest
        return found, both.keyed_copy(), both.read_bytes

    async def _audit(self, lane: AuditedLane, wanted: AuditRange) -> RangeResult:
        both = _Both(self._source, self._target, lane, wanted, self._pace)
        await both.read_bounds()
        if not self._by_records and both.is_whole:
            compared = await both.batches()
            if compared is not None:
                return both.result("batches", compared)
        return both.result("records", await both.records())


class _Both:
    """Reads one range from the source log and from the target log, and compares the two."""

    def __init__(self, source: LogReader, target: LogReader, lane: AuditedLane, wanted: AuditRange, pace: Pace) -> None:
        self._source_log = source
        self._target_log = target
        self._lane = lane
        self._wanted = wanted
        self._pace = pace
        self._source_bounds = self._target_bounds = (0, 0)
        self._read_bytes = 0
        self._newest_ms = -1

    async def read_bounds(self) -> None:
        """Request the log start offset and the log end offset of the source and of the target."""
        self._source_bounds = await self._source_log.bounds(self._lane.source, committed=self._lane.committed)
        self._target_bounds = await self._target_log.bounds(self._lane.target, committed=False)

    def keyed_copy(self) -> KeyedCopy:
        """Return the properties of the target partition that determine which keys it may lack."""
        return KeyedCopy(self._target_bounds[0], self._lane.target_compacted)

    @property
    def read_bytes(self) -> int:
        """Number of bytes read from both logs so far."""
        return self._read_bytes

    @property
    def is_whole(self) -> bool:
        """Whether the source log and the target log still contain every offset of the range."""
        source, target, wanted = self._source_bounds, self._target_bounds, self._wanted
        inside = source[0] <= wanted.source_start and wanted.source_end <= source[1]
        return inside and target[0] <= wanted.target_start and wanted.target_end <= target[1]

    def result(self, by: Literal["batches", "records"], compared: Compared) -> RangeResult:
        """Return the result for this range. `by` says whether batches or records were compared."""
        return RangeResult(
            lane=self._wanted.lane,
            first=self._wanted.first,
            end=self._wanted.end,
            by=by,
            compared=compared,
            newest_ms=self._newest_ms,
            read_bytes=self._read_bytes,
        )

    async def batches(self) -> Compared | None:
        """Compare the range by batch headers. Return None if the headers do not prove that source and target are
        equal."""
        source = [_header(batch) async for batch in self._source_batches()]
        target = [_header(batch) async for batch in self._target_batches()]
        return compare_batches(self._wanted, source, target, others_write=self._lane.others_write)

    async def records(self) -> Compared:
        """Compare the range record by record."""
        keyed = self._lane.target_compacted
        source = [seen async for batch in self._source_batches() for seen in self._seen(batch, keyed=keyed)]
        target = [seen async for batch in self._target_batches() for seen in self._seen(batch, keyed=keyed)]
        around = Surroundings(
            source_committed=self._lane.committed,
            source_log_start=self._source_bounds[0],
            target_log_start=self._target_bounds[0],
            source_compacted=self._lane.source_compacted,
            target_compacted=self._lane.target_compacted,
            others_write=self._lane.others_write,
        )
        return compare_records(self._wanted, source, target, around)

    async def source_keys(self) -> AsyncGenerator[tuple[bytes, Newest], None]:
        """Yield the key of each source record in the range, together with the record."""
        async for batch in self._source_batches():
            for row in source_rows(self._wanted, self._inside(batch, self._wanted.source_start)):
                yield row

    async def target_keys(self) -> AsyncGenerator[tuple[bytes, Newest], None]:
        """Yield the key of each target record in the range, together with the record. Aborted records are omitted,
        because they supersede no record."""
        _, stable = await self._target_log.bounds(self._lane.target, committed=True)
        start, end = self._within(self._target_bounds, self._wanted.target_start, self._wanted.target_end)
        log, log_end = _Counted(self._target_log, self._count), self._target_bounds[1]
        try:
            async with aclosing(unaborted_batches(log, self._lane.target, start, stable, end, log_end)) as batches:
                async for batch, fate in batches:
                    seen = self._inside(batch, self._wanted.target_start)
                    for row in open_rows(seen) if fate == "open" else target_rows(self._wanted, seen):
                        yield row
        except ValueError as error:
            raise EnvironmentFault(f"a transaction marker of {self._lane.target} cannot be read: {error}") from error

    def _inside(self, batch: ReadBatch, start: int) -> list[Seen]:
        """Return the records of the batch whose offsets are at least `start`. Earlier records of the batch belong to
        the preceding range."""
        return [seen for seen in self._seen(batch, keyed=True) if seen.offset >= start]

    async def _source_batches(self) -> AsyncGenerator[ReadBatch, None]:
        start, end = self._within(self._source_bounds, self._wanted.source_start, self._wanted.source_end)
        reading = self._source_log.read(self._lane.source, start, end, committed=self._lane.committed)
        async with aclosing(reading) as batches:
            async for batch in batches:
                await self._count(batch)
                if not batch.aborted and not _is_marker(batch):
                    if not batch.is_old:
                        self._newest_ms = max(self._newest_ms, batch.header.max_timestamp)
                    yield batch

    async def _target_batches(self) -> AsyncGenerator[ReadBatch, None]:
        start, end = self._within(self._target_bounds, self._wanted.target_start, self._wanted.target_end)
        async with aclosing(self._target_log.read(self._lane.target, start, end, committed=False)) as batches:
            async for batch in batches:
                await self._count(batch)
                if not _is_marker(batch):
                    yield batch

    async def _count(self, batch: ReadBatch) -> None:
        """Count a batch that was read, and wait as long as the read rate requires."""
        self._read_bytes += batch.end - batch.start
        await self._pace.took(batch.end - batch.start)

    @staticmethod
    def _within(bounds: tuple[int, int], start: int, end: int) -> tuple[int, int]:
        return max(start, bounds[0]), min(end, bounds[1])

    def _seen(self, batch: ReadBatch, *, keyed: bool) -> list[Seen]:
        appended = not batch.is_old and bool(batch.header.attributes & LOG_APPEND_TIME)
        own = not batch.is_old and batch.header.producer_id == self._wanted.producer_id
        try:
            records = decode(batch.buffer, batch.start, batch.end, self._lane.rebuild_bytes)
        except ValueError as error:
            where = f"the batch at offset {batch.header.base_offset}"
            raise EnvironmentFault(f"{where} of {self._lane.source} or its copy cannot be read: {error}") from error
        return [
            Seen(
                record.offset,
                digest(record, timed=False),
                record.time_ms,
                key=_key(record.key) if keyed and record.key is not None else None,
                is_tombstone=record.value is None,
                is_own=own,
                has_append_time=appended,
            )
            for record in records
        ]


class _Counted:
    """Reads a log, and reports each batch to `count`."""

    def __init__(self, log: LogReader, count: Callable[[ReadBatch], Awaitable[None]]) -> None:
        self._log = log
        self._count = count

    async def read(
        self, named: TopicPartition, /, start: int, end: int, *, committed: bool
    ) -> AsyncGenerator[ReadBatch, None]:
        async with aclosing(self._log.read(named, start, end, committed=committed)) as batches:
            async for batch in batches:
                await self._count(batch)
                yield batch


def _is_marker(batch: ReadBatch) -> bool:
    return not batch.is_old and bool(batch.header.attributes & CONTROL)


def _header(batch: ReadBatch) -> SeenBatch | None:
    return None if batch.is_old else SeenBatch(batch.header, batch.records_crc)


def _key(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_KEY_BYTES).digest()
