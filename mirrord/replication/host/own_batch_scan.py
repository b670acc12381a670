"""Scans the target for the batches that a lane wrote itself."""

from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.protocol.sequence import SEQUENCES, nearest
from mirrord.model.intervals import Interval
from mirrord.replication.lane.signals import AskScan, OwnBatch, ScanAnswer
from mirrord.replication.lane.target.existing_copies import is_own


async def scan(
    target: Stretches, partition: PartitionId, asked: AskScan, compacts: Callable[[], Awaitable[bool | None]]
) -> ScanAnswer:
    """Return the answer to a lane that asks for its own batches. `compacts` returns whether the target topic is
    compacted.

    Raises ReadFailed when the target cannot be read at the moment.
    """
    own, others, epoch = await own_batches(target, partition, asked)
    cleans = await compacts() if may_be_cleaned(asked, own, others) else False
    return ScanAnswer(asked.question, 0, asked.purpose, asked.start, asked.end, own, others, cleans, epoch)


async def own_batches(
    target: Stretches, partition: PartitionId, asked: AskScan
) -> tuple[tuple[OwnBatch, ...], tuple[Interval, ...], int]:
    """Return the lane's own batches in the requested range of target offsets, in log order. Also return the offset
    ranges of other batches, and the highest leader epoch of all batches (`ScanAnswer.leader_epoch`).

    A batch is returned with all the ordinals that it was written with, even if the log cleaner has removed some of its
    records. Raises ReadFailed when the target cannot be read at the moment.
    """
    own: list[OwnBatch] = []
    others: list[Interval] = []
    epoch = -1
    async for batch in target.read(partition, asked.start, asked.end):
        header = batch.header
        epoch = epoch if batch.is_old else max(epoch, header.leader_epoch)
        if is_own(header, asked.producer_id):
            count = header.last_offset_delta + 1
            where = (header.base_offset, count, header.base_sequence)
            own.append(OwnBatch(*where, batch.records_crc, header.leader_epoch))
        elif not batch.is_old:
            behind = header.base_offset + header.last_offset_delta + 1
            begun = others.pop()[0] if others and others[-1][1] == header.base_offset else header.base_offset
            others.append((begun, behind))
    return tuple(own), tuple(others), epoch


def may_be_cleaned(asked: AskScan, own: Sequence[OwnBatch], others: Sequence[Interval]) -> bool:
    """Return whether the outcome of a scan depends on whether the topic is compacted. This is the case if records are
    missing from the log, or if other producers also write to the topic.

    Even if the batches that were found follow each other without a gap, records may be missing before or after them.
    Records before them are missing if the first batch begins after the expected ordinal. Records after them are missing
    if the last batch ends before the last acknowledged ordinal. If the lane is reading the log again from before its
    resume position (`verify`), it is always assumed that records may be missing.
    """
    if not own or others or asked.purpose == "verify":
        return True
    held = sum(batch.count for batch in own)
    follows = all(
        (first.base_sequence + first.count - second.base_sequence) % SEQUENCES == 0 for first, second in pairwise(own)
    )
    first = nearest(own[0].base_sequence, asked.expected)
    is_cut = not follows or held < asked.end - max(asked.start, own[0].base_offset)
    return is_cut or first > asked.expected or first + held < asked.until
