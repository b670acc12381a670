"""Traps in which the next holder of a lane begins with a position that is not what it seems to be."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim.traps.driving import drive
from tests.sim.traps.moments import Script, kill, may_start

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def position_of_a_slow_first_holder(story: "Story") -> Script:
    """The first holder of the lane is suspended before it asks for the end of the target log. Another one copies
    records. The first one then takes the end of these records for the beginning of the lane, saves this position, and
    ends. This is possible only once in a story."""
    world = story.world
    first = world.hosts[0]
    lane = first.lane
    if not _opens(world) or not may_start(world):
        yield
        return
    first.paused = True
    later = world.start_host(former_dead=False)
    drive(world, later, lambda: later.lane.acked > 0)
    first.paused = False
    drive(world, first, lambda: lane.phase is Phase.COPYING, without=("read", "append"), waits=False)
    if lane.phase is not Phase.COPYING or lane.grant != 1 or later.lane.acked == 0:
        return
    world.note("trap: the first holder saves a position behind the records of the next one")
    for _ in range(9):
        first.save_progress()
    kill(first)
    kill(later)
    world.start_host(former_dead=True)


def _opens(world: "World") -> bool:
    """Let the first holder open the lane, if it has not got further by now. Return whether it has opened the lane, and
    knows nothing about the target yet."""
    first = world.hosts[0]
    lane = first.lane
    if not first.alive or first.paused or lane.grant > 1 or lane.phase not in {Phase.OPENING, Phase.RESUMING}:
        return False
    return bool(drive(world, first, lambda: lane.phase is Phase.RESUMING and lane.takeover.opened_here))
