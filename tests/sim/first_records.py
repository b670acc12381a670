"""A holder that takes a lane first copies what the target lacks.

Holes are repaired under later ordinals, so truth.py does not compare the order of records once there is one. A hole is
nobody's fault if an election makes it after the lane has asked what the target holds. If the target lost the records
before the holder began, the holder has to notice that before it copies anything else. Only if a former holder has
found a hole, the ledger says when its records follow.
"""

from typing import TYPE_CHECKING

from tests.sim import toy
from tests.sim.host import LANE

if TYPE_CHECKING:
    from tests.sim.host import Host, Request
    from tests.sim.world import World

_UNTOLD = ("cleans", "policies", "seeks", "poison", "expires")
"""Fields of a `Shape`. In these worlds, not everything that the target lacks has to be copied."""


def begins(world: "World", host: "Host") -> None:
    """Note what a holder can find when it begins, if both brokers know the leader epoch of the target."""
    is_known = sum(each.leads for each in world.target.brokers) == 1
    host.began_with = _losses(world) if is_known else None


def check(world: "World", request: "Request") -> None:
    """Check the first batch of a holder, just before it is appended. Nothing must have been lost since it began."""
    host, target = request.host, world.target
    if request.broker != target.leader or host.began_with is None:
        return
    is_same, host.began_with = host.began_with == _losses(world), None
    if not is_same or any(getattr(world.shape, each) for each in _UNTOLD) or world.excused:
        return
    record = world.truth.lanes.get(LANE)
    if record is not None and record.holes:
        return
    stand = {number for stored in target.brokers[target.leader].history for number in stored.numbers}
    lacks = [number for number in world.source.wanted() if number not in stand]
    number = toy.records(request.data)[0][1]
    if number in lacks[1:]:
        offsets = world.source.offset_of
        raise AssertionError(
            f"{host.name} begins with source offset {offsets[number]}, the target lacks {offsets[lacks[0]]}"
        )


def _losses(world: "World") -> tuple[int, ...]:
    source = world.source
    return world.target.epoch, len(source.cut), len(source.cleaned), len(source.expired)
