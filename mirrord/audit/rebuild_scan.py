"""Reads the source log and the target log of a lane whose ledger is lost, and determines the lane's position.

Batch headers are compared first, and individual records where necessary. See `mirrord.audit.rules.rebuild_placement`.
"""

from collections.abc import AsyncGenerator, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import aclosing
from itertools import chain
from typing import Literal, TypeVar

import msgspec

from mirrord.audit.rules.rebuild_facts import ReconstructedLane, standing
from mirrord.audit.rules.rebuild_placement import (
    GONE,
    LOOK_AROUND,
    NOWHERE,
    CopiedRecords,
    OriginalRecords,
    Other,
    Placed,
    SequencedBatch,
    doubtful,
    is_open,
    ordinals,
    place,
    refined,
)
from mirrord.audit.rules.rebuild_record_matching import Matched, Matching, UnmatchedUnits, assembled, stretches
from mirrord.kafka.client.bulk_log_reader import LogReader
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from mirrord.kafka.records.record_digest import digest
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.errors import PolicyFault
from mirrord.model.intervals import Interval, joined, ranges, uncovered, within
from mirrord.model.names import TopicPartition
from mirrord.replication.lane.source.record_search import Unplaced
from mirrord.topics.rules.topic_plan import PlannedLane

MOST_RECORDS = 2_000_000
"""Maximum number of a lane's records that are held in memory for each log. Each record takes about 250 bytes."""

RIVAL_BATCHES = 20
"""If a producer other than the lane's wrote many batches, only the records of a sample of them are searched for in the
source. The sample consists of this many of the producer's first batches and the same number of its last ones."""
ORIGINALS_AT_ONCE = 1_000
READ_OVER = 1_000
"""If the gap between two ranges of wanted offsets is no larger than this, both ranges are read together with the
records in the gap. This is faster than two separate reads."""
RECORDS_AT_ONCE = 20_000
"""Number of records that are read at a time from the source or the target when records are matched one by one."""

_Unit = TypeVar("_Unit", CopiedRecords, OriginalRecords)
RebuildOutcome = Literal["rebuilt", "new", "refused"]
"""What happens to a lane. "rebuilt": the lane resumes at the position that was found. "new": no record that the source
holds has ever been copied, so the lane begins like any new lane. "refused": the position cannot be determined, so the
lane is paused."""


class LaneRebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """A lane and the result of its reconstruction from the source log and the target log."""

    planned: PlannedLane
    outcome: RebuildOutcome
    why: str = ""
    """Why the lane is refused or, for the other outcomes, a remark about the lane."""
    reconstructed: ReconstructedLane | None = None
    producer: tuple[int, int] = (-1, -1)
    """The lane's producer id and epoch."""
    target_end: int = 0
    """The log end offset of the target partition when it was read."""
    source_end: int = 0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The properties of a flow that determine how a lane's logs are read and how their records are classified."""

    committed: bool
    begins_late: bool
    """Whether a lane without a history would begin at the end of the source log (`start = "latest"`)."""
    refused: str = ""
    """Why this topic's lanes cannot be rebuilt; empty if the rebuild can try to determine their positions."""
    keeps: Callable[[DecodedRecord], bool] | None = None
    """The flow's record filter; None if it has no filter. The function may raise PolicyFault."""
    foreign: frozenset[int] = frozenset()
    """Ids of producers that copied records from the target topic to the source topic. Their records are not copied."""


class _Own(msgspec.Struct):
    """The batches that one producer wrote to the target partition."""

    batches: list[SequencedBatch]
    keys: list[Hashable]
    epochs: list[int]
    timed: set[bool]


class _Target(msgspec.Struct):
    """The target log of a lane, as read from its batch headers."""

    start: int
    end: int
    producers: dict[tuple[int, int], _Own]
    """The producers by producer id and epoch. The producer of the newest batch comes last."""
    vacant_behind: Mapping[tuple[int, int], int]


class _Source(msgspec.Struct):
    """The source log of a lane, as read from its batch headers."""

    start: int
    originals: list[OriginalRecords]
    others: list[Other]
    is_filtered: bool
    """Whether the flow has a filter, which may have skipped some of the source records."""


class LaneLook:
    """Reconstructs the lanes of one flow, one at a time."""

    def __init__(self, source: LogReader, target: LogReader) -> None:
        self._source = source
        self._target = target

    async def at(self, lane: PlannedLane, rules: Rules) -> LaneRebuilt:
        """Determine a lane's position from both logs. Raises EnvironmentFault if a log cannot be read."""
        source = TopicPartition(lane.source_topic, lane.key.partition)
        target = TopicPartition(lane.target_topic, lane.key.partition)
        found = await self._read_target(target)
        start, end = await self._source.bounds(source, committed=rules.committed)
        made = LaneRebuilt(planned=lane, outcome="refused", target_end=found.end, source_end=end)
        if rules.refused and found.producers:
            return msgspec.structs.replace(made, why=rules.refused)
        lane_of = _Lane(self, source, target, found, await self._read_source(source, start, end, rules))
        try:
            for producer in reversed(list(found.producers)):
                reconstructed = await lane_of.of(producer)
                if reconstructed is not None:
                    await lane_of.refuse_rivals(producer)
                    reconstructed = await self._filtered(source, reconstructed, rules)
                    return msgspec.structs.replace(
                        made, outcome="rebuilt", reconstructed=reconstructed, producer=producer
                    )
        except (Unplaced, ValueError) as why:
            return msgspec.structs.replace(made, why=str(why))
        return _without_copies(made, found, rules, is_empty=start == end)

    async def _read_target(self, named: TopicPartition) -> _Target:
        start, end = await self._target.bounds(named, committed=False)
        producers: dict[tuple[int, int], _Own] = {}
        vacant: dict[tuple[int, int], int] = {}
        position, total = start, 0
        async with aclosing(self._target.read(named, start, end, committed=False)) as batches:
            async for batch in batches:
                header = batch.header
                close = max(0, header.base_offset - position)
                total += close
                position = header.last_offset + 1
                if batch.is_old or header.attributes & (CONTROL | TRANSACTIONAL) or header.producer_id < 0:
                    continue
                producer = (header.producer_id, header.producer_epoch)
                own = producers.pop(producer, None) or _Own([], [], [], set())
                producers[producer] = own  # the most recent producer comes last
                before = vacant.get(producer, 0)
                length = header.last_offset_delta + 1
                own.batches.append(
                    SequencedBatch(header.base_sequence, header.base_offset, length, total - before, close)
                )
                own.keys.append(_key(batch, is_copy=True))
                own.epochs.append(header.leader_epoch)
                own.timed.add(not header.attributes & LOG_APPEND_TIME)
                vacant[producer] = total
        total += max(0, end - position)
        return _Target(start, end, producers, {producer: total - seen for producer, seen in vacant.items()})

    async def _read_source(self, named: TopicPartition, start: int, end: int, rules: Rules) -> _Source:
        originals: list[OriginalRecords] = []
        others: list[Other] = []
        async with aclosing(self._source.read(named, start, end, committed=rules.committed)) as batches:
            async for batch in batches:
                header = batch.header
                first, last = header.base_offset, header.last_offset
                reason = _reason(batch, rules)
                if reason is not None:
                    if others and (others[-1].end, others[-1].reason) == (first, reason):
                        first = others.pop().start
                    others.append(Other(first, last + 1, reason))
                elif header.record_count:
                    is_torn = batch.is_old or header.record_count != last - first + 1
                    epoch = -1 if batch.is_old else header.leader_epoch
                    originals.append(
                        OriginalRecords(first, last - first + 1, _key(batch, is_copy=False), epoch, is_torn)
                    )
        return _Source(start, originals, others, rules.keeps is not None)

    async def copies(
        self, named: TopicPartition, wanted: Sequence[CopiedRecords], *, timed: bool
    ) -> list[list[CopiedRecords]]:
        """Read these batches from the target, and return the records of each batch. A record is identified by a digest
        of its content. With `timed`, the digest includes the timestamp."""
        made: dict[int, list[CopiedRecords]] = {}
        spans = [(each.offset, each.offset + each.length) for each in wanted]
        known = {each.offset: each for each in wanted}
        async for batch in self._batches(self._target, named, spans):
            copy = known.get(batch.header.base_offset)
            if copy is not None:
                made[copy.offset] = [
                    CopiedRecords(
                        copy.ordinal + record.offset - copy.offset,
                        record.offset,
                        1,
                        (digest(record, timed=timed),),
                        copy.epoch,
                    )
                    for record in batch.records()
                ]
        return [made.get(each.offset, []) for each in wanted]

    async def originals(
        self, named: TopicPartition, wanted: Sequence[OriginalRecords], *, timed: bool
    ) -> list[list[OriginalRecords]]:
        """Read these batches from the source, and return the records of each batch. A record is identified by a digest
        of its content. With `timed`, the digest includes the timestamp."""
        made: dict[int, list[OriginalRecords]] = {}
        spans = [(each.offset, each.end) for each in wanted]
        known = {each.offset: each for each in wanted}
        async for batch in self._batches(self._source, named, spans):
            original = known.get(batch.header.base_offset)
            if original is not None:
                made[original.offset] = [
                    OriginalRecords(record.offset, 1, (digest(record, timed=timed),), original.epoch)
                    for record in batch.records()
                ]
        return [made.get(each.offset, []) for each in wanted]

    async def _batches(
        self, log: LogReader, named: TopicPartition, spans: Sequence[Interval]
    ) -> AsyncGenerator[ReadBatch]:
        """Yield the batches in these ranges of offsets, and those between ranges that are close to each other."""
        wide = joined((start, end + READ_OVER) for start, end in spans)
        for start, end in wide:
            async with aclosing(log.read(named, start, end - READ_OVER, committed=False)) as batches:
                async for batch in batches:
                    yield batch

    async def _filtered(
        self, named: TopicPartition, reconstructed: ReconstructedLane, rules: Rules
    ) -> ReconstructedLane:
        """Change the verdict `unexplained` to `filtered` for the records that the flow's current filter rejects."""
        if rules.keeps is None or not reconstructed.left_out:
            return reconstructed
        spans = [(each.start, each.end) for each in reconstructed.verdicts if each.reason == "unexplained"]
        filtered: list[Interval] = []
        async for batch in self._batches(self._source, named, spans):
            if batch.is_old or not batch.header.attributes & CONTROL:
                left_out = {each.offset for each in batch.records() if _leaves(rules, each)}
                filtered += ranges(sorted(left_out))
        return msgspec.structs.replace(
            reconstructed, verdicts=tuple(_explained(reconstructed.verdicts, joined(filtered)))
        )


def _leaves(rules: Rules, record: DecodedRecord) -> bool:
    """Return whether the flow's current filter rejects the record. Return False if the filter raises PolicyFault."""
    try:
        return rules.keeps is not None and not rules.keeps(record)
    except PolicyFault:
        return False


class _Lane:
    """The search in the source log and the target log for the position of one lane."""

    def __init__(
        self, look: LaneLook, source: TopicPartition, target: TopicPartition, found: _Target, read: _Source
    ) -> None:
        self._look = look
        self._source = source
        self._target = target
        self._found = found
        self._originals = read.originals
        self._others = read.others
        self._log_start = read.start
        self._is_filtered = read.is_filtered

    async def of(self, producer: tuple[int, int]) -> ReconstructedLane | None:
        """Return the state of the lane, assuming that this producer wrote the lane's records. Return None if the
        producer has copied none of the records that the source still holds.

        Raises Unplaced if the position of the lane is ambiguous.
        """
        copies = self._copies(producer)
        if self._is_filtered:
            placed = Placed(copies, self._originals, [NOWHERE] * len(copies))
        else:
            placed = place(copies, self._originals)
        matched = await self._matched(placed, producer)
        if matched is not None:
            placed = matched
        else:
            placed = await self._compared(place(copies, self._originals), producer)
        if not placed.is_any:
            if placed.has_common:
                raise Unplaced("the source holds each of its records more than once")
            return None
        return standing(placed, self._others, self._log_start, filtered=self._is_filtered)

    async def refuse_rivals(self, producer: tuple[int, int]) -> None:
        """Raise Unplaced if, after the lane's first batch, another producer also copied records from the source."""
        begin = self._found.producers[producer].batches[0].offset
        held = {each.key for each in self._originals}
        for other, own in self._found.producers.items():
            if other == producer or own.batches[-1].offset <= begin:
                continue
            if not held.isdisjoint(own.keys) or await self._is_from_source(own, begin):
                raise Unplaced(
                    f"the producers {producer[0]} and {other[0]} have both written records of the source to the "
                    f"target, from offset {begin} on"
                )

    async def _is_from_source(self, own: _Own, begin: int) -> bool:
        """Return whether a producer copied records from the source even though none of its batches equals a source
        batch. This is possible because batches may have been rebuilt record by record. The source is therefore searched
        for the producer's records. If there are many batches, only the records of a sample are searched for."""
        late = [batch for batch in own.batches if batch.offset > begin]
        some = late if len(late) <= 2 * RIVAL_BATCHES else [*late[:RIVAL_BATCHES], *late[-RIVAL_BATCHES:]]
        wanted = [CopiedRecords(0, batch.offset, batch.length, None) for batch in some]
        is_timed = own.timed == {True}
        found = await self._look.copies(self._target, wanted, timed=is_timed)
        theirs = {copy.key for copies in found for copy in copies}
        records = 0
        for at in range(0, len(self._originals), ORIGINALS_AT_ONCE):
            part = self._originals[at : at + ORIGINALS_AT_ONCE]
            for originals in await self._look.originals(self._source, part, timed=is_timed):
                if any(original.key in theirs for original in originals):
                    return True
                records += len(originals)
            if records > MOST_RECORDS:
                break
        return False

    def _copies(self, producer: tuple[int, int]) -> list[CopiedRecords]:
        own, found = self._found.producers[producer], self._found
        numbers = ordinals(own.batches, found.start, found.vacant_behind[producer])
        made: list[CopiedRecords] = []
        for batch, key, epoch, (ordinal, removed) in zip(own.batches, own.keys, own.epochs, numbers, strict=True):
            if removed:
                made.append(CopiedRecords(ordinal - removed, batch.offset - removed, removed, GONE, epoch))
            made.append(CopiedRecords(ordinal, batch.offset, batch.length, key, epoch))
        return made

    def _timed(self, producer: tuple[int, int]) -> bool:
        """Return whether the copies have their originals' timestamps. Raises Unplaced if only some of them do."""
        timed = self._found.producers[producer].timed
        if len(timed) > 1:
            raise Unplaced("only some of the records on the target have the timestamps of the source")
        return True in timed

    async def _matched(self, placed: Placed, producer: tuple[int, int]) -> Placed | None:
        """Find each copy's source record by comparing batches and, where necessary, individual records. Raises
        Unplaced.

        Return None if the source lacks some of the copied records, or if the copies are not in source order.
        """
        parts = stretches(placed, filtered=self._is_filtered)
        if not parts:
            return None if parts is None else placed
        timed = self._timed(producer)
        found: list[tuple[UnmatchedUnits, Matched]] = []
        for part in parts:
            expires = self._log_start > 0 and part.first == 0 and placed.at[0] < 0
            matched = await self._matched_part(placed, part, timed=timed, may_expire=expires)
            if matched is None:
                return None
            found.append((part, matched))
        return assembled(placed, found)

    async def _matched_part(
        self, placed: Placed, part: UnmatchedUnits, *, timed: bool, may_expire: bool
    ) -> Matched | None:
        """Match the records of one part of the logs. Both logs are read from the end to the beginning, a few batches at
        a time. Return None if the source lacks a record that it should still hold."""
        matching = Matching(may_expire=may_expire)
        copies = _backwards(placed.copies[part.first : part.end])
        originals = _backwards(placed.originals[part.start : part.behind])
        while not matching.has_failed:
            if matching.wants_copies:
                here = next(copies, None)
                if here is None:
                    break
                matching.copies([*chain.from_iterable(await self._look.copies(self._target, here, timed=timed))])
                continue
            there = next(originals, None)
            if there is None:
                matching.no_more_originals()
            else:
                some = await self._look.originals(self._source, there, timed=timed)
                matching.originals([*chain.from_iterable(some)])
        if matching.has_failed:
            return None
        matching.no_more_copies()
        for there in originals:
            some = await self._look.originals(self._source, there, timed=timed)
            matching.originals([*chain.from_iterable(some)])
            matching.no_more_copies()
        return matching.found()

    async def _compared(self, placed: Placed, producer: tuple[int, int]) -> Placed:
        """Find the source positions of copied batches that equal no source batch or more than one. To do so, compare
        individual records around them, and include more records in each iteration. Raises Unplaced."""
        around, last = LOOK_AROUND, -1
        while True:
            here, there = doubtful(placed, around)
            if not here and not there:
                return placed
            made = await self._refined(placed, sorted(here), sorted(there), producer)
            if len(there) == last or not is_open(made):
                return made
            around, last = 8 * around, len(there)

    async def _refined(
        self, placed: Placed, here: Sequence[int], there: Sequence[int], producer: tuple[int, int]
    ) -> Placed:
        is_timed = self._timed(producer)
        copies, originals = [placed.copies[each] for each in here], [placed.originals[each] for each in there]
        if max(sum(each.length for each in copies), sum(each.length for each in originals)) > MOST_RECORDS:
            raise Unplaced(f"more than {MOST_RECORDS:,} records would have to be compared one by one")
        found = await self._look.copies(self._target, copies, timed=is_timed)
        sources = await self._look.originals(self._source, originals, timed=is_timed)
        return refined(placed, dict(zip(here, found, strict=True)), dict(zip(there, sources, strict=True)))


def _backwards(units: Sequence[_Unit]) -> Iterator[list[_Unit]]:
    """Yield groups of consecutive batches, from last to first. A group has about `RECORDS_AT_ONCE` records."""
    end = len(units)
    while end > 0:
        start, records = end, 0
        while start > 0 and records < RECORDS_AT_ONCE:
            start -= 1
            records += units[start].length
        yield list(units[start:end])
        end = start


def _without_copies(made: LaneRebuilt, found: _Target, rules: Rules, *, is_empty: bool) -> LaneRebuilt:
    """Return the outcome for a lane if the target holds none of the records that the source still holds."""
    if found.end > 0 and found.start > 0 and not is_empty:
        why = "the target has deleted some records, and the source lacks the others: all may already have been copied"
        return msgspec.structs.replace(made, why=why)
    if rules.begins_late and (found.end > 0 or not is_empty):
        why = "none of it has been copied, and its start was lost with the ledger (start is not the earliest)"
        return msgspec.structs.replace(made, why=why)
    return msgspec.structs.replace(made, outcome="new", why="none of the source's records have been copied")


def _key(batch: ReadBatch, *, is_copy: bool) -> Hashable:
    """Return a key for a batch. Two keys are equal only if the batches hold the same records. Like
    `mirrord.replication.lane.target.batch_compare.same_bytes`, the key relies on the batch header and the checksum of
    the records."""
    header = batch.header
    length = header.last_offset_delta + 1
    is_alike = not batch.is_old and header.record_count == length
    if not is_alike or (not is_copy and header.attributes & LOG_APPEND_TIME):
        return object()
    return batch.records_crc, header.record_count, header.attributes & CODEC_MASK, header.base_timestamp


def _reason(batch: ReadBatch, rules: Rules) -> Reason | None:
    """Return the reason why a source batch is not copied, or None if it is copied."""
    if batch.is_old:
        return None
    if batch.header.attributes & CONTROL:
        return "control"
    if batch.aborted:
        return "aborted"
    is_copy = batch.header.producer_id in rules.foreign and not batch.header.attributes & TRANSACTIONAL
    return "copied-from-target" if is_copy else None


def _explained(verdicts: Sequence[Verdict], filtered: Sequence[Interval]) -> list[Verdict]:
    made: list[Verdict] = []
    for verdict in verdicts:
        if verdict.reason != "unexplained":
            made.append(verdict)
            continue
        whole = (verdict.start, verdict.end)
        known = list(within(whole, filtered))
        parts = [Verdict(*part, "filtered") for part in known]
        parts += [Verdict(*part, "unexplained") for part in uncovered(whole, known)]
        made += sorted(parts, key=_start)
    return made


def _start(verdict: Verdict) -> int:
    return verdict.start
