"""Reads the records of a log that no aborted transaction contains, to any offset, even if a transaction is open.

A fetch of committed records ends at the last stable offset: the first offset of the oldest open transaction (KIP-98).
Below it, the broker reports which transactions were aborted, including those that began before the fetched offset.
Above it, there may be records without a transaction, and records of transactions that have ended. To which of these a
record belongs is determined from the markers in the log.
"""

import sys
from bisect import bisect_right
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Literal, Protocol, TypeVar

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import Asks, bounds, last_stable_offset
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, Header

_COMMIT = b"\0\1"
"""The type of a marker that commits a transaction (`org.apache.kafka.common.record.ControlRecordType`). In the key of a
marker, the type follows the version, which also has two bytes."""
Markers = dict[int, tuple[list[int], list[bool]]]
"""Producer id → the offsets of its markers in ascending order, and whether each of them commits the transaction."""
TransactionFate = Literal["committed", "aborted", "open"]
"""How the transaction of a batch has ended, or `open` if it has not ended. A batch that is in no transaction is
`committed`. A marker holds no records, so it counts as `aborted`."""
PartitionT_contra = TypeVar("PartitionT_contra", contravariant=True)


class ReadsLog(Protocol[PartitionT_contra]):
    """A reader of logs, such as `mirrord.kafka.client.range_reader.Stretches`."""

    def read(
        self, _partition: PartitionT_contra, /, start: int, end: int, *, committed: bool
    ) -> AsyncGenerator[ReadBatch, None]:
        """Yield the batches that contain any of the offsets from `start` up to but not including `end`. If `committed`
        is set, all of them are below the last stable offset, and aborted batches are marked."""
        ...


async def committed_batches(
    log: ReadsLog[PartitionId], asks: Asks, partition: PartitionId, start: int, end: int
) -> AsyncGenerator[ReadBatch, None]:
    """Yield the batches that hold committed records, from the offset `start` up to `end` and beyond. Omit markers, and
    batches of transactions that are aborted or open. Other clients may write to the log.

    During the read, the log cleaner may remove a record because a later one has the same key. Whatever has been written
    in the meantime is therefore read as well. If a transaction was open, reading continues at its first batch, so some
    batches may be yielded again. Clients may write all the time, so reading ends when more than half as much has been
    written as before: either the reader has caught up, or it never would.

    Raises ReadFailed if the log cannot be read at the moment, and ValueError if a marker cannot be read.
    """
    grown = sys.maxsize
    while start < end:
        stable, opened = await last_stable_offset(asks, partition), end
        async with aclosing(unaborted_batches(log, partition, start, stable, end, end)) as batches:
            async for batch, fate in batches:
                if fate == "committed":
                    yield batch
                else:
                    opened = min(opened, batch.header.base_offset)
        former, (present, _) = grown, await bounds(asks, partition)
        grown = present - end
        if not 0 < grown <= former // 2:
            return
        start, end = opened, present


async def unaborted_batches(
    log: ReadsLog[PartitionT_contra], partition: PartitionT_contra, start: int, stable: int, end: int, log_end: int
) -> AsyncGenerator[tuple[ReadBatch, TransactionFate], None]:
    """Yield the batches between the offsets `start` and `end`, and for each of them, whether its records are committed
    or its transaction is open at `log_end`. Omit markers and batches of aborted transactions. `stable` is the last
    stable offset.

    Raises what `log` raises, and ValueError if a marker cannot be read.
    """
    if start < min(stable, end):
        async with aclosing(log.read(partition, start, min(stable, end), committed=True)) as batches:
            async for batch in batches:
                if not batch.aborted and not batch.header.attributes & CONTROL:
                    yield batch, "committed"
    above = max(start, stable)
    if above >= end:
        return
    markers = await _markers(log, partition, above, end, log_end)
    async with aclosing(log.read(partition, above, end, committed=False)) as batches:
        async for batch in batches:
            fate = _fate(batch.header, markers)
            if batch.header.base_offset >= stable and fate != "aborted":
                yield batch, fate


async def _markers(
    log: ReadsLog[PartitionT_contra], partition: PartitionT_contra, start: int, end: int, log_end: int
) -> Markers:
    """Return the markers from `start` on that end the transactions of the batches between `start` and `end`. The log is
    read beyond `end` only if one of these transactions has not ended before."""
    found: Markers = {}
    begun: set[int] = set()
    """The producers whose transactions contain one of these batches and have not ended yet."""
    async with aclosing(log.read(partition, start, log_end, committed=False)) as batches:
        async for batch in batches:
            header = batch.header
            if header.attributes & CONTROL:
                offsets, commits = found.setdefault(header.producer_id, ([], []))
                offsets.append(header.base_offset)
                commits.append(await _commits(batch))
                begun.discard(header.producer_id)
            elif header.attributes & TRANSACTIONAL and header.base_offset < end:
                begun.add(header.producer_id)
            if header.last_offset + 1 >= end and not begun:
                break
    return found


async def _commits(batch: ReadBatch) -> bool:
    """Return whether a control batch is a marker that commits a transaction."""
    keys = [record.key for record in await batch.decoded()]
    return any(key is not None and key[2:4] == _COMMIT for key in keys)


def _fate(header: Header, markers: Markers) -> TransactionFate:
    """Return the fate of a batch above the last stable offset. The next marker of the producer ends its transaction."""
    if header.attributes & CONTROL:
        return "aborted"
    if not header.attributes & TRANSACTIONAL:
        return "committed"
    offsets, commits = markers.get(header.producer_id, ([], []))
    following = bisect_right(offsets, header.base_offset)
    if following == len(commits):
        return "open"
    return "committed" if commits[following] else "aborted"
