"""Traps while a lane waits for answers: they arrive twice, or a broker is faster than the ledger."""

from typing import TYPE_CHECKING

from tests.sim import slow_brokers
from tests.sim.host import Host
from tests.sim.traps.moments import LONG, Script, kill, may_start, running, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World


def answers_again(story: "Story") -> Script:
    """The last answers that a lane got arrive once more."""
    world = story.world
    host = yield from until(lambda: next((each for each in running(world) if len(each.heard) > 1), None))
    if not host:
        return
    world.note(f"trap: answers reach {host.name} again")
    while host.heard:
        host.hear_again()


def a_gap_before_the_ledger_answers(story: "Story") -> Script:
    """An aborted transaction ends at the source, so that the next record has a new run. The ledger is slow, and the
    broker reads at once whatever the lane sends meanwhile."""
    world = story.world
    ordinary = world.rng.randint(1, 2)
    world.source.append(world.rng.randint(1, 2), world.record_ms(), producer=_PRODUCER)
    world.source.finish(_PRODUCER, world.record_ms(), commit=world.rng.random() < 0.3)
    world.source.append(ordinary, world.record_ms())

    def intending() -> Host | None:
        return next((host for host in running(world) if host.lane.intents and host.appends), None)

    host = yield from until(intending, LONG)
    if not host:
        return
    world.note(f"trap: the ledger is slow for {host.name}")
    host.ledger_is_slow = True
    try:
        for _ in range(world.rng.randint(6, 20)):
            if not host.alive or host.paused:
                break
            _read_all(world, host)
            yield
        if host.alive and world.rng.random() < 0.3 and may_start(world):
            kill(host)
            world.start_host(former_dead=True)
    finally:
        host.ledger_is_slow = False


def _read_all(world: "World", host: Host) -> None:
    """The broker reads what the host has sent over its connection."""
    for each in [each for each in world.wire if each.host is host and each.connection == host.connection]:
        if not slow_brokers.is_read(world, each):
            break
        world.do(("arrive", each))


_PRODUCER = 9
"""The id of a transactional producer of the source that writes nothing else."""
