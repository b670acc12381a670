"""Reads the committed records of a log to its end, even if a transaction is open.

A fetch of committed records ends at the last stable offset: the first offset of the oldest open transaction (KIP-98).
Above it, there may be records without a transaction, and records of transactions that have ended. To which of these a
record belongs is determined from the markers in the log.
"""

from bisect import bisect_right
from collections.abc import AsyncIterator

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadBatch, Stretches
from mirrord.kafka.client.record_decoding import decode
from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL, Header

_COMMIT = b"\0\1"
"""The type of a marker that commits a transaction (`org.apache.kafka.common.record.ControlRecordType`). In the key of a
marker, the type follows the version, which also has two bytes."""
Markers = dict[int, tuple[list[int], list[bool]]]
"""Producer id → the offsets of its markers in ascending order, and whether each of them commits the transaction."""


async def committed_batches(
    log: Stretches, partition: PartitionId, start: int, stable: int, end: int
) -> AsyncIterator[ReadBatch]:
    """Yield the batches between the offsets `start` and `end` that hold committed records. `stable` is the last stable
    offset. Omit markers, and batches of transactions that are aborted or open at `end`.

    Raises ReadFailed if the log cannot be read at the moment, and ValueError if a marker cannot be read.
    """
    if start < min(stable, end):
        async for batch in log.read(partition, start, min(stable, end), committed=True):
            if not batch.aborted and not batch.header.attributes & CONTROL:
                yield batch
    above = max(start, stable)
    markers = await _markers(log, partition, above, end)
    async for batch in log.read(partition, above, end):
        if batch.header.base_offset >= stable and _is_committed(batch.header, markers):
            yield batch


async def _markers(log: Stretches, partition: PartitionId, start: int, end: int) -> Markers:
    found: Markers = {}
    async for batch in log.read(partition, start, end):
        if batch.header.attributes & CONTROL:
            offsets, commits = found.setdefault(batch.header.producer_id, ([], []))
            offsets.append(batch.header.base_offset)
            commits.append(_commits(batch))
    return found


def _commits(batch: ReadBatch) -> bool:
    """Return whether a control batch is a marker that commits a transaction."""
    keys = (record.key for record in decode(batch.buffer, batch.start, batch.end))
    return any(key is not None and key[2:4] == _COMMIT for key in keys)


def _is_committed(header: Header, markers: Markers) -> bool:
    """Return whether the records of a batch are committed. The next marker of the producer ends its transaction."""
    if header.attributes & CONTROL:
        return False
    if not header.attributes & TRANSACTIONAL:
        return True
    offsets, commits = markers.get(header.producer_id, ([], []))
    following = bisect_right(offsets, header.base_offset)
    return following < len(commits) and commits[following]
