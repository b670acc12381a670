"""Reads the records that consumers read next, on both clusters. No consumer group is involved."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple

from mirrord.kafka.client.bulk_log_reader import LogReader, RangeGone
from mirrord.kafka.protocol.record_batch import CONTROL, LOG_APPEND_TIME
from mirrord.ledger.offset_map import LaneMap
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.recovery.rules.drill_verdicts import (
    DrilledLog,
    DrillPosition,
    DrillVerdict,
    NextRecords,
    VisibleRecord,
    verdict_on,
)

CHUNK_BYTES = 32 << 10
"""Approximate size of the response to a fetch. A drill reads one record at each position, so a response with more
batches would only load the brokers. The first batch is returned whatever its size is."""
TRIES = 3
"""How many times a position is read again if retention deletes the record meanwhile."""


class DrilledLane(NamedTuple):
    """A lane whose groups are examined."""

    source: TopicPartition
    target: TopicPartition
    map: LaneMap
    is_target_compacted: bool
    is_transformed: bool
    is_explained: bool
    """Whether all verdicts of the lane are known."""


class NextRecordReader:
    """Reads and judges positions. Reads of the same record are shared."""

    def __init__(
        self, source: LogReader, target: LogReader, lanes: Mapping[TopicPartition, DrilledLane], *, committed: bool
    ) -> None:
        """`lanes` holds the lanes by source partition. `committed` says whether the lanes copy committed records
        only."""
        self._source = source
        self._target = target
        self._lanes = lanes
        self._committed = committed
        self._reads: dict[tuple[bool, TopicPartition, int], asyncio.Task[VisibleRecord | None]] = {}
        self._bounds: dict[tuple[bool, TopicPartition], asyncio.Task[_Bounds]] = {}

    async def close(self) -> None:
        """Cancel all reads."""
        for task in (*self._reads.values(), *self._bounds.values()):
            task.cancel()
        await asyncio.gather(*self._reads.values(), return_exceptions=True)
        await asyncio.gather(*self._bounds.values(), return_exceptions=True)

    async def examine(self, position: DrillPosition) -> DrillVerdict:
        """Return the verdict on a position. Raises EnvironmentFault if a record cannot be read."""
        lane = self._lanes[TopicPartition(position.topic, position.partition)]
        bounds = await self._bounds_of(lane.target, is_source=False)
        first, later = await asyncio.gather(
            self._first(lane.source, position.source_offset, is_source=True),
            self._first(lane.source, position.later_offset, is_source=True),
        )
        there = copy = None
        if position.target_offset is not None:
            there = await self._first(lane.target, position.target_offset, is_source=False)
        if first is not None and (at := lane.map.to_target(first.offset).record) is not None and at >= bounds.start:
            # Records of other clients may be hidden by their open transactions. The copy is in no transaction.
            copy = there if there is not None and there.offset == at else None
            copy = copy or await self._first(lane.target, at, is_source=False)
        log = DrilledLog(
            bounds.start, bounds.stable_end, lane.is_target_compacted, lane.is_transformed, lane.is_explained
        )
        return verdict_on(position, NextRecords(first, later, there, copy), lane.map, log)

    async def _bounds_of(self, partition: TopicPartition, *, is_source: bool) -> "_Bounds":
        key = (is_source, partition)
        if key not in self._bounds:
            self._bounds[key] = asyncio.create_task(self._read_bounds(partition, is_source=is_source))
        return await asyncio.shield(self._bounds[key])

    async def _read_bounds(self, partition: TopicPartition, *, is_source: bool) -> "_Bounds":
        log = self._source if is_source else self._target
        start, end = await log.bounds(partition, committed=is_source and self._committed)
        if is_source:
            return _Bounds(start, end, end)
        return _Bounds(start, end, (await log.bounds(partition, committed=True))[1])

    async def _first(self, partition: TopicPartition, offset: int, *, is_source: bool) -> VisibleRecord | None:
        key = (is_source, partition, offset)
        if key not in self._reads:
            self._reads[key] = asyncio.create_task(self._read(partition, offset, is_source=is_source))
        return await asyncio.shield(self._reads[key])

    async def _read(self, partition: TopicPartition, offset: int, *, is_source: bool) -> VisibleRecord | None:
        log, bounds = self._source if is_source else self._target, await self._bounds_of(partition, is_source=is_source)
        committed = self._committed if is_source else offset < bounds.stable_end
        start, end = bounds.start, bounds.stable_end if committed else bounds.end
        for _ in range(TRIES):
            try:
                return await first_record(log, partition, max(start, offset), end, committed=committed)
            except RangeGone:
                start, end = await log.bounds(partition, committed=committed)
        raise EnvironmentFault(f"{partition}: retention deletes the records faster than they can be read")


class _Bounds(NamedTuple):
    start: int
    """Log start offset."""
    end: int
    """High watermark, or the last stable offset of a source of which committed records are copied."""
    stable_end: int
    """Last stable offset."""


async def first_record(
    log: LogReader, partition: TopicPartition, start: int, end: int, *, committed: bool
) -> VisibleRecord | None:
    """Return the first record from the offset `start` up to `end` that a consumer reads, or None if there is none.
    Raises EnvironmentFault."""
    if start >= end:
        return None
    async with aclosing(log.read(partition, start, end, committed=committed)) as batches:
        async for batch in batches:
            if batch.aborted or batch.header.attributes & CONTROL:
                continue
            for record in await batch.decoded():
                if start <= record.offset < end:
                    return VisibleRecord.of(record, has_append_time=bool(batch.header.attributes & LOG_APPEND_TIME))
    return None
