"""Traps in which another daemon takes the lease of the flow."""

from typing import TYPE_CHECKING

from mirrord.ledger.facts.core import LaneTaken, SourceRun
from tests.sim import late_bytes, leases
from tests.sim.host import Host
from tests.sim.traps.moments import LONG, Script, copying, forget, may_start, running, sends, until

if TYPE_CHECKING:
    from tests.sim.scheduler import Story


def lease_of_a_suspended_daemon(story: "Story") -> Script:
    """A replicator is suspended while it copies, another daemon takes the lease, and the suspended one continues once
    the new holder sends."""
    world = story.world
    host = yield from until(lambda: copying(world, acked=1), LONG)
    if not host or not may_start(world):
        return
    for _ in range(world.rng.randrange(6)):
        yield
    world.note(f"trap: {host.name} is suspended, another daemon takes the lease")
    host.paused = True
    later = leases.take(world)
    forget(world)
    yield from until(lambda: later is None or sends(later), LONG)
    late_bytes.wake(host)


def lease_before_a_fact_is_written(story: "Story") -> Script:
    """Another daemon takes the lease before an entry of the former holder reaches the ledger: the entry takes the lane,
    or assigns ordinals."""
    world = story.world

    def is_about_to_write() -> Host | None:
        for host in running(world):
            facts = (fact for _, entry in host.appends for fact in entry.facts)
            if any(isinstance(fact, LaneTaken | SourceRun) for fact in facts):
                return host
        return None

    host = yield from until(is_about_to_write, LONG)
    if host and may_start(world):
        world.note(f"trap: another daemon takes the lease before {host.name} writes to the ledger")
        leases.take(world)
        forget(world)
