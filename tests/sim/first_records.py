"""A holder that takes a lane first copies what the target lacks.

Holes are repaired under later ordinals, so truth.py does not compare the order of records once there is one. A hole is
nobody's fault if an election makes it after the lane has asked what the target holds. If the target lost the records
before the holder began, the holder has to notice that before it copies anything else.
"""

from typing import TYPE_CHECKING

from tests.sim import toy

if TYPE_CHECKING:
    from tests.sim.host import Host, Request
    from tests.sim.world import World

_UNTOLD = ("cleans", "policies", "seeks", "poison", "compaction", "retention", "truncation", "expires", "late")
"""Fields of a `Shape`. In these worlds, not everything that the target lacks has to be copied."""


def begins(world: "World", host: "Host") -> None:
    """Note in which leader epoch of the target a holder begins, if both brokers know that epoch."""
    host.began_in = world.target.epoch if sum(each.leads for each in world.target.brokers) == 1 else -1


def check(world: "World", request: "Request") -> None:
    """Check the first batch of a holder, just before it is appended."""
    host, target = request.host, world.target
    is_there = request.broker == target.leader and host.began_in == target.epoch
    if not is_there or any(getattr(world.shape, each) for each in _UNTOLD) or world.excused:
        return
    host.began_in = -1
    stand = {number for stored in target.brokers[target.leader].history for number in stored.numbers}
    lacks = [number for number in world.source.wanted() if number not in stand]
    number = toy.records(request.data)[0][1]
    if number not in stand and lacks and number != lacks[0]:
        offsets = world.source.offset_of
        raise AssertionError(
            f"{host.name} begins with source offset {offsets[number]}, the target lacks {offsets[lacks[0]]}"
        )
