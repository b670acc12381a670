"""Determines where MirrorMaker 2 stopped, for lanes that have no history in the ledger. This module reads the logs, and
`mirrord.replication.lane.mm2_position` compares their records."""

import asyncio
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.partition_queries import Asks, bounds, last_stable_offset
from mirrord.kafka.client.range_reader import ReadBatch, Stretches
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, LOG_APPEND_TIME
from mirrord.kafka.records.large_batches import in_parts
from mirrord.kafka.records.record_digest import digest
from mirrord.ledger.facts.core import CopyInherited
from mirrord.model.names import LaneId, TopicPartition
from mirrord.replication.host.mm2_positions import (
    NotAllowed,
    active_workers,
    default_topic,
    read_positions,
    workers_group,
)
from mirrord.replication.lane.mm2_position import OffsetRow, Tail, TopicEnd

MOST_RANGES = 1_000
"""Largest number of ranges of duplicated records, and of ranges of missing records, in one fact. The limit bounds the
size of the fact."""
_AT_ONCE = 2
"""Number of lanes whose target logs are compared with the source at the same time. Each comparison holds record digests
in memory: by default, those of 10,000 target records (`from_mm2.verify_records`) and those of slightly more source
records."""
_STALE_S = 5.0


class Legacy(NamedTuple):
    """What a lane can take over from MirrorMaker 2: nothing, a start position, or a reason not to start."""

    inherited: CopyInherited | None = None
    trouble: str = ""
    """Why the lane must not start; empty if it may start. If `inherited` is set nevertheless, the comparison of the
    target with the source found different records ("strange"). Otherwise, the obstacle is temporary, or an operator can
    remove it as this text advises.
    """


NO_LEGACY = Legacy()


class _Word(NamedTuple):
    """The positions that MirrorMaker 2 recorded for all partitions, and the time at which they were read."""

    at: float
    positions: dict[TopicPartition, int] | None
    """None if the topic for these positions does not exist: MirrorMaker 2 has not copied from the source to this
    cluster."""
    workers: int


class Sides(NamedTuple):
    """Access to one cluster: its metadata, requests about single partitions, and reads of offset ranges."""

    view: ClusterView
    asks: Asks
    stretches: Stretches


class Mm2Takeover:
    """Finds the positions that the lanes of one flow take over from MirrorMaker 2."""

    def __init__(
        self, flow: FlowConfig, target_config: ClusterConfig, source: Sides, target: Sides, timeout_s: float
    ) -> None:
        self._flow = flow
        self._config = target_config
        self._source = source
        self._target = target
        self._timeout_s = timeout_s
        self._topic = flow.from_mm2.offsets_topic or default_topic(flow.source)
        self._group = flow.from_mm2.workers_group or workers_group(flow.source)
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._reading = asyncio.Lock()
        self._word: _Word | None = None

    async def of(self, lane: LaneId, source: PartitionId, target: PartitionId) -> Legacy:
        """Return what a lane takes over from MirrorMaker 2.

        Raises ReadFailed or EnvironmentFault if this cannot be determined at the moment. In that case, the caller must
        call this method again.
        """
        if self._flow.from_mm2.takeover == "off":
            return NO_LEGACY
        end, begin = await bounds(self._target.asks, target)
        if end == 0:
            return NO_LEGACY
        try:
            word = await self._current_word()
        except NotAllowed as fault:
            return Legacy(None, f'the target has records, and {fault}, or set from_mm2.takeover = "off"')
        if word.positions is None:
            return NO_LEGACY
        said = word.positions.get(TopicPartition(source.topic, source.partition))
        if word.workers:
            where = f"group {self._group} on the target"
            what = f"{word.workers} workers of MirrorMaker 2 are still copying ({where}): stop them"
            return Legacy(None, what)
        if self._flow.from_mm2.takeover == "trust":
            return NO_LEGACY if said is None else Legacy(CopyInherited(lane, 0, said, said, end, 0, "trusted"))
        # If MirrorMaker 2 crashed before it stored its first position, it would start again from the beginning,
        # although the records that it has already copied are in the target.
        position = (await bounds(self._source.asks, source))[1] if said is None else said
        async with self._slots:
            ending, looked_at = await self._search(position, source, target, begin, end)
        if said is None and ending.found != "verified":
            return NO_LEGACY
        if (await bounds(self._target.asks, target))[0] != end:
            return Legacy(None, "another client is writing to the target, which grew while it was being examined")
        doubled, missing = ending.doubled[:MOST_RANGES], ending.missing[:MOST_RANGES]
        found = CopyInherited(lane, 0, position, ending.position, end, looked_at, ending.found, doubled, missing)
        return Legacy(found, _strange(found) if ending.found == "strange" else "")

    async def has_copied(self, topic: str) -> bool:
        """Return whether MirrorMaker 2 has copied any partition of this source topic. Return False if mirrord has no
        permission to find out.

        Raises ReadFailed or EnvironmentFault if this cannot be determined at the moment.
        """
        if self._flow.from_mm2.takeover == "off":
            return False
        try:
            word = await self._current_word()
        except NotAllowed:
            return False
        return any(each.topic == topic for each in word.positions or ())

    async def _current_word(self) -> _Word:
        async with self._reading:
            now = asyncio.get_running_loop().time()
            if self._word is None or now > self._word.at + _STALE_S:
                positions = await read_positions(*self._target, self._topic, self._flow.source)
                has_topic = positions is not None
                workers = await active_workers(self._config, self._group, self._timeout_s) if has_topic else 0
                self._word = _Word(asyncio.get_running_loop().time(), positions, workers)
            return self._word

    async def _search(
        self, said: int, source: PartitionId, target: PartitionId, begin: int, end: int
    ) -> tuple[TopicEnd, int]:
        depth = self._flow.from_mm2.verify_records
        copies, timed, whole = await self._copies(target, max(begin, end - depth), end)
        tail = Tail(said, copies, whole=whole)
        if copies:
            await self._originals(tail, said, source, end - begin + depth, timed=timed)
        return tail.result(), len(copies)

    async def _copies(self, target: PartitionId, start: int, end: int) -> tuple[list[OffsetRow], bool, bool]:
        """Read the records of the target log from `start` to `end` (exclusive).

        Return the digests of the records, whether their timestamps are those of the source records, and whether the
        records are complete. They are complete if no record after the first one was removed from the log.
        """
        by_time: dict[bool, list[OffsetRow]] = {True: [], False: []}
        timed, held = True, 0
        async for batch in self._target.stretches.read(target, start, end):
            header = batch.header
            if header.attributes & CONTROL:
                held += 1
                continue
            timed = timed and not header.attributes & LOG_APPEND_TIME
            async for some in in_parts(await _decoded(batch)):
                for record in some:
                    if record.offset >= start:
                        for kind, rows in by_time.items():
                            rows.append(OffsetRow(record.offset, digest(record, timed=kind)))
        copies = by_time[timed]
        return copies, timed, bool(copies) and len(copies) + held >= end - copies[0].offset

    async def _originals(self, tail: Tail, said: int, source: PartitionId, most: int, *, timed: bool) -> None:
        high_watermark, begin = await bounds(self._source.asks, source)
        stable = high_watermark
        if self._flow.isolation == "read_committed":
            stable = min(stable, await last_stable_offset(self._source.asks, source))
        start = max(begin, said - self._flow.from_mm2.verify_records)
        end = min(high_watermark, max(said, start) + most)
        parts = ((start, min(stable, end), True), (max(stable, start), end, False))
        for first, last, committed in parts:
            async for batch in self._source.stretches.read(source, first, last, committed=committed):
                if batch.header.attributes & CONTROL:
                    continue
                for record in await _decoded(batch):
                    row = OffsetRow(record.offset, digest(record, timed=timed), batch.aborted)
                    if first <= record.offset < last and not tail.take(row):
                        return


async def _decoded(batch: ReadBatch) -> list[DecodedRecord]:
    try:
        return await batch.decoded()
    except ValueError:
        return []  # an unreadable batch matches nothing


def _strange(found: CopyInherited) -> str:
    return (
        f"MirrorMaker 2 had copied up to source offset {found.said}, but the last {found.looked_at:,} records of the "
        'target are different: from_mm2.takeover = "trust" continues there anyway, "off" begins like a new topic'
    )
