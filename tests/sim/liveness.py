"""A lane that is left in peace goes on."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


def check_resumed(world: "World", host: "Host") -> None:
    """Check a lane that had all the time to resume while nothing went wrong."""
    target = world.target
    is_whole = target.exists and sum(each.leads for each in target.brokers) == 1 and target.refusals_left == 0
    if not is_whole or not host.alive or host.paused or max(world.slow.suspended.values(), default=0.0) > world.now:
        return
    if host.lane.phase in {Phase.RESUMING, Phase.WAITING}:
        raise AssertionError(f"{host.name} does not resume: {host.lane.phase.value}, {host.lane.stage.value}")
