"""Reads the source log and the target log to find the source offsets of a lane's batches by the content of their
records.

The search itself is implemented in `mirrord.replication.lane.target.batch_relocation`.
"""

from collections.abc import Awaitable, Callable, Hashable, Sequence

import msgspec

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import Asks, bounds, last_stable_offset
from mirrord.kafka.client.range_reader import ReadFailed, Stretches
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import CONTROL, LOG_APPEND_TIME, HeaderTuple
from mirrord.kafka.protocol.sequence import nearest
from mirrord.kafka.records.large_batches import in_parts
from mirrord.kafka.records.record_digest import digest
from mirrord.ledger.facts.core import Reason
from mirrord.model.intervals import Interval, ranges, within
from mirrord.replication.host.newer_copies import Batches, NewerCopies, newer_copies
from mirrord.replication.host.unwritten_records import unwritten
from mirrord.replication.lane.signals import AskRebuild, LaneRecord, OwnBatch, RebuildAnswer
from mirrord.replication.lane.source.missing_from_target import (
    without_filtered,
    without_left_out,
    without_superseded,
)
from mirrord.replication.lane.source.record_search import LedgerAnswers, Range, SourceBatch, TargetBatch, Unplaced
from mirrord.replication.lane.target import rebuilt_verdicts
from mirrord.replication.lane.target.batch_relocation import (
    covered_below,
    explained_until,
    last_below,
    locate,
    open_ordinals,
    replaced,
    search_range,
)
from mirrord.replication.lane.target.evidence import reassigned_since
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.replication.lane.target.relocation_result import Located

Compacts = Callable[[], Awaitable[bool | None]]
"""A function that returns whether a topic is compacted, or None if mirrord has no permission to read the topic's
configs."""
POLICY = "a policy changes its records, so their content does not show where they come from"
UNKNOWN_POLICY = (
    "the target lacks records for which it has newer ones with the same keys, and it is not known whether the topic is "
    "compacted: grant DESCRIBE_CONFIGS on this topic on the target"
)
MOST_RECORDS = 500_000
"""Maximum number of records that are held in memory for each of the two logs. A record takes about 150 bytes."""


class BatchRelocation:
    """One search for the source offsets of a lane's batches, by the content of their records."""

    def __init__(
        self,
        source: Stretches,
        target: Stretches,
        source_partition: PartitionId,
        target_partition: PartitionId,
        asks: tuple[Asks, Asks],
        copies: Callable[[PartitionId, Sequence[HeaderTuple]], Awaitable[set[int]]] | None,
        *,
        read_committed: bool,
    ) -> None:
        """`asks` is a pair: the first object sends requests to the source, and the second one sends requests to the
        target. `copies` returns the indexes of the source batches that are themselves copies (see
        `OriginLookup.copies`). It is None if the source partition holds no copies."""
        self._source = source
        self._target = target
        self._source_partition = source_partition
        self._target_partition = target_partition
        self._asks, self._target_asks = asks
        self._copies = copies
        self._read_committed = read_committed
        self._aborted: set[Hashable] = set()
        """The contents of the records of aborted transactions that the search has read."""

    async def run(
        self,
        record: LaneRecord,
        wanted: AskRebuild,
        source_compacts: Compacts,
        compacts: Compacts,
        *,
        is_filtered: bool = False,
    ) -> RebuildAnswer:
        """Return the source offsets of all records of the lane with the ordinal `wanted.first` or higher, or the reason
        why these offsets cannot be determined.

        `source_compacts` and `compacts` return whether the source topic and the target topic are compacted.
        `is_filtered` says whether the lane has a filter, which does not change the records that it keeps. Raises
        ReadFailed if the source log or the target log cannot be read at the moment, or if one of these two functions
        raises it.
        """
        own: list[OwnBatch] = []
        try:
            timed, standing, bare = await self._standing(wanted, own)
            last = standing[-1].last if standing else wanted.first - 1
            policy = await compacts()
            may_be_compacted = policy is not False
            removed = max(wanted.last - last, 0) if may_be_compacted and not is_filtered else 0
            searched = search_range(record, wanted.first, last + removed, is_filtered=is_filtered)
            high_watermark, begin = await bounds(self._asks, self._source_partition)
            end = readable_end = min(searched.end, high_watermark)
            covered, before = covered_below(record, wanted.first), last_below(record, wanted.first)
            if self._read_committed:
                copied_end = covered[-1].end if covered else 0
                ordinals = wanted.first, last
                end = min(end, await self._stable_end(record, ordinals, copied_end, high_watermark, compacts))
            # The source may have deleted the first records of the range. Their offsets are nevertheless part of the
            # search, so that the lane continues at these offsets and records the loss of those not yet copied.
            searched = Range(searched.start, max(end, searched.start))
            originals = await self._originals(Range(max(searched.start, begin), searched.end), timed=timed)
            if standing and self._read_committed:
                unstable = Range(max(searched.end, begin), readable_end)
                _refuse_uncommitted(standing, originals, await self._uncommitted(unstable, timed=timed))
            opens = await self._opens(record, wanted, own, originals, high_watermark)
            explained = explained_until(record, wanted.first, standing)
            answers = (opens, record.source_runs.offset_of, explained, wanted.confirmed, is_filtered, removed, timed)
            ledger = LedgerAnswers(*answers, _had_election(record, originals), readable_end == high_watermark)
            located = locate(standing, originals, covered, before, searched, ledger)
        except (Unplaced, ValueError) as why:
            return RebuildAnswer(wanted.question, 0, tuple(own), None, str(why))
        located = msgspec.structs.replace(located, source_start=begin)
        if rebuilt_verdicts.has_gaps(record, wanted.first, own, located) and not _is_compacted(originals):
            located = msgspec.structs.replace(located, source_compacts=await source_compacts() is not False)
        unclear: Sequence[Interval] = ()
        sought = located if may_be_compacted else _beside_cleaned(located)
        sought = _undecided(record, wanted, sought, is_filtered=is_filtered)
        if sought.missing:
            batches = Batches(own, standing, bare)
            try:
                newer = await self._newer_copies(record, wanted, batches, sought, ledger, is_certain=policy is not None)
            except (Unplaced, ValueError) as why:
                return RebuildAnswer(wanted.question, 0, tuple(own), None, str(why))
            located, unclear = without_superseded(located, newer.superseded), newer.unclear
        return RebuildAnswer(wanted.question, 0, tuple(own), located, compacts=may_be_compacted, unclear=tuple(unclear))

    async def _newer_copies(
        self,
        record: LaneRecord,
        wanted: AskRebuild,
        batches: Batches,
        located: Located,
        ledger: LedgerAnswers,
        *,
        is_certain: bool,
    ) -> NewerCopies:
        """Return which missing records must not be copied again. `is_certain` says whether the policy of the
        target topic is known. Raises Unplaced if it is not known and makes a difference."""
        source = self._source, self._source_partition, self._asks
        target = self._target, self._target_partition, self._target_asks
        newer = await newer_copies(source, target, record, wanted, batches, located, ledger)
        if not is_certain and (newer.superseded or newer.unclear):
            raise Unplaced(UNKNOWN_POLICY)
        return newer

    async def _stable_end(
        self, record: LaneRecord, ordinals: tuple[int, int], copied_end: int, end: int, compacts: Compacts
    ) -> int:
        """Return the source offset up to which committed records can be read. If a transaction is open below the end of
        the search, a read of committed records would wait until it ends. `end` is the high watermark of the source.

        Raises ReadFailed if the lane has copied uncommitted records at or above the result: records that it has not
        copied, at offsets below `copied_end`, cannot be read before the transaction ends. The same applies if the
        ledger maps some of the `ordinals` (first, last) that are searched for to uncommitted records. A compacted
        target may have lost their copies, and these records must not be copied again as if they were new."""
        stable = await last_stable_offset(self._asks, self._source_partition)
        named = record.source_runs.between(*ordinals) if ordinals[0] <= ordinals[1] else ()
        named_end = max((offset + length for _, offset, length in named), default=0)
        is_hidden = stable < min(copied_end, end)
        if is_hidden or (stable < min(named_end, end) and await compacts() is not False):
            raise ReadFailed(int(ErrorCode.OFFSET_NOT_AVAILABLE))
        return stable

    async def leave_open(self, record: LaneRecord, wanted: AskRebuild, compacts: Compacts) -> RebuildAnswer:
        """Return a map without source offsets, because a policy changes the records. Their contents then do not show
        where they come from.

        The target's records are those of former batches, and the source has deleted or lost their originals. This is
        certain only if all ordinals from `wanted.first` onward are unread, and if the source has no record at the
        offset to which the ledger maps the first of them, nor at a higher one. Otherwise, a former batch may contain
        records that the source still has, and the lane would copy these records again. `compacts` and the errors are
        those of `run`.
        """
        own: list[OwnBatch] = []
        begin_at = record.source_runs.offset_of(wanted.first)
        end, start = await bounds(self._asks, self._source_partition)
        if wanted.unread_from != wanted.first or begin_at is None or end > begin_at:
            return RebuildAnswer(wanted.question, 0, (), None, POLICY)
        try:
            _, standing, _ = await self._standing(wanted, own)
        except (Unplaced, ValueError) as why:
            return RebuildAnswer(wanted.question, 0, tuple(own), None, str(why))
        ordinals = (batch.first + at for batch in standing for at in range(len(batch.contents)))
        located = Located((), (), (), begin_at, open=ranges(ordinals), source_start=start)
        return RebuildAnswer(wanted.question, 0, tuple(own), located, compacts=await compacts() is not False)

    async def _opens(
        self,
        record: LaneRecord,
        wanted: AskRebuild,
        own: Sequence[OwnBatch],
        originals: Sequence[SourceBatch],
        end: int,
    ) -> Callable[[int], bool]:
        """Return a function that checks one of the ordinals from `wanted.first` up to the last one in `own`, which are
        the lane's batches in the target (see `open_ordinals`). If the source has not written the record of an ordinal
        yet, or if the ordinal was assigned to this record after its batch had been appended, the target holds another
        record, so more than one may have been sent. The source log ends at the offset `end`, and contains the batches
        `originals`."""
        last = nearest(own[-1].base_sequence, wanted.first) + own[-1].count - 1 if own else wanted.first - 1
        pieces = list(record.source_runs.between(wanted.first, last)) if wanted.first <= last else []
        beyond = [
            (ordinal + at, offset + at)
            for ordinal, offset, length in pieces
            for at in range(max(end - offset, 0), length)
        ]
        never = await unwritten(self._asks, self._source_partition, beyond, record.epochs)
        opens = open_ordinals(record, wanted.unread_from)
        others = (*reassigned_since(record, own, wanted.first), *wanted.earlier)
        absent = (*never, *replaced(record.epochs, pieces, originals), *others)
        return lambda ordinal: opens(ordinal) or any(start <= ordinal < behind for start, behind in absent)

    async def _standing(
        self, wanted: AskRebuild, own: list[OwnBatch], *, timed: bool = True
    ) -> tuple[bool, list[TargetBatch], list[Interval]]:
        """Read the lane's batches from the target, and append an `OwnBatch` for each of them to `own`.

        Return whether the records on the target have the timestamps of the source records. Also return the contents of
        all batches that have records with the ordinal `wanted.first` or higher, and the target offsets [start, end)
        that no batch of any client contains. If only some of the records have the timestamps of the source, because the
        topic has begun to set them, the contents do not include timestamps (`timed` is not set).
        """
        standing: list[TargetBatch] = []
        bare: list[Interval] = []
        size, behind = 0, wanted.start
        async for batch in self._target.read(self._target_partition, wanted.start, wanted.end):
            header = batch.header
            bare += [(behind, header.base_offset)] if behind < header.base_offset else []
            behind = header.last_offset + 1
            if not is_own(header, wanted.producer_id):
                continue
            count = header.last_offset_delta + 1
            where = header.base_offset, count, header.base_sequence
            own.append(OwnBatch(*where, batch.records_crc, header.leader_epoch))
            ordinal = nearest(header.base_sequence, wanted.first)
            cut = max(wanted.first - ordinal, 0)
            if cut >= count:
                continue
            if timed and header.attributes & LOG_APPEND_TIME:
                if standing:
                    own.clear()
                    return await self._standing(wanted, own, timed=False)
                timed = False
            size = _bounded(size + count)
            contents: list[Hashable] = [None] * count
            async for some in in_parts(await batch.decoded()):
                for record in some:
                    contents[record.offset - header.base_offset] = digest(record, timed=timed)
            standing.append(TargetBatch(ordinal + cut, contents[cut:]))
        bare += [(behind, wanted.end)] if behind < wanted.end else []
        return timed, standing, bare

    async def _originals(self, searched: Range, *, timed: bool) -> list[SourceBatch]:
        originals: list[SourceBatch] = []
        headers: list[HeaderTuple] = []
        size = 0
        reading = self._source.read(
            self._source_partition, searched.start, searched.end, committed=self._read_committed
        )
        async for batch in reading:
            header = batch.header
            left_out: Reason | None = "control" if header.attributes & CONTROL else "aborted" if batch.aborted else None
            records = await batch.decoded() if left_out != "control" else ()
            size = _bounded(size + len(records))
            contents: dict[int, Hashable] = {}
            async for some in in_parts(records):
                contents.update((record.offset, digest(record, timed=timed)) for record in some)
            if left_out is not None:
                self._aborted.update(contents.values())
                contents = {}
            epoch = -1 if batch.is_old else header.leader_epoch
            originals.append(SourceBatch(header.base_offset, header.last_offset + 1, contents, left_out, epoch))
            headers.append(header)
        if self._copies is not None:
            for at in await self._copies(self._source_partition, headers):
                originals[at] = originals[at]._replace(contents={}, left_out="copied-from-target")
        return originals

    async def _uncommitted(self, unstable: Range, *, timed: bool) -> set[Hashable]:
        """Return the contents of the records that are not committed: those of aborted transactions, and those at or
        above the last stable offset (`unstable`)."""
        found = set(self._aborted)
        async for batch in self._source.read(self._source_partition, unstable.start, unstable.end):
            if not batch.header.attributes & CONTROL:
                async for some in in_parts(await batch.decoded()):
                    found.update(digest(record, timed=timed) for record in some)
                _bounded(len(found))
        return found


def _had_election(record: LaneRecord, originals: Sequence[SourceBatch]) -> bool:
    """Return whether the source has had an election, in which it may have lost records."""
    epochs = {*(epoch for _, epoch in record.epochs), *(batch.epoch for batch in originals)}
    return bool(record.truncations) or len(epochs - {-1}) > 1


def _refuse_uncommitted(
    standing: Sequence[TargetBatch], originals: Sequence[SourceBatch], uncommitted: set[Hashable]
) -> None:
    """Raise `Unplaced` if the target has a copy of a source record that is not committed. The lane may have copied the
    record with a different `isolation`, or the source may have lost the end of its transaction in an election. The
    search must not conclude that such a copy belongs to a record that the source no longer has."""
    doubtful = uncommitted - {content for each in originals for content in each.contents.values()}
    for batch in standing:
        for at, content in enumerate(batch.contents):
            if content in doubtful:
                raise Unplaced(f"ordinal {batch.first + at} is a copy of a record that is not committed")


def _undecided(record: LaneRecord, wanted: AskRebuild, located: Located, *, is_filtered: bool) -> Located:
    """Return the result of the search without those missing records that the lane does not append because of a decision
    in the ledger. Whether the target has newer ones makes no difference for them."""
    left = without_left_out(record, located)
    if not is_filtered or not wanted.acknowledged:
        return left
    return without_filtered(record, wanted.first, wanted.acknowledged[-1][0], left)


def _beside_cleaned(located: Located) -> Located:
    """Return the result of the search with only those missing records that the log cleaner may have removed, if the
    topic is no longer compacted: those next to records that it has removed."""
    parts = tuple(part for whole in located.missing for part in within(whole, located.cleaned))
    return msgspec.structs.replace(located, missing=parts)


def _is_compacted(originals: Sequence[SourceBatch]) -> bool:
    """Return whether records are missing from one of these batches. Brokers do not accept batches with gaps, so the log
    cleaner must have removed the missing records."""
    return any(each.left_out is None and len(each.contents) < each.end - each.start for each in originals)


def _bounded(size: int) -> int:
    if size > MOST_RECORDS:
        raise Unplaced(f"more than {MOST_RECORDS:,} records would have to be compared")
    return size
