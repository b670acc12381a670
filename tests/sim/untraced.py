"""Records that the source has lost in an unclean election, without a trace that any holder can find.

A source broker shows where its log diverges from the copied records only by the leader epochs of its log. Retention
forgets the epochs that have ended below the log start. If it deletes what has replaced the copied records before the
lane has recorded the loss, nothing shows it any longer: the copied records may as well have been deleted by retention.
"""

from mirrord.replication.lane.source.recorded_epochs import is_truncated
from tests.sim.host import LANE
from tests.sim.left_out import recorded_as
from tests.sim.world import World


def is_lost(world: World, number: int, ordinal: int) -> bool:
    """Whether the source has lost the record with this ordinal, and the ledger must know it."""
    record, source = world.truth.lanes[LANE], world.source
    is_known = number not in source.untraced or is_truncated(record, ordinal, source.offset_of[number])
    return number in source.cut and is_known


def taken_offsets(world: World, arrived: set[int]) -> set[int]:
    """Source offsets of such records that were copied, or that were not to be copied according to the ledger. Nothing
    shows that the source had other records there, too, and has deleted these before they were copied."""
    source = world.source
    copied = {source.offset_of[number] for number in arrived & source.untraced}
    begins = [part for part, removed in source.losses if not removed.isdisjoint(source.untraced)]
    if not begins:
        return copied
    left_out = recorded_as(world, "aborted") | recorded_as(world, "control")
    return copied | {offset for offset in left_out if min(begins) <= offset < source.start}
