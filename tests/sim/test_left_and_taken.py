"""A replicator is told that the last holder has left the lane, and another one takes the lane before it does."""

from mirrord.replication.lane.signals import AppendFailed
from tests.sim import truth
from tests.sim.scheduler import Story
from tests.sim.themes import shape_named
from tests.sim.traps.driving import drive, holder, land, leave_cleanly, on_the_way
from tests.sim.traps.moments import keep


def test_a_lane_waits_for_a_holder_that_took_it_while_an_append_failed() -> None:
    """The append of `LaneTaken` fails. When the lane repeats it with a higher grant, it still counts as left cleanly
    (`TakeOver.left_cleanly`), although its last holder is another one by now. It copies a record that this one has sent
    as well, and the broker, which has forgotten the producer, accepts both."""
    story = Story(0, shape_named("plain, old records"))
    world = story.world
    world.saves = 1.0
    world.source.append(2, world.record_ms())
    world.start_host(former_dead=False)
    first = holder(world, acked=1)
    assert first is not None
    assert leave_cleanly(world, first)
    world.source.append(1, world.record_ms())

    slow = world.start_host(former_dead=False)
    assert slow.lane.takeover.left_cleanly
    tag, _ = slow.appends.popleft()
    between = world.start_host(former_dead=False)
    requests = drive(world, between, lambda: on_the_way(world, between), without=("arrive",))
    assert requests
    keep(requests)
    drive(world, slow, lambda: slow.state.next_offset == len(world.ledger), waits=False)
    slow.take(AppendFailed(tag, slow.record()))
    drive(world, slow, lambda: slow.lane.sent and slow.lane.acked > requests[0].batch.first)
    land(world, requests)

    truth.check(world)
