"""Copied records that the source has lost in an unclean election, without a trace that any holder can find.

A source broker shows where its log diverges from the copied records only by the leader epochs of its log. Retention
forgets the epochs that have ended below the log start. If it deletes what has replaced the copied records before the
lane has recorded the loss, nothing shows it any longer: the copied records may as well have been deleted by retention.
"""

from mirrord.ledger.facts.core import Reason
from mirrord.replication.lane.source.recorded_epochs import is_truncated
from tests.sim.host import LANE
from tests.sim.left_out import recorded_as
from tests.sim.world import World

_NOT_COPIED: tuple[Reason, ...] = ("control", "aborted", "compacted")
"""Why a lane does not copy offsets that it has read."""


def is_lost(world: World, number: int, ordinal: int) -> bool:
    """Whether the source has lost the record with this ordinal, and the ledger must know it."""
    record, source = world.truth.lanes[LANE], world.source
    is_known = number not in source.untraced or is_truncated(record, ordinal, source.offset_of[number])
    return number in source.cut and is_known


def taken_offsets(world: World, arrived: set[int]) -> set[int]:
    """Source offsets of such records that were copied, and of those in between that the ledger had explained before.
    Nothing shows that the source had other records there, too, and has deleted these before they were copied."""
    source, none = world.source, frozenset[int]()
    losses = [loss for loss in source.losses if not loss.numbers.isdisjoint(source.untraced)]
    gone = none.union(*(range(loss.begin, loss.end) for loss in losses))
    explained = none.union(*(recorded_as(world, reason) for reason in _NOT_COPIED)) if gone else none
    return {source.offset_of[number] for number in arrived & source.untraced} | (gone & explained)
