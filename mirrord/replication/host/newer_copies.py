"""Finds out whether a compacted target has newer records with the keys of source records that it lacks."""

import asyncio
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import NamedTuple

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.committed_batches import committed_batches
from mirrord.kafka.client.partition_queries import Asks, bounds
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.displaced import within as within_ordinals
from mirrord.model.intervals import Interval, contain, joined, ranges
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import AskRebuild, LaneRecord, OwnBatch
from mirrord.replication.lane.source.copied_pieces import mapped, ordinal_of
from mirrord.replication.lane.source.missing_from_target import superseded_before
from mirrord.replication.lane.source.record_search import LedgerAnswers, TargetBatch
from mirrord.replication.lane.source.recorded_epochs import is_of_another_epoch
from mirrord.replication.lane.target.batch_relocation import covered_below
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.replication.lane.target.rebuilt_verdicts import placed
from mirrord.replication.lane.target.relocation_result import Located

ReadableLog = tuple[Stretches, PartitionId, Asks]
"""The objects that read a log and ask its brokers, and the partition."""


class Batches(NamedTuple):
    """What the target log has in the range of a search."""

    own: Sequence[OwnBatch]
    """The lane's batches."""
    standing: Sequence[TargetBatch]
    """What these contain from the first ordinal of the search on."""
    bare: Sequence[Interval]
    """Target offsets [start, end) that no batch of any client contains."""


class NewerCopies(NamedTuple):
    """Source offsets [start, end) of records that the target lacks."""

    superseded: Sequence[Interval] = ()
    """A later source record with the same key was copied, or the ledger shows that another client has written a newer
    record."""
    unclear: Sequence[Interval] = ()
    """Another client has written the key to the target. Its record is newer if the missing one was in the log before,
    and older if the missing one was never appended."""


async def newer_copies(
    source: ReadableLog,
    target: ReadableLog,
    record: LaneRecord,
    wanted: AskRebuild,
    batches: Batches,
    located: Located,
    ledger: LedgerAnswers,
) -> NewerCopies:
    """Return which missing records (`Located.missing`) must not be copied again, and for which this is not known.

    The target's log cleaner has removed a record only if the log had a newer one with the same key. If that was a
    tombstone, the cleaner may have removed it too. A missing record is therefore superseded if a later source record
    with its key was copied, whether or not the target still has that copy. A copy whose source record is gone is older
    than every record that the source still has with its key, because a log cleaner removes the oldest records of a key
    first.

    If no other client has written the key where the missing record would be either, the missing one was never appended,
    or what superseded it has been lost, and it has to be copied. The missing record would be where the cleaner has
    removed a record (`_removed_from`), after all ordinals that are known to have other records (`_known_until`).
    However, if it was acknowledged, an election may have removed it, and later records may have its place in the log.
    Another client's record of a later leader epoch is then newer (decision 95). If an election has brought back
    batches, the missing record may have been in the log from which these batches were missing. If retention has deleted
    the beginning of the range, it may have been there.

    Raises ReadFailed if one of the logs cannot be read at the moment, and ValueError if its records cannot be.
    """
    missing = await _looked_up(source, record, wanted, batches.own, located)
    if not missing.by_key:
        return NewerCopies(ranges(sorted(missing.superseded)))
    foreign = await _written_by_others(target, wanted, missing.by_key)
    begin = _known_until(wanted, batches, ledger, located.missing)
    removed_from = begin if wanted.earlier or wanted.is_cut else _removed_from(wanted, batches, begin)
    superseded, unclear = missing.superseded, set[int]()
    for key, last in foreign.items():
        is_older = False
        for offset in reversed(missing.by_key[key]):
            epoch = missing.acknowledged.get(offset)
            is_newer = epoch is not None and last.leader_epoch > epoch >= 0
            # A record is also superseded if a later one with the same key is.
            is_older = is_older or offset in missing.gave_way or is_newer
            if is_older:
                superseded.add(offset)
            elif epoch is not None or last.offset >= removed_from:
                unclear.add(offset)
    return NewerCopies(ranges(sorted(superseded)), ranges(sorted(unclear - superseded)))


class _Acknowledged:
    """Returns the latest leader epoch of the target in which the log had the record of a source offset, or None if this
    record was not acknowledged."""

    def __init__(self, record: LaneRecord, wanted: AskRebuild) -> None:
        self._record = record
        self._parts: list[tuple[int, int, list[Interval], int]] = []
        first = wanted.first
        for until, epoch in wanted.acknowledged:
            if until > first:
                pieces = mapped(record, first, until - 1)
                offsets = joined((offset, offset + length) for _, offset, length in pieces)
                self._parts.append((first, until, offsets, epoch))
                first = until

    def __call__(self, offset: int, source_epoch: int) -> int | None:
        """`source_epoch` is the leader epoch of the record that the source has at this offset."""
        for first, until, parts, epoch in self._parts:
            ordinal = ordinal_of(self._record, first, until, offset) if contain(parts, offset) else None
            if ordinal is not None and not is_of_another_epoch(self._record.epochs, ordinal, source_epoch):
                return epoch
        return None


class _Missing(NamedTuple):
    """Source offsets of missing records."""

    by_key: defaultdict[Hashable, list[int]]
    """The records that have keys, except for superseded ones."""
    superseded: set[int]
    """A later source record with the same key was copied."""
    gave_way: set[int]
    """They were not copied again earlier, because the target had newer records (see `superseded_before` and
    `Displaced`). This counts only if the target still has a record of another client with the key: a tombstone that the
    log cleaner has removed since cannot be distinguished from a record that an election has removed."""
    acknowledged: dict[int, int]
    """Those that were acknowledged, and in which leader epoch of the target (see `_Acknowledged`)."""


async def _looked_up(
    source: ReadableLog, record: LaneRecord, wanted: AskRebuild, own: Sequence[OwnBatch], located: Located
) -> _Missing:
    """Look the missing records up in the source. It is read only once, because they may be in many separate ranges."""
    found, acknowledged_in = _Missing(defaultdict(list), set(), set(), {}), _Acknowledged(record, wanted)
    copied, below = joined(placed(wanted.first, own, located)), covered_below(record, wanted.first)

    def is_copied(offset: int, epoch: int) -> bool:
        if contain(copied, offset):
            return True
        ordinal = ordinal_of(record, 0, wanted.first, offset) if contain(below, offset) else None
        return ordinal is not None and not is_of_another_epoch(record.epochs, ordinal, epoch)

    displaced = [
        piece
        for each in within_ordinals(record.displaced, wanted.first, sys.maxsize)
        for piece in mapped(record, each.first, each.last)
    ]
    displaced_offsets = joined((start, start + length) for _, start, length in displaced)

    def is_displaced(offset: int, epoch: int) -> bool:
        return contain(displaced_offsets, offset) and any(
            start <= offset < start + length and not is_of_another_epoch(record.epochs, ordinal + offset - start, epoch)
            for ordinal, start, length in displaced
        )

    start, (end, _) = located.missing[0][0], await bounds(source[2], source[1])
    async with aclosing(source[0].read(source[1], start, min(located.next_offset, end))) as batches:
        async for batch in batches:
            await asyncio.sleep(0)  # a long lookup must not hold up the lanes
            epoch = -1 if batch.is_old else batch.header.leader_epoch
            for each in await batch.decoded() if not batch.header.attributes & CONTROL else ():
                if each.key is not None and contain(located.missing, each.offset):
                    found.by_key[each.key].append(each.offset)
                    if superseded_before(record, each.offset, epoch) or is_displaced(each.offset, epoch):
                        found.gave_way.add(each.offset)
                    if (target_epoch := acknowledged_in(each.offset, epoch)) is not None:
                        found.acknowledged[each.offset] = target_epoch
                elif each.key in found.by_key and is_copied(each.offset, epoch):
                    found.superseded.update(found.by_key.pop(each.key))
    return found


def _known_until(wanted: AskRebuild, batches: Batches, ledger: LedgerAnswers, missing: Sequence[Interval]) -> int:
    """Return the target offset after the first ordinals of the search under which no missing record was appended. A
    missing record can only have a later ordinal, so it can only be at or above this offset.

    These are the ordinals whose records the log still has, and those under which only one record was ever sent, if that
    is not a missing one.
    """

    def may_be_missing(ordinal: int) -> bool:
        offset = ledger.named(ordinal)
        return ledger.opens(ordinal) or offset is None or contain(missing, offset)

    until, ordinal = wanted.start, wanted.first
    for batch, begin, offset in _placed_at(wanted, batches):
        gap = [*range(ordinal, batch.first)]
        gap += [at for at, content in enumerate(batch.contents, batch.first) if content is None]
        first = next((at for at in gap if may_be_missing(at)), batch.last + 1)
        ordinal = batch.last + 1
        until = max(until, offset + first - begin) if first >= batch.first else until
        if first < ordinal:
            break
    return until


def _removed_from(wanted: AskRebuild, batches: Batches, begin: int) -> int:
    """Return the first target offset at or above `begin` at which the cleaner may have removed a record of the lane.
    Return `NEVER` if there is none."""
    found = [max(start, begin) for start, end in batches.bare if end > begin]
    for batch, first, offset in _placed_at(wanted, batches):
        removed = (at + offset - first for at, content in enumerate(batch.contents, batch.first) if content is None)
        found += [at for at in removed if at >= begin][:1]
    return min(found, default=NEVER)


def _placed_at(wanted: AskRebuild, batches: Batches) -> Iterator[tuple[TargetBatch, int, int]]:
    """Yield each batch of the search, with the first ordinal and the base offset of the whole batch in the target."""
    begins = [(nearest(each.base_sequence, wanted.first), each) for each in batches.own]
    whole = [(begin, each.base_offset) for begin, each in begins if begin + each.count > wanted.first]
    return ((batch, *place) for batch, place in zip(batches.standing, whole, strict=True))


class _Last(NamedTuple):
    """The last record with a key that another client has written, and the highest leader epoch of such a record."""

    offset: int
    leader_epoch: int


async def _written_by_others(
    target: ReadableLog, wanted: AskRebuild, missing: Mapping[Hashable, Sequence[int]]
) -> Mapping[Hashable, _Last]:
    """Return what other clients have written with the keys of missing records from the target offset `wanted.start` on.
    Records of aborted and open transactions do not count: the cleaner removes nothing because of them."""
    foreign: dict[Hashable, _Last] = {}
    log, partition, asks = target
    async with aclosing(committed_batches(log, asks, partition, wanted.start, wanted.end)) as batches:
        async for batch in batches:
            await asyncio.sleep(0)
            if not is_own(batch.header, wanted.producer_id):
                epoch = -1 if batch.is_old else batch.header.leader_epoch
                records = await batch.decoded()
                foreign.update((each.key, _Last(each.offset, epoch)) for each in records if each.key in missing)
    return foreign
