"""Stories in which the target loses other clients' records at the end of its log, so that the lane's next records get
lower offsets than the saved resume position says."""

import pytest

from mirrord.replication.lane.phases import Phase
from tests.sim.host import Host, Shape
from tests.sim.scheduler import Story
from tests.sim.traps.driving import drive, holder
from tests.sim.traps.elections import replicate, tell
from tests.sim.traps.in_between import copied
from tests.sim.traps.moments import kill

QUIET = Shape(unclean=True, foreign=True, expires=True, kills=False, pauses=False, ledger_faults=False, refusals=False)


def _at_end(story: Story, host: Host) -> bool:
    return copied(host) and host.lane.position >= story.world.source.end


@pytest.mark.parametrize(
    ("tail", "others"),
    [pytest.param(3, 0, id="they are copied again"), pytest.param(7, 5, id="the lane halts")],
)
def test_records_that_moved_to_lower_offsets_and_were_deleted_need_no_repair(tail: int, others: int) -> None:
    """Retention deletes them before the next holder, which has the former resume position, looks for them. The broker
    remembers that they were appended."""
    story = Story(0, QUIET)
    world, target = story.world, story.world.target
    world.saves = 1.0
    world.source.append(3, world.record_ms())
    world.start_host(former_dead=False)
    former = holder(world, acked=3)
    assert former is not None
    drive(world, former, lambda: _at_end(story, former))
    former.save_progress()
    replicate(world)
    kill(former)
    target.in_sync = False
    target.foreign(tail, world.wall_ms)
    host = world.start_host(former_dead=True)
    drive(world, host, lambda: host.lane.phase is Phase.COPYING and copied(host), without=("replicate",))
    host.save_progress()
    target.elect()
    target.learn(world.wall_ms)
    tell(world)
    world.saves = 0.0
    world.source.append(5, world.record_ms())
    drive(world, host, lambda: host.lane.acked == 11 and _at_end(story, host))
    if others:
        target.foreign(others, world.wall_ms)
    replicate(world)
    kill(host)
    for at in (0, 1):
        target.expire(at, 3)
    world.start_host(former_dead=True)
    story.settle()
