"""Lets parts of a world go on by themselves while everything else stands still: of all orders of events, the one that a
trap needs. Whatever happens is something that could happen next anyway (`World.choices`)."""

from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Drain
from tests.sim.host import Host, Request
from tests.sim.past import acked_in_story
from tests.sim.traps.moments import Found, forget, kill, may_start

if TYPE_CHECKING:
    from tests.sim.world import World

MOST = 400
"""Events that a trap lets happen before it gives up."""


def drive(
    world: "World",
    host: Host,
    done: Callable[[], Found | None],
    *,
    without: Container[str] = (),
    waits: bool = True,
) -> Found | None:
    """Let things happen to one host, and to the replicas of the target, until the condition returns something. Return
    it, or None if nothing more can happen. Events of the kinds in `without` do not happen. If nothing else can happen,
    time passes if `waits` is true."""
    for _ in range(MOST):
        found = done()
        if found or not host.alive or host.paused:
            return found
        possible = [each for each in world.choices() if _happens_to(each, host) and each[0] not in without]
        if possible:
            world.do(world.rng.choice(possible))
            continue
        later = world.next_time()
        if not waits or later is None:
            return None
        world.advance(later)
    return None


def holder(world: "World", *, acked: int = 0) -> Host | None:
    """Return the newest replicator once it copies, and the target has so many of its records. If none runs, another
    one is started."""
    newest = world.hosts[-1]
    if not newest.alive or newest.paused:
        if not may_start(world):
            return None
        newest = world.start_host(former_dead=not newest.alive)
    if acked and acked_in_story(newest) < acked:
        world.source.append(acked, world.record_ms())
    drive(world, newest, lambda: newest.lane.phase is Phase.COPYING and acked_in_story(newest) >= acked)
    return newest if newest.alive and newest.lane.phase is Phase.COPYING and acked_in_story(newest) >= acked else None


def sending(world: "World", batches: int = 1) -> list[Request]:
    """Return the requests of the newest replicator, once so many are on their way. None of them has arrived."""
    host = holder(world)
    if host is None:
        return []

    def under_way() -> list[Request]:
        found = [each for each in world.wire if each.host is host and each.connection == host.connection]
        return found if len(found) >= batches else []

    for _ in range(batches - len(under_way())):
        world.source.append(world.rng.randint(1, 3), world.record_ms())
    return drive(world, host, under_way, without=("arrive",)) or []


def pipelined(world: "World") -> Host | None:
    """The newest replicator, once it may send several batches at once, and has copied all there is."""
    world.source.append(1, world.record_ms())
    host = holder(world, acked=1)
    if host is None:
        return None
    lane = host.lane

    def is_idle() -> bool:
        return lane.pipelined and lane.position >= world.source.end and not lane.in_flight

    return host if drive(world, host, is_idle) else None


def copy_all(world: "World") -> Host | None:
    """The newest replicator, once it has copied all there is."""
    host = holder(world)
    if host is None:
        return None
    lane = host.lane

    def is_done() -> bool:
        is_idle = not (lane.in_flight or lane.ready or lane.intents or lane.notes)
        return is_idle and lane.phase is Phase.COPYING and lane.position >= world.source.end

    return host if drive(world, host, is_done) else None


def on_the_way(world: "World", host: Host, batches: int = 1) -> list[Request]:
    found = [each for each in world.wire if each.host is host and each.connection == host.connection]
    return found if len(found) >= batches else []


def _happens_to(choice: tuple[str, Any], host: Host) -> bool:
    """Whether an event happens to this host, or to none."""
    kind, what = choice
    if kind == "inbox":
        return what[0] is host
    return what is None or (what.host if kind == "arrive" else what) is host


def appended_by(world: "World", host: Host, ordinal: int) -> Callable[[], bool]:
    """Return whether the host has been told that the target has this ordinal."""
    del world
    return lambda: host.lane.sent and host.lane.acked > ordinal


def land(world: "World", requests: list[Request]) -> None:
    """The brokers forget the producers whose records are old, and read what is still on its way, in its order."""
    forget(world)
    for each in requests:
        each.kept = False
        if each in world.wire:
            world.do(("arrive", each))


def leave_cleanly(world: "World", host: Host) -> bool:
    """Drain a lane once nothing is in doubt any more. Return whether its holder has left it cleanly, with a handover.
    There is none while the ledger lacks facts."""
    words = len(world.words)
    if not host.lane.sent:
        world.source.append(world.rng.randint(1, 3), world.record_ms())
    if not drive(world, host, lambda: _is_calm(world, host)):
        return False
    host.take(Drain())
    drive(world, host, lambda: not host.alive, waits=False)
    return not host.alive and world.left_cleanly and len(world.words) > words


def _is_calm(world: "World", host: Host) -> bool:
    lane, late = host.lane, host.lane.late_writes
    is_over = max(late.until, late.former_holder_until) <= world.now and late.end_read_at >= late.former_holder_until
    is_idle = lane.phase is Phase.COPYING and lane.sent and not lane.in_flight and not lane.notes
    return is_over and is_idle and not lane.comparison.later_pending and not late.unanswered


def end_all_but(world: "World", host: Host) -> None:
    """The processes of all other replicators end."""
    for each in world.hosts:
        if each is not host and each.alive:
            kill(each)


def save_position(host: Host) -> None:
    """Save the progress of a host, as it does every second."""
    for _ in range(9):
        host.save_progress()  # which stands for a position that is saved, or not saved yet
