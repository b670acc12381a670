"""Looks up, by key, the records that are missing from a compacted target topic. This module reads the logs, and
`mirrord.replication.lane.target.superseded_records` decides which of the missing records are copied again."""

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.committed_batches import committed_batches
from mirrord.kafka.client.partition_queries import Asks, bounds, last_stable_offset
from mirrord.kafka.client.range_reader import ReadBatch, Stretches
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, Header, HeaderTuple
from mirrord.kafka.protocol.sequence import SEQUENCES
from mirrord.ledger.facts.core import Reason
from mirrord.model.errors import PolicyFault, PolicyUnusable
from mirrord.model.intervals import Interval
from mirrord.replication.host.cleanup_policy import CleanupPolicies
from mirrord.replication.host.hosted_lane import Begin, HostedLane
from mirrord.replication.host.record_policies import Decide, RecordPolicies
from mirrord.replication.host.retried_reads import read_and_tell
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import AskDivergence, DivergenceAnswer, LaneRecord
from mirrord.replication.lane.source.copied_pieces import mapped_by
from mirrord.replication.lane.source.declared_runs import decided_below
from mirrord.replication.lane.source.left_out_ranges import left_out
from mirrord.replication.lane.source.recorded_epochs import UNKNOWN, Epochs, epoch_at, is_of_another_epoch
from mirrord.replication.lane.target import missing_records
from mirrord.replication.lane.target.existing_copies import may_be_a_lanes
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import (
    MOST_RANGES,
    AskShared,
    AskSuperseded,
    SharedAnswer,
    SupersededAnswer,
    SupersededJudge,
    in_parts,
)

NEAR = 10_000
"""Ranges of source offsets that are at most this number of offsets apart are read as one range."""
MOST_PIECES = 100_000
"""Maximum number of pieces (`Piece`) whose source offsets are read as one range."""

LogReaders = tuple[Asks, Stretches]
Piece = tuple[int, int, int]
"""A part of the offset map in which the ordinals and the source offsets are consecutive: its first ordinal, the source
offset of this ordinal, and the number of ordinals."""
FindCopies = Callable[[PartitionId, Sequence[HeaderTuple]], Awaitable[set[int]]]
"""A function that returns the indexes of those source batches that are copies, such as `OriginLookup.copies`."""


class CopyRules(NamedTuple):
    """The rules by which a lane decides which source records it copies."""

    read_committed: bool
    """Whether the lane copies only committed records."""
    decide: Decide | None = None
    """Applies the flow's record policies to a record. None if the lane has no record policies."""
    find_copies: FindCopies | None = None
    """Finds batches that other flows have written to the source. The lane does not copy them. None if the source has no
    such batches."""


class _Found(NamedTuple):
    """A missing record that the source still has, as the lane writes it to the target."""

    missing: Missing
    ordinal: int
    record: DecodedRecord


class Lookups:
    """Performs the effects `AskDivergence`, `AskShared` and `AskSuperseded`: asks the source where its log diverges,
    determines where a leader epoch ends in the target log, and looks up records that are missing from this log."""

    def __init__(
        self,
        setup: FlowSetup,
        source: LogReaders,
        target: LogReaders,
        shaping: RecordPolicies,
        find_copies: FindCopies,
        begin: Begin,
    ) -> None:
        self._source, self._target = source, target
        self._shaping, self._find_copies = shaping, find_copies
        self._begin = begin
        self.source_compacts = CleanupPolicies(setup.source, setup.request_timeout_s).compacts
        self.compacts = CleanupPolicies(setup.target, setup.request_timeout_s).compacts
        self.performs: dict[type[Any], Callable[[HostedLane, Any], object]] = {
            AskDivergence: self._ask_parting,
            AskShared: self._ask_shared,
            AskSuperseded: self._look_up,
        }

    def _ask_parting(self, hosted: HostedLane, effect: AskDivergence) -> None:
        async def read() -> DivergenceAnswer:
            found = await self._source[1].parting(hosted.source, effect.position, effect.epoch)
            return DivergenceAnswer(effect.question, 0, *found)

        self._begin(hosted, read_and_tell(hosted, effect.question, read, partial(DivergenceAnswer, effect.question)))

    def _ask_shared(self, hosted: HostedLane, effect: AskShared) -> None:
        def answered(error: int, epoch: int, end: int) -> None:
            hosted.tell(SharedAnswer(effect.question, error, epoch, end))

        self._target[0].shared(hosted.target, effect.epoch, answered)

    def _look_up(self, hosted: HostedLane, effect: AskSuperseded) -> None:
        sides = (self._source[1], hosted.source), (self._target[1], hosted.target)
        asks = self._source[0], self._target[0]
        lane, decide = hosted.lane, self._shaping.decider(hosted.source.topic)
        rules = CopyRules(lane.read_committed, decide, self._find_copies if lane.origins is not None else None)
        search = SupersededLookup(
            *sides, asks, hosted.record, rules, is_open=lambda question: question in lane.questions
        )
        failed = partial(SupersededAnswer, effect.question)
        self._begin(hosted, read_and_tell(hosted, effect.question, partial(search.run, effect), failed))


class SupersededLookup:
    """One lookup of the records that are missing from a lane's compacted target topic."""

    def __init__(
        self,
        source: tuple[Stretches, PartitionId],
        target: tuple[Stretches, PartitionId],
        asks: tuple[Asks, Asks],
        record: LaneRecord,
        rules: CopyRules,
        *,
        is_open: Callable[[int], bool],
    ) -> None:
        """`asks` is a pair: the first object sends requests to the source, and the second one sends requests to the
        target.

        `is_open` returns whether the lane is still waiting for the answer to the request with this number.
        """
        self._source, self._source_partition = source
        self._target, self._target_partition = target
        self._source_asks, self._target_asks = asks
        self._record = record
        self._rules = rules
        self._is_open = is_open
        self._decided_below = decided_below(record)
        self._left_out = left_out(record, 0)
        self._has_lost = False
        """Whether the source has lost the record of an ordinal of the kind `lost`."""

    async def run(self, asked: AskSuperseded) -> SupersededAnswer:
        """Return the missing records that have to be copied again. Raises ReadFailed if the source or the target cannot
        be read at the moment."""
        if not asked.reads_below:
            answer = await self._look_up(asked)
            if not self._has_lost or not asked.below or answer.error or answer.trouble or answer.depends_on_policy:
                return answer
        # Records below the lost ones may be the newest ones with their keys by now.
        return await self._look_up(msgspec.structs.replace(asked, missing=(*asked.below, *asked.missing)))

    async def _look_up(self, asked: AskSuperseded) -> SupersededAnswer:
        again: list[tuple[int, int]] = []
        until = until_epoch = -1
        for part in in_parts(asked):
            if not self._is_open(asked.question):
                return SupersededAnswer(asked.question, ErrorCode.NETWORK_EXCEPTION)  # the lane ignores this answer
            judge = SupersededJudge(part)
            try:
                await self._expect(judge, part.missing, self._record.epochs if part.epochs is None else part.epochs)
                await self._see(judge, part)
                await self._see_appended(judge, part)
            except PolicyFault as fault:
                return SupersededAnswer(asked.question, 0, trouble=str(fault))
            except ValueError as error:
                return SupersededAnswer(asked.question, 0, trouble=f"records cannot be read: {error}")
            answer = judge.answer()
            if answer.depends_on_policy:
                return answer
            _extend(again, answer.again)
            if answer.until > until:
                until, until_epoch = answer.until, answer.until_epoch
            if len(again) > MOST_RANGES:
                trouble = f"more than {MOST_RANGES:,} separate ranges of records would have to be copied again"
                return SupersededAnswer(asked.question, 0, trouble=trouble)
            if not judge.is_last_settled():
                break  # nothing was appended after these records, which are the last ones of the lookup
        return SupersededAnswer(asked.question, 0, tuple(again), until, until_epoch)

    async def _expect(self, judge: SupersededJudge, missing: Sequence[Missing], epochs: Epochs) -> None:
        end, begin = await bounds(self._source_asks, self._source_partition)
        stable = end
        if self._rules.read_committed:
            stable = await last_stable_offset(self._source_asks, self._source_partition)
        wanted = self._wanted(judge, missing, (begin, end), epochs)
        below = {offset: places for offset, places in wanted.items() if offset < stable}
        await self._find(judge, below, epochs, committed=self._rules.read_committed)
        # The lane copies nothing at or above `stable`, but it may have copied records there with a different
        # `isolation`.
        copied = {
            offset: lost
            for offset, places in wanted.items()
            if offset >= stable and (lost := [each for each in places if each[0].kind != "last"])
        }
        await self._find(judge, copied, epochs, committed=False)

    async def _find(
        self, judge: SupersededJudge, wanted: dict[int, list[tuple[Missing, int]]], epochs: Epochs, *, committed: bool
    ) -> None:
        """Read the missing records `wanted` from the source, and pass them to `judge`. If `committed` is set, records
        of aborted transactions count as never copied."""
        doubtful: list[tuple[Header, list[_Found]]] = []
        for first, last in _stretches(sorted(wanted)):
            async for batch in self._source.read(self._source_partition, first, last, committed=committed):
                if batch.aborted or batch.header.attributes & CONTROL:
                    _never_copied(judge, wanted, batch.header)
                    continue
                found = [
                    each
                    for record in await _decoded(batch)
                    for each in self._as_copied(record, wanted.pop(record.offset, ()), epochs, _epoch_of(batch))
                ]
                doubted, certain = self._by_origin(batch, found)
                _expect(judge, certain, _epoch_of(batch))
                if doubted:
                    doubtful.append((batch.header, doubted))
        await self._expect_originals(judge, doubtful)
        for places in wanted.values():
            for each, ordinal in places:
                judge.gone(each, ordinal, by_retention=False)

    def _as_copied(
        self, record: DecodedRecord, places: Iterable[tuple[Missing, int]], epochs: Epochs, epoch: int
    ) -> Iterator[_Found]:
        """Yield a source record as it is written to the target under each of the missing ordinals that the ledger
        assigns to it. Omit ordinals under which it was not copied. `epoch` is the record's leader epoch.

        The last run in the ledger has no end, so the ledger may assign an ordinal to a record that the lane then does
        not copy. For such ordinals, all policies are therefore called, in the same way as when the lane copies the
        record. If a policy fails, the lane has not copied the record or any record after it: it has either halted or
        recorded a verdict before it wrote the next record. For other ordinals, the ledger contains the decision to copy
        the record, so only the transform is called. Raises PolicyFault if the transform fails or if a policy cannot be
        loaded, because it is then not known what was copied.
        """
        for missing, ordinal in places:
            if is_of_another_epoch(epochs, ordinal, epoch):
                self._has_lost = self._has_lost or missing.kind == "lost"
                continue  # a different record, which was not copied
            copy: DecodedRecord | Reason = record
            if self._rules.decide is not None:
                known = None if self._is_presumed(missing, ordinal) else True
                try:
                    copy = self._rules.decide(record, known)
                except PolicyUnusable:
                    raise
                except PolicyFault:
                    if known:
                        raise
                    continue
            if not isinstance(copy, str):
                yield _Found(missing, ordinal, copy)

    def _is_presumed(self, missing: Missing, ordinal: int) -> bool:
        """Return whether the lane may not have copied the record to which the ledger assigns this ordinal: neither the
        ledger nor the target log shows that the lane decided to copy it."""
        return missing.kind == "last" and ordinal >= self._decided_below

    def _by_origin(self, batch: ReadBatch, found: Iterable[_Found]) -> tuple[list[_Found], list[_Found]]:
        """Split the missing records of a source batch into two lists. The first contains the records that the lane has
        skipped if the batch is a copy that another flow wrote. The second contains all others."""
        has_writers = self._rules.find_copies is not None and not batch.is_old
        may_be_copy = has_writers and may_be_a_lanes(batch.header)
        split: tuple[list[_Found], list[_Found]] = [], []
        for each in found:
            split[0 if may_be_copy and self._is_presumed(each.missing, each.ordinal) else 1].append(each)
        return split

    async def _expect_originals(self, judge: SupersededJudge, doubtful: Sequence[tuple[Header, list[_Found]]]) -> None:
        """Pass the missing records in `doubtful` to `judge`, except those in batches that other flows have written.
        Raises ReadFailed if it cannot be determined at the moment which flow wrote a batch."""
        if not doubtful or self._rules.find_copies is None:
            return
        copies = await self._rules.find_copies(self._source_partition, [header for header, _ in doubtful])
        for at, (header, found) in enumerate(doubtful):
            if at not in copies:
                _expect(judge, found, header.leader_epoch)

    def _wanted(
        self, judge: SupersededJudge, missing: Iterable[Missing], readable: Interval, epochs: Epochs
    ) -> dict[int, list[tuple[Missing, int]]]:
        """Return the missing records that the source may still have, by source offset. `readable` is the range
        [start, end) of the source offsets that can be read.

        Missing records of the kind `last` (`Missing.kind`) come after all of the lane's own batches. If the lane skips
        one of them, this record and all later records are omitted, because nothing was appended under their ordinals.
        `_never_copied` explains the reason."""
        begin, end = readable
        wanted: dict[int, list[tuple[Missing, int]]] = {}
        for each in missing:
            for ordinal in missing_records.without_record(self._record, each):
                judge.gone(each, ordinal, by_retention=False)
            for ordinal, offset, length in missing_records.pieces(self._record, each):
                is_last = each.kind == "last"
                skipped_from = self._skipped_from(ordinal, offset, length, epochs) if is_last else offset + length
                for at in range(skipped_from - offset):
                    if offset + at < begin:
                        judge.gone(each, ordinal + at, by_retention=True)
                    elif offset + at < end:
                        wanted.setdefault(offset + at, []).append((each, ordinal + at))
                    elif each.kind == "lost":
                        self._has_lost = True
                if skipped_from < offset + length:
                    break
        return wanted

    def _skipped_from(self, ordinal: int, offset: int, length: int, epochs: Epochs) -> int:
        """Return the first of the source offsets [offset, offset + length) that the lane skips because of a decision in
        the ledger. If it skips none of them, return the end of the range. `ordinal` is that of the first offset."""
        end = offset + length
        here = ((max(each.start, offset), each) for each in self._left_out if each.start < end and offset < each.end)
        return min((at for at, each in here if each.is_about(epoch_at(epochs, ordinal + at - offset))), default=end)

    async def _see(self, judge: SupersededJudge, asked: AskSuperseded) -> None:
        # A record that a later leader accepted supersedes a lost one, and may be anywhere in the log.
        is_lost = any(each.kind == "lost" for each in asked.missing)
        start = 0 if is_lost else min(each.above for each in asked.missing)
        end, begin = await bounds(self._target_asks, self._target_partition)
        start, end = max(start, begin), max(end, asked.end)
        async for batch in committed_batches(self._target, self._target_asks, self._target_partition, start, end):
            header = batch.header
            is_own = header.producer_id == self._record.producer_id and header.base_sequence >= 0
            for record in await _decoded(batch):
                at = (header.base_sequence + record.offset - header.base_offset) % SEQUENCES if is_own else -1
                judge.see(record.offset, record.key, record.time_ms, header.leader_epoch, at)

    async def _see_appended(self, judge: SupersededJudge, asked: AskSuperseded) -> None:
        """Read the originals of records that were appended to the target, because the target's log cleaner may already
        have removed the copies. Only originals that are newer than at least one of the records to be copied again are
        read."""
        lowest = judge.lowest_left()
        if not asked.appended or lowest == NEVER:
            return
        end, begin = await bounds(self._source_asks, self._source_partition)
        # The runs are copied, because older ones may be pruned while the source is read.
        runs, cuts = self._record.source_runs.copy(), self._record.truncations
        pieces = (piece for each in asked.appended for piece in mapped_by(runs, cuts, *each))
        for stretch in _read_together(piece for piece in pieces if piece[1] + piece[2] > lowest + 1):
            begins = [offset for _, offset, _ in stretch]
            start, behind = max(begins[0], begin, lowest + 1), min(stretch[-1][1] + stretch[-1][2], end)
            async for batch in self._source.read(self._source_partition, start, behind):
                if batch.header.attributes & CONTROL:
                    continue
                epoch, decide = _epoch_of(batch), self._rules.decide
                for record in await _decoded(batch):
                    ordinal, offset, length = stretch[max(bisect_right(begins, record.offset) - 1, 0)]
                    at = record.offset - offset
                    if 0 <= at < length and not is_of_another_epoch(self._record.epochs, ordinal + at, epoch):
                        copy = record if decide is None else decide(record, True)
                        if not isinstance(copy, str):
                            judge.see_appended(copy.key, record.offset)


def _extend(again: list[tuple[int, int]], more: Sequence[tuple[int, int]]) -> None:
    """Append to `again` the ranges that the next part of a lookup found. If a range was divided between the two parts,
    join its halves."""
    if again and more and again[-1][1] + 1 == more[0][0]:
        again[-1] = (again[-1][0], more[0][1])
        more = more[1:]
    again += more


def _epoch_of(batch: ReadBatch) -> int:
    return UNKNOWN if batch.is_old else batch.header.leader_epoch


def _expect(judge: SupersededJudge, found: Iterable[_Found], epoch: int) -> None:
    for missing, ordinal, record in found:
        judge.expect(missing, ordinal, record.offset, record.key, record.time_ms, source_epoch=epoch)


def _never_copied(judge: SupersededJudge, wanted: dict[int, list[tuple[Missing, int]]], header: Header) -> None:
    """Process a batch with records that a lane never copies.

    The last run in the ledger has no end, so it may assign an ordinal to such a record. If this ordinal comes after all
    of the lane's own batches in the target log (kind `last`), nothing was appended under it or under any higher
    ordinal. The reason is that a lane records verdicts on the offsets that it skips before it writes the next record,
    and the ledger has no verdict on this record.
    """
    for offset in range(header.base_offset, header.base_offset + header.last_offset_delta + 1):
        for each, ordinal in wanted.pop(offset, ()):
            if each.kind != "last":
                judge.gone(each, ordinal, by_retention=False)


async def _decoded(batch: ReadBatch) -> list[DecodedRecord]:
    await asyncio.sleep(0)  # a long lookup must not hold up the lanes
    return await batch.decoded()


def _read_together(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Group pieces whose source offsets are in ascending order and near each other, so that one read finds them all.
    The number of pieces in a group is limited, because a group is kept in memory."""
    group: list[Piece] = []
    for piece in pieces:
        behind = group[-1][1] + group[-1][2] if group else piece[1]
        if group and not (behind <= piece[1] <= behind + NEAR and len(group) < MOST_PIECES):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group


def _stretches(offsets: list[int]) -> list[tuple[int, int]]:
    """Return ranges [start, end) that contain all of the given offsets. The offsets must be in ascending order."""
    found: list[tuple[int, int]] = []
    for offset in offsets:
        if found and offset - found[-1][1] <= NEAR:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found
