"""Reads a lane's batches back from the target and compares them with the source."""

import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from functools import partial

from msgspec.structs import replace

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import Asks, bounds
from mirrord.kafka.client.range_reader import ReadBatch, ReadFailed, Stretches
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, LOG_APPEND_TIME
from mirrord.model.errors import PolicyFault
from mirrord.model.intervals import ranges
from mirrord.replication.host.unwritten_records import unwritten
from mirrord.replication.lane.signals import AskCheck, CheckAnswer, LaneRecord
from mirrord.replication.lane.source.recorded_epochs import epoch_at, is_truncated
from mirrord.replication.lane.target.batch_compare import (
    EQUAL,
    BatchCopy,
    BatchFinding,
    same_bytes,
    same_records,
    together,
)
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.replication.lane.target.target_scan import but_not_void

Pairs = list[tuple[int, int]]
"""Pairs of (ordinal, source offset)."""
ReadLogStart = Callable[[], Awaitable[int]]
"""Returns the log start offset of a partition."""

LOST = BatchFinding("unverifiable", "the source has lost some of the records and uses their offsets again")
DELETED = BatchFinding("unverifiable", "the target has deleted some of the records")
NOT_FOUND = BatchFinding("unverifiable", "the target has none of these records")
_OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)


class BatchVerification:
    """One comparison of a lane's batches on the target with the records of the source.

    This comparison does not report an ordinal that is missing from all batches on the target. The lane itself detects
    that records are missing.
    """

    def __init__(
        self,
        source: Stretches,
        target: Stretches,
        source_partition: PartitionId,
        target_partition: PartitionId,
        record: LaneRecord,
        wanted: AskCheck,
        changing: Callable[[DecodedRecord], DecodedRecord] | None = None,
    ) -> None:
        """`changing` applies the flow's record policy to a record, and may raise PolicyFault. It is None if the flow
        does not change the records of the topic."""
        self._target = target
        self._target_partition = target_partition
        self._record = record
        self._runs = source_runs = record.source_runs
        self._wanted = wanted
        self._changing = changing
        self._source_end, self._source_begin = sys.maxsize, 0
        self._ask_source_begin: ReadLogStart | None = None
        self._compared_from = wanted.last + 1
        self._has_found = False
        last = max((offset + length for _, offset, length in source_runs.between(wanted.first, wanted.last)), default=0)
        self._originals = _Originals(source, source_partition, last)

    async def run(
        self,
        source: tuple[int, int] = (sys.maxsize, 0),
        target_begin: ReadLogStart | None = None,
        source_begin: ReadLogStart | None = None,
    ) -> BatchFinding:
        """Compare the batches, and return the outcome of the comparison.

        `source` is the high watermark and the log start offset of the source. A record counts as removed from the
        source (`BatchFinding.gone`) only if its offset is below that high watermark. `target_begin` and `source_begin`
        return the log start offsets of the target and the source. If one of the logs has deleted some of the records in
        the meantime, those that it still has are compared. Raises ReadFailed if the source or the target cannot be read
        at the moment.
        """
        self._source_end, self._source_begin = source
        self._ask_source_begin = source_begin
        self._originals.limit(self._source_begin, self._source_end)
        findings: list[BatchFinding] = []
        start, deleted_until = self._wanted.start, -1
        try:
            while await self._is_out_of_range(start, findings):
                self._compared_from = deleted_until = self._wanted.last + 1
                begin = await target_begin() if target_begin is not None else -1
                if begin <= start:
                    break
                start = begin
        finally:
            await self._originals.close()
        if deleted_until >= 0 and self._compared_from > self._wanted.first:
            findings.append(replace(DELETED, deleted_until=self._compared_from))
        elif not self._has_found:
            findings.append(NOT_FOUND)
        return together(findings)

    async def _is_out_of_range(self, start: int, findings: list[BatchFinding]) -> bool:
        """Compare the batches from the target offset `start` onward, up to the first difference. Return True if the
        comparison stopped because the target has deleted some of the offsets to be read."""
        wanted = self._wanted
        try:
            async for batch in self._target.read(self._target_partition, start, wanted.end):
                if is_own(batch.header, wanted.producer_id):
                    findings.append(await self._compare(batch))
                    if findings[-1].outcome == "different":
                        return False
        except ReadFailed as failed:
            if failed.error != _OUT_OF_RANGE:
                raise
            return True
        return False

    async def _compare(self, batch: ReadBatch) -> BatchFinding:
        copy = BatchCopy(batch.header, batch.records_crc)
        first = copy.first(self._wanted.first)
        start, last = max(first, self._wanted.first), min(first + copy.count - 1, self._wanted.last)
        self._compared_from = min(self._compared_from, start)
        self._has_found = self._has_found or start <= last
        live = but_not_void(self._record.holes, start, last)
        pieces = [piece for each in live for piece in self._runs.between(*each)]
        if not pieces:
            return EQUAL
        originals = await self._originals_of(pieces)
        if originals is None:
            gone = ranges(ordinal for ordinal, offset in _pairs(pieces) if offset < self._source_begin)
            return BatchFinding("unverifiable", "the source no longer has some of the records", gone)
        if len(pieces) == len(originals) == 1 and pieces[0][2] == copy.count:
            original = originals[0]
            if (
                not original.is_old
                and original.header.base_offset == pieces[0][1]
                and same_bytes(copy.header, copy.records_crc, original.header, original.records_crc)
            ):
                return BatchFinding("equal", equal_until=last + 1)
        pairs = _pairs(pieces)
        lost = {pair for pair in pairs if is_truncated(self._record, *pair)}
        left = [pair for pair in pairs if pair not in lost]
        reused = {pair[0] for pair in left if self._is_of_another_epoch(*pair, originals)}
        finding = await self._compare_records(batch, first, originals, pairs)
        # Nothing is lost if the source has exactly the same record at the reused offset.
        if finding.outcome == "equal" or not (lost or reused):
            return finding
        return together([LOST, await self._compare_records(batch, first, originals, left, reused)])

    async def _originals_of(self, pieces: Sequence[tuple[int, int, int]]) -> list[ReadBatch] | None:
        """Return the source batches that hold the records of these pieces. If retention on the source has just deleted
        some of the records, return the batches that are left. Return None if the source lacks some of the offsets for
        any other reason."""
        first, last = min(offset for _, offset, _ in pieces), max(offset + length for _, offset, length in pieces) - 1
        while True:
            try:
                return await self._originals.covering(first, last)
            except ReadFailed as failed:
                if failed.error != _OUT_OF_RANGE:
                    raise
            await self._originals.close()
            begin = await self._ask_source_begin() if self._ask_source_begin is not None else -1
            if begin <= self._source_begin:
                return None
            self._source_begin = begin
            self._originals.limit(begin, self._source_end)

    async def _compare_records(
        self,
        batch: ReadBatch,
        first: int,
        originals: list[ReadBatch],
        pairs: Pairs,
        reused: Container[int] = (),
    ) -> BatchFinding:
        base, changing = batch.header.base_offset, self._changing
        try:
            copies = {first + record.offset - base: record for record in await batch.decoded()}
            by_offset = {record.offset: record for original in originals for record in await original.decoded()}
        except ValueError as error:
            return BatchFinding("unverifiable", f"records cannot be read: {error}")
        timed = not batch.header.attributes & LOG_APPEND_TIME
        if changing is None:
            return same_records(pairs, copies, by_offset, timed=timed, source_end=self._source_end, reused=reused)
        certain = [pair for pair in pairs if pair[0] in copies and self._is_reassigned(pair[0])]
        try:
            changed = {offset: changing(by_offset[offset]) for _, offset in pairs if offset in by_offset}
        except PolicyFault as fault:
            return BatchFinding("unverifiable", str(fault), ranges(ordinal for ordinal, _ in certain))
        finding = same_records(pairs, copies, changed, timed=timed, reused=reused)
        other = same_records(certain, copies, changed, timed=timed, reused=reused)
        if other.outcome == "different":
            return other
        # No other process can have written the record: a lane with policies waits until the previous holder can no
        # longer write (`mirrord.replication.lane.resuming`). The only exceptions are batches that an election has
        # brought back.
        doubt = f"the transform now returns a different record for it: {finding.note}"
        return BatchFinding("unverifiable", doubt) if finding.outcome == "different" else finding

    def _is_reassigned(self, ordinal: int) -> bool:
        """Return whether the target's record with this ordinal is certainly not the one in the offset map."""
        return any(start <= ordinal < end for start, end in self._wanted.reassigned)

    def _is_of_another_epoch(self, ordinal: int, offset: int, originals: list[ReadBatch]) -> bool:
        """Return whether the source now has a record of a different leader epoch at the offset of a copied record. If
        so, the source has lost the copied record and reused its offset."""
        known = epoch_at(self._wanted.epochs, ordinal)
        now = next((each.header.leader_epoch for each in originals if each.header.last_offset >= offset), -1)
        return known not in {now, -1} and now >= 0


async def check(
    source: tuple[Stretches, PartitionId],
    target: tuple[Stretches, PartitionId],
    asks: tuple[Asks, Asks],
    record: LaneRecord,
    wanted: AskCheck,
    changing: Callable[[DecodedRecord], DecodedRecord] | None = None,
) -> CheckAnswer:
    """Return the answer to a lane that asks for a comparison. `asks` contains the objects that send requests to the
    source and to the target. The other parameters are those of `BatchVerification`.

    Raises ReadFailed if the source or the target cannot be read at the moment.
    """

    async def begin_of(asks: Asks, partition: PartitionId) -> int:
        _, begin = await bounds(asks, partition)
        return begin

    readable = await bounds(asks[0], source[1])
    in_front = await _in_front_of(*source, wanted.position, readable)
    comparison = BatchVerification(source[0], target[0], source[1], target[1], record, wanted, changing)
    begins = partial(begin_of, asks[1], target[1]), partial(begin_of, asks[0], source[1])
    found = await comparison.run(readable, *begins)
    pairs = [pair for each in found.replaced for pair in _pairs([*record.source_runs.between(each[0], each[1] - 1)])]
    beyond = [(ordinal, offset) for ordinal, offset in pairs if offset >= readable[0]]
    never = await unwritten(asks[0], source[1], beyond, wanted.epochs)
    note = f"the source has not had a record for ordinal {never[0][0]} yet" if never else found.note
    result = (wanted.first, wanted.last, found.outcome, note, *in_front)
    known = (found.gone, found.equal_until, found.replaced, found.deleted_until)
    return CheckAnswer(wanted.question, 0, *result, *known, never)


async def _in_front_of(
    source: Stretches, partition: PartitionId, position: int, readable: tuple[int, int]
) -> tuple[int, int]:
    """Return the leader epoch of the source batch before `position`, and the end of the source log if that end is below
    `position`. `readable` is the high watermark and the log start offset of the source.

    The epoch is -1 if there is no such batch or its epoch is not known. The end is -1 if it is not below `position`.
    Raises ReadFailed if the source cannot be read at the moment.
    """
    end, begin = readable
    if end < position:
        return -1, end
    if position <= begin:
        return -1, -1
    reading = source.read(partition, position - 1, position)
    try:
        batch = await anext(reading, None)
        return -1 if batch is None or batch.is_old else batch.header.leader_epoch, -1
    finally:
        await reading.aclose()


def _pairs(pieces: Sequence[tuple[int, int, int]]) -> Pairs:
    return [(ordinal + at, offset + at) for ordinal, offset, length in pieces for at in range(length)]


class _Originals:
    """Reads the source batches for a sequence of offset ranges. Each range must begin at or after the start of the
    previous range. Only the batches that the current range or a later one may need are kept."""

    def __init__(self, source: Stretches, partition: PartitionId, end: int) -> None:
        self._source = source
        self._partition = partition
        self._start, self._end = 0, end
        self._reading: AsyncGenerator[ReadBatch, None] | None = None
        self._held: deque[ReadBatch] = deque()
        self._read_from = -1
        self._read_to = -1

    def limit(self, start: int, end: int) -> None:
        """Restrict reading to the offsets [start, end). The source can return only these offsets, so a read of other
        offsets would fail."""
        self._start, self._end = start, min(self._end, end)

    async def covering(self, first: int, last: int) -> list[ReadBatch]:
        """Return the source batches, except control batches, that contain offsets from `first` to `last`
        (inclusive)."""
        if self._reading is None or first < self._read_from:
            await self.close()
            self._held.clear()
            self._reading = self._source.read(self._partition, max(first, self._start), self._end)
            self._read_to = first
        self._read_from = first
        while self._held and self._held[0].header.last_offset < first:
            self._held.popleft()
        while self._read_to <= last:
            batch = await anext(self._reading, None)
            if batch is None:
                break
            self._read_to = batch.header.last_offset + 1
            if self._read_to > first and not batch.header.attributes & CONTROL:
                self._held.append(batch)
        return [batch for batch in self._held if batch.header.base_offset <= last]

    async def close(self) -> None:
        """Stop reading the source."""
        reading, self._reading = self._reading, None
        if reading is not None:
            await reading.aclose()
