"""The moments at which a rule of failovers matters. Chance alone would hardly ever strike there."""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from tests.sim.host import LANE

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

_STEPS = 14
"""Steps in which a replicator can copy a record."""


def is_revealing(world: "World") -> bool:
    """Return whether the ledger and the progress record show less than the lane has copied, or more: records are in
    flight, are to be copied again, are at target offsets that the ledger does not contain, or were copied after another
    replicator had drained the lane."""
    record, progress = world.truth.lanes.get(LANE), world.progress
    if record is None:
        return False
    if any(host.lane.plan for host in world.hosts.living):
        return True
    own = [stored for stored in world.target.brokers[world.target.leader].log if stored.producer == record.producer_id]
    if own and record.target_runs.offset_of(own[-1].ordinal) != own[-1].base:
        return True
    is_drained = progress is not None and progress.state == "drained" and progress.grant < record.grant
    return is_drained and progress is not None and world.target.end > progress.target_offset


def arrive_late(world: "World") -> None:
    """Let all requests arrive for which any process still waits. Those that left later than that are not meant."""
    for request in list(world.wire):
        if request in world.wire and not request.overdue and request.late_after == 0 and request.read_until == 0:
            world.do(("arrive", request))


def hurry(world: "World") -> None:
    """A producer writes, and the replicators that copy hurry. They read nothing of the ledger meanwhile."""
    failover = world.failover
    if failover is None or failover.is_source_dead:
        return
    for host in world.hosts.living if failover.is_drama else ():
        host.paused = False
    hosts = [host for host in world.hosts.living if not host.paused and host.lane.phase is Phase.COPYING]
    if not hosts:
        return
    world.source.append(1, world.record_ms())
    for host in hosts:
        for _ in range(_STEPS):
            choices = [choice for choice in world.choices() if _is_of(host, choice)]
            if not choices:
                break
            world.do(world.rng.choice(choices))


def _is_of(host: "Host", choice: tuple[str, object]) -> bool:
    """Return whether something happens to a replicator, apart from what it reads of the ledger."""
    kind, what = choice
    if kind == "inbox":
        return isinstance(what, tuple) and what[0] is host
    if kind == "arrive":
        return getattr(what, "host", None) is host
    return what is host and kind in {"answer", "write", "timer"}


def read_the_end(world: "World") -> None:
    """The replicators read that the copying has ended, and then hurry."""
    for host in world.hosts.living:
        while host.alive and not host.paused and host.state.next_offset < len(world.ledger):
            world.do(("read", host))
    hurry(world)
