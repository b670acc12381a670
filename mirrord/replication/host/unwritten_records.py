"""Finds out whether the source ever had records that its log lacks.

If the source log ends below the source offset of a record that the target seems to hold, there are two explanations:
the source has lost the record in an election, or it has not written a record at this offset yet. In the second case,
the target holds a different record. A leader never removes records from the end of its log. Therefore, as long as the
leader epoch is still that of the record, the source cannot have lost it.
"""

from collections.abc import Sequence

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import Asks, leader_end
from mirrord.model.intervals import Interval, ranges
from mirrord.replication.lane.source.recorded_epochs import Epochs, epoch_at


async def unwritten(
    asks: Asks, partition: PartitionId, beyond: Sequence[tuple[int, int]], epochs: Epochs
) -> tuple[Interval, ...]:
    """Return those ordinals, as ranges [start, end), whose records the source has not written yet.

    `beyond` contains pairs (ordinal, source offset). The source log ends at or below these offsets. `epochs` contains
    the source epochs of the ordinals (see `recorded_epochs`). Raises ReadFailed.
    """
    known = [(ordinal, offset, epoch_at(epochs, ordinal)) for ordinal, offset in beyond]
    if not any(epoch >= 0 for _, _, epoch in known):
        return ()
    leader_epoch, end = await leader_end(asks, partition)
    return ranges(ordinal for ordinal, offset, epoch in known if offset >= end and epoch == leader_epoch)
