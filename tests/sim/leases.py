"""Several daemons for one flow: another one takes the lease, and replicators of the former daemon do not know it yet.

The new daemon does not know how long the former replicators may write, so its own wait for the whole barrier. Entries
that are written under the former lease have no effect. A ledger that loses entries is not part of the simulation: a
daemon that finds such a loss stops, and so do its lanes (decision 98, `tests/property/test_ledger_store.py`).
"""

from typing import TYPE_CHECKING

from mirrord.ledger.facts.core import AnyFact, Holder, LeaseTaken
from mirrord.replication.lane import ledger_signals
from mirrord.replication.lane.signals import Fenced, Released

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

TTL_MS = 6_000


def take(world: "World") -> "Host | None":
    """Another daemon takes the lease and gives the lane to a replicator. Return it, or None if there are too many."""
    if world.failover is not None:
        world.failover.take_lease("daemon")
        return None
    epoch = world.truth.lease_epoch + 1
    world.note(f"lease {epoch} is taken")
    world.write((LeaseTaken(epoch, Holder("h", epoch, "i", ""), TTL_MS),), epoch)
    if len([host for host in world.hosts if host.alive]) < 3:
        return world.start_host(former_dead=False)
    return None


def news(host: "Host", fact: AnyFact) -> Fenced | Released | None:
    """Return what the host tells its lane of a fact that has taken effect."""
    if isinstance(fact, LeaseTaken):
        return Fenced() if fact.epoch > host.lease_epoch else None
    if ledger_signals.ends_copying(fact):
        return ledger_signals.over(host.state.recoveries, "orders")
    return ledger_signals.news(fact, host.name) if host.lane.grant else None


def is_renewed(host: "Host") -> bool:
    """Whether the host's daemon can renew its lease now: the host has read the ledger to the end, so the lane was not
    taken up to now, and the daemon still holds the lease."""
    is_up_to_date = host.state.next_offset == len(host.world.ledger)
    return host.alive and not host.paused and is_up_to_date and host.state.lease_epoch == host.lease_epoch
