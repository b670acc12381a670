"""Finds unknown copies: records in the target that mirrord has copied but that are not in the ledger. Such copies exist
if the ledger was lost, or if the flow previously had a different name.

A lane without a history in the ledger would copy these records again. Therefore, samples of the source log and of the
target log are compared before the lane starts. In addition, records of each source sample are looked up in the target
by their timestamps, and records of each target sample are looked up in the source.

Records that other clients write to the target topic are not mistaken for copies, because they do not exist in the
source. Records that the source received from the target through a flow in the opposite direction do not count as copies
either.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from typing import NamedTuple

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import bounds, start_offset
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, LOG_APPEND_TIME, HeaderTuple
from mirrord.kafka.records.record_digest import digest
from mirrord.model.names import LaneId
from mirrord.replication.host.mm2_takeover import Sides
from mirrord.replication.host.record_policies import RecordPolicies
from mirrord.replication.lane.target.existing_copies import FoundRow, What, in_common, may_be_a_lanes

log = structlog.get_logger()

LOOK_OFFSETS = 500
LOOK_BYTES = 2 << 20
"""A sample ends after `LOOK_OFFSETS` offsets or `LOOK_BYTES` bytes, whichever limit is reached first."""
PLACES = 4
"""Number of samples from each log. The samples are evenly spaced: the first one is at the beginning of the log, and the
last one is at its end."""
FOUND_KEPT = 1_000
"""Maximum number of lanes for which the result is kept. If it is no longer kept, the logs are read again."""
_AT_ONCE = 4

CopyFinder = Callable[[PartitionId, Sequence[HeaderTuple]], Awaitable[Collection[int]]]
"""A function that returns the indexes of the source batches that are themselves copies. It raises ReadFailed if it
cannot determine these batches at the moment."""


class _Place:
    """One sample of a log: its readable batches, and their records."""

    def __init__(self) -> None:
        self.batches: list[ReadBatch] = []
        self.records: list[DecodedRecord] = []
        self._rows: dict[What, list[FoundRow]] = {}

    @classmethod
    async def of(cls, batches: Iterable[ReadBatch]) -> "_Place":
        """Return the sample that consists of these batches. Unreadable batches are omitted, because they match
        nothing."""
        place = cls()
        for batch in batches:
            try:
                place.records += await batch.decoded()
            except ValueError:
                continue
            place.batches.append(batch)
        return place

    @property
    def newest_ms(self) -> int:
        return max((record.time_ms for record in self.records), default=-1)

    def rows(self, what: What) -> list[FoundRow]:
        """Return a row for each record of the sample. The row contains the record's offset and the part of the record
        that `what` selects for the comparison."""
        if what not in self._rows:
            self._rows[what] = [_row(record, what) for record in self.records]
        return self._rows[what]


def _row(record: DecodedRecord, what: What) -> FoundRow:
    held = b"%d" % record.time_ms if what == "times" else digest(record, timed=what == "records")
    return FoundRow(record.offset, held)


class ExistingCopies:
    """Finds copies in the target that are not in the ledger, for the lanes of one flow."""

    def __init__(self, flow: FlowConfig, source: Sides, target: Sides, find_copies: CopyFinder) -> None:
        self._flow = flow
        self._shaping = RecordPolicies(flow)
        self._sides = source, target
        self._find_copies = find_copies
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._found: dict[LaneId, str] = {}
        """For each lane whose target holds copies that are not in the ledger, the line that describes them. Lanes ask
        repeatedly, but once a copy has been found for a lane, its logs are not read again."""

    async def of(self, lane: LaneId, source: PartitionId, target: PartitionId) -> str:
        """Return a line that says why a lane without a history in the ledger must not start copying, or an empty string
        if it may start.

        Raises ReadFailed if a log cannot be read at the moment. In that case, the caller must call this method again.
        """
        if self._flow.on_unknown_copies == "begin":
            return ""
        return await self.line(lane, source, target)

    async def line(self, lane: LaneId, source: PartitionId, target: PartitionId) -> str:
        """Return a line that describes copies in the target that are not in the ledger, or an empty string if none are
        found.

        Unlike `of`, this method ignores the config key `on_unknown_copies`. Raises ReadFailed if a log cannot be read
        at the moment.
        """
        end, begin = await bounds(self._sides[1].asks, target)
        if end <= begin:
            return ""
        if lane not in self._found:
            is_transformed = bool(self._flow.records.transform) and self._shaping.concerns(source.topic)
            # If the source topic and the target topic have different names, the names show which topics are copies from
            # the target.
            find_copies = self._find_copies if source.topic == target.topic else None
            async with self._slots:
                look = _Look(_End(self._sides[0], source), _End(self._sides[1], target), find_copies)
                found = await look.look("times" if is_transformed else "records")
            if found is None:
                return ""
            self._found[lane] = line = _line(*found)
            if len(self._found) > FOUND_KEPT:
                del self._found[next(iter(self._found))]
            log.warning("copies_unknown_to_the_ledger", lane=lane, reason=line)
        return self._found[lane]


class _End(NamedTuple):
    """The source log or the target log of a lane: a cluster, and a partition in it."""

    side: Sides
    partition: PartitionId

    async def bounds(self) -> tuple[int, int]:
        """Return the log start offset and the high watermark of the partition."""
        end, begin = await bounds(self.side.asks, self.partition)
        return begin, end


class _Look:
    """One comparison of samples from a source partition with samples from its target partition."""

    def __init__(self, source: _End, target: _End, find_copies: CopyFinder | None) -> None:
        self._source = source
        self._target = target
        self._find_copies = find_copies

    async def look(self, what: What) -> tuple[int, int] | None:
        """Return a source offset and a target offset at which the same record was found, or None if there is no such
        pair.

        `what` selects the part of the records that is compared.
        """
        at_source, at_target = await self._source.bounds(), await self._target.bounds()
        heres = [await self._here(at, at_source) for at in _places(*at_source)]
        theres = [await self._there(at, at_target) for at in _places(*at_target)]
        appends = any(batch.header.attributes & LOG_APPEND_TIME for place in theres for batch in place.batches)
        what = "contents" if appends else what
        for here in heres:
            for there in theres:
                if found := await self._same(here, there, what):
                    return found
        for here in heres if not appends else ():
            if here.records:
                at = await _first_of(self._target, here.newest_ms)
                there = await self._there(max(at_target[0], at - LOOK_OFFSETS // 2), at_target)
                if found := await self._same(here, there, what):
                    return found
        for there in theres:
            if there.records:
                at = await _first_of(self._source, there.newest_ms)
                # An append time on the target is later than the record's time on the source.
                before = LOOK_OFFSETS - 1 if appends else LOOK_OFFSETS // 2
                here = await self._here(max(at_source[0], at - before), at_source)
                if found := await self._same(here, there, what):
                    return found
        return None

    async def _same(self, here: _Place, there: _Place, what: What) -> tuple[int, int] | None:
        found = in_common(here.rows(what), there.rows(what), what)
        if found is None or self._find_copies is None:
            return found
        copies = await self._find_copies(self._source.partition, [batch.header for batch in here.batches])
        if not copies:
            return found
        left = await _Place.of(batch for at, batch in enumerate(here.batches) if at not in copies)
        return in_common(left.rows(what), there.rows(what), what)

    async def _here(self, start: int, log: tuple[int, int]) -> _Place:
        batches = await _read(self._source, start, log[1])
        return await _Place.of(batch for batch in batches if batch.is_old or not batch.header.attributes & CONTROL)

    async def _there(self, start: int, log: tuple[int, int]) -> _Place:
        batches = await _read(self._target, start, log[1])
        return await _Place.of(batch for batch in batches if not batch.is_old and may_be_a_lanes(batch.header))


def _places(begin: int, end: int) -> Iterator[int]:
    last = max(begin, end - LOOK_OFFSETS)
    if end > begin:
        yield from sorted({begin + (last - begin) * number // (PLACES - 1) for number in range(PLACES)})


async def _read(log: _End, start: int, end: int) -> list[ReadBatch]:
    batches: list[ReadBatch] = []
    size = 0
    until = min(end, start + LOOK_OFFSETS)
    async with aclosing(log.side.stretches.read(log.partition, start, until)) as found:
        async for batch in found:
            batches.append(batch)
            size += batch.end - batch.start
            if size > LOOK_BYTES:
                break
    return batches


async def _first_of(log: _End, time_ms: int) -> int:
    """Return the offset of the first record whose timestamp is `time_ms` or later, or the log end offset if there is
    none.

    Raises ReadFailed if the log cannot be read at the moment.
    """
    return await start_offset(log.side.asks, log.partition, max(time_ms, 0))


def _line(here: int, there: int) -> str:
    return (
        f"the target holds records of this source that the ledger does not know, such as the one at source offset "
        f"{here} at target offset {there}: stop the daemon, and `mirrord rebuild` lets it continue after them; "
        'on_unknown_copies = "begin" begins anyway, and may copy them again'
    )
