"""Traps in which the next holder of a lane begins with a position that is not what it seems to be."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim.past import acked_in_story
from tests.sim.traps.driving import drive, holder, leave_cleanly, save_position
from tests.sim.traps.moments import Script, kill, may_start, pause

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
    drive(world, later, lambda: acked_in_story(later) > 0)
    first.paused = False
    drive(world, first, lambda: lane.phase is Phase.COPYING, without=("read", "append"), waits=False)
    if lane.phase is not Phase.COPYING or lane.grant != 1 or acked_in_story(later) == 0:
        return
    world.note("trap: the first holder saves a position behind the records of the next one")
    save_position(first)
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


def everything_lost_before_a_handoff(story: "Story") -> Script:
    """A lane is drained. A replica that has lost its disk becomes the leader, and other clients write as many records
    there as the log had. The next holder copies a record before it learns of the election."""
    world = story.world
    yield from pause(world)
    former = holder(world, acked=world.rng.randint(1, 4))
    if not former or not may_start(world) or not leave_cleanly(world, former):
        return
    word = world.words[-1]
    _lose_everything(world)
    while world.target.end < word.target_offset:
        world.target.foreign(world.rng.randint(1, min(4, word.target_offset - world.target.end)), world.wall_ms)
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    world.words = [word]
    later = world.start_host(former_dead=False)
    if later.lane.takeover.fast_handoff is not None:
        world.note("trap: the target has lost everything before a handoff")
        lane = later.lane
        drive(world, later, lambda: lane.sent and lane.acked > word.ordinal and not lane.notes, without=("moved",))
        save_position(later)


def _lose_everything(world: "World") -> None:
    """The follower starts with an empty disk, and is elected before it has copied anything. The former leader
    follows it."""
    target = world.target
    target.learn(world.wall_ms)
    follower = target.brokers[1 - target.leader]
    follower.truncate(0)
    follower.memory.clear()
    target.in_sync = False
    target.elect()
    target.learn(world.wall_ms)
