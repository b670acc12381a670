"""Traps beside transactions of other clients on the target (`tests.sim.transactions`): a marker, an election or the end
of a holder comes while a transaction is open between batches of the lane.

In stories without such clients (`Shape.others`), these traps do nothing. They often leave a transaction open. No lane
may wait for its end.
"""

from typing import TYPE_CHECKING

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import EndAnswer, ProducersAnswer, ScanAnswer, VisibleAnswer
from tests.sim.host import Host
from tests.sim.transactions import Client, Ending, TransactionalTarget
from tests.sim.traps import lookups, views
from tests.sim.traps.driving import drive, holder, land, sending
from tests.sim.traps.in_between import copied
from tests.sim.traps.moments import Script, forget, kill, may_elect, may_start, pause

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

_MOMENTS = (EndAnswer, ProducersAnswer, VisibleAnswer, ScanAnswer, None)
"""Answers that a holder that resumes has just got. None if it copies already, and has sent nothing."""


def _target(world: "World") -> TransactionalTarget | None:
    """The target, if it has other clients and exists."""
    target = world.target
    return target if isinstance(target, TransactionalTarget) and target.exists else None


def _write(world: "World", client: Client, most: int = 3) -> None:
    """A client writes in its transaction. If the last one has not ended yet, its coordinator ends it first."""
    target = _target(world)
    assert target is not None
    while client.ending is not None:
        target.write_marker(client, world.wall_ms)
        _everywhere(world)
    target.write_in_transaction(client, world.rng.randint(1, most), world.wall_ms)


def _everywhere(world: "World") -> None:
    """The follower catches up."""
    world.target.learn(world.wall_ms)
    while world.target.replicate():
        pass


def _end(world: "World", client: Client, ending: Ending | None = None) -> None:
    target = _target(world)
    assert target is not None
    if client.is_open or client.ending is not None:
        ending = client.ending or ending or world.rng.choice(("commit", "abort"))
        world.note(f"trap: {ending} marker of client {client.producer}")
        target.end_transaction(client, ending, world.wall_ms)


def _replaced(world: "World", host: Host) -> Host | None:
    """Kill the holder. Return the next one, which has just begun."""
    if not may_start(world):
        return None
    kill(host)
    forget(world)
    return world.start_host(former_dead=True)


def killed_beside_an_open_transaction(story: "Story") -> Script:
    """The holder is killed before it learns that two of its batches were appended. Records of a transaction are between
    these batches, and after them. The transaction ends before the next holder has read the log, or later."""
    world = story.world
    yield from pause(world)
    target = _target(world)
    requests = (sending(world, 2) or sending(world)) if target is not None else []
    if target is None or not requests:
        return
    client = world.rng.choice(target.clients)
    world.note("trap: the holder is killed beside an open transaction")
    for each in requests:
        land(world, [each])
        _write(world, client)
    later = _replaced(world, requests[0].host)
    if later is None:
        return
    if world.rng.random() < 0.3:
        _end(world, client)
    drive(world, later, lambda: later.lane.phase is Phase.COPYING)
    yield
    if world.rng.random() < 0.5:
        _end(world, client)


def marker_beside_a_resume(story: "Story") -> Script:
    """A transaction ends just after the lane has looked at the end of the log, asked what the broker remembers, or read
    the log: the marker is where the lane expects its next batch."""
    world = story.world
    yield from pause(world)
    target = _target(world)
    requests = sending(world) if target is not None else []
    if target is None or not requests:
        return
    client = world.rng.choice(target.clients)
    _write(world, client)
    land(world, requests)
    host = requests[0].host
    if world.rng.random() < 0.5:
        host.disconnect()
    elif (later := _replaced(world, host)) is not None:
        host = later
    else:
        return
    moment = world.rng.choice(_MOMENTS)

    def is_there() -> bool:
        if moment is None:
            return host.lane.phase is Phase.COPYING and not host.lane.in_flight
        return any(each[0] == "tell" and isinstance(each[1], moment) for each in host.inbox)

    drive(world, host, is_there, without=("arrive",))
    world.note(f"trap: a marker after {moment.__name__ if moment else 'the resume'}")
    _end(world, client)
    world.source.append(world.rng.randint(1, 3), world.record_ms())
    drive(world, host, lambda: copied(host))
    yield


def aborted_around_batches(story: "Story") -> Script:
    """Batches of the lane are between records of a transaction that is aborted. The operator who aborts it may have
    named the producer id of the lane first. Then the lane loses its connection, or its holder is killed."""
    world = story.world
    yield from pause(world)
    target = _target(world)
    host = holder(world) if target is not None else None
    if target is None or host is None:
        return
    client = world.rng.choice(target.clients)
    _write(world, client)
    requests = sending(world, 2) or sending(world)
    if not requests:
        return
    world.note("trap: a transaction around batches of the lane is aborted")
    host = requests[0].host
    for each in requests:
        land(world, [each])
        if world.rng.random() < 0.5:
            _write(world, client)
    if world.rng.random() < 0.5:
        target.write_marker_for(host.lane.producer_id, world.wall_ms)
    _end(world, client, "abort")
    if world.rng.random() < 0.5:
        host.disconnect()
    elif (later := _replaced(world, host)) is not None:
        host = later
    drive(world, host, lambda: copied(host))
    yield


def marker_with_the_producer_id_of_the_lane(story: "Story") -> Script:
    """An operator ends a transaction that does not exist, with the producer id of the lane, between two of its batches.
    Then the lane loses its connection, or its holder is killed."""
    world = story.world
    yield from pause(world)
    target = _target(world)
    requests = (sending(world, 2) or sending(world)) if target is not None else []
    if target is None or not requests:
        return
    host = requests[0].host
    world.note("trap: a marker with the producer id of the lane")
    for each in requests:
        land(world, [each])
        target.write_marker_for(host.lane.producer_id, world.wall_ms)
    if world.rng.random() < 0.5:
        host.disconnect()
    elif (later := _replaced(world, host)) is not None:
        host = later
    drive(world, host, lambda: copied(host))
    yield


def election_with_an_open_transaction(story: "Story") -> Script:
    """A leader is elected while a transaction is open. In some worlds, the election removes the marker, which its
    coordinator takes for written, or records of the transaction."""
    world, rng = story.world, story.rng
    yield from pause(world)
    target = _target(world)
    host = holder(world, acked=1) if target is not None else None
    if target is None or host is None:
        return
    client = rng.choice(target.clients)
    _write(world, client)
    _everywhere(world)
    is_unclean = world.shape.unclean and rng.random() < 0.7
    if is_unclean:
        target.in_sync = False
        target.advance()
    world.source.append(rng.randint(1, 3), world.record_ms())
    lane, acked = host.lane, host.lane.acked
    drive(world, host, lambda: lane.acked > acked, without=("replicate",) if is_unclean else ())
    if rng.random() < 0.5:
        _end(world, client)
        target.write_marker(client, world.wall_ms)
    if not may_elect(world):
        return
    world.note("trap: an election with an open transaction")
    target.elect()
    if rng.random() < 0.6:
        target.learn(world.wall_ms)
    if rng.random() < 0.5:
        forget(world)
    if rng.random() < 0.5 and (later := _replaced(world, host)) is not None:
        host = later
    _write(world, client) if rng.random() < 0.3 else None
    world.source.append(rng.randint(1, 3), world.record_ms())
    drive(world, host, lambda: copied(host))
    yield
    if rng.random() < 0.5:
        _end(world, client)


def difference_beside_an_open_transaction(story: "Story") -> Script:
    """A transaction is open while the lane finds that the target has other records than its map says, and rebuilds the
    map (`views.removed_under_a_dead_holder`)."""
    world = story.world
    target = _target(world)
    if target is not None:
        _write(world, world.rng.choice(target.clients))
        yield from views.removed_under_a_dead_holder(story)


def _write_keys(world: "World", client: Client) -> None:
    """Write a record of each key in a transaction."""
    target = _target(world)
    assert target is not None
    _write(world, client, 1)
    target.write_in_transaction(client, target.keys, world.wall_ms)


_SCENES = ("before", "aborted", "open", "committed", "above", "ended above", "ended above")


def lost_beside_transactions(story: "Story") -> Script:
    """An unclean election removes copied records. Others write the same keys in a transaction, which is aborted, open
    or committed when the lane looks the lost records up. Or it was open before these records were appended. Above an
    open transaction, another client may have written the keys without one, or in one that has ended."""
    world, rng = story.world, story.rng
    yield from pause(world)
    target = _target(world)
    if target is None or not lookups.all_copied(story):
        return
    scene = rng.choice(_SCENES)
    one, other = rng.sample(target.clients, 2) if len(target.clients) > 1 else target.clients * 2
    if scene == "before":
        _write_keys(world, one)
        _everywhere(world)
    end = target.end
    world.source.append(rng.randint(1, 3), world.record_ms())
    if not (host := lookups.all_copied(story)):
        return
    if rng.random() < 0.7:
        lookups.save(world, host)
    world.note(f"trap: records are lost, a transaction with their keys is {scene}")
    lookups.lose(world, end)
    _overwrite(world, scene, one, other)
    _everywhere(world)
    for at in (0, 1):
        target.forget(at, world.wall_ms)
    if rng.random() < 0.5:
        _replaced(world, host)
    lookups.looked_up(story)
    for client in (one, other):
        _end(world, client, "abort" if rng.random() < 0.7 else "commit")
    lookups.all_copied(story)
    if rng.random() < 0.5:
        lookups.clean(world)


def _overwrite(world: "World", scene: str, one: Client, other: Client) -> None:
    """Write the keys of lost records."""
    if scene == "before":
        _end(world, one, "commit" if world.rng.random() < 0.7 else "abort")
        return
    if scene == "ended above":
        _write(world, other, 1)
    _write_keys(world, one)
    if scene == "above":
        world.target.foreign(world.target.keys, world.wall_ms)
    elif scene == "ended above":
        _end(world, one)
    elif scene != "open":
        _end(world, one, "abort" if scene == "aborted" else "commit")


def cleaned_beside_transactions(story: "Story") -> Script:
    """The cleaner removes the lane's last records, because a transaction with newer ones was committed. Records of a
    transaction that was aborted, or is open, follow. The next holder does not know whether its former one sent what it
    has not copied yet."""
    world, rng = story.world, story.rng
    yield from pause(world)
    target = _target(world)
    if target is None or not lookups.all_copied(story) or not may_start(world):
        return
    client = rng.choice(target.clients)
    world.source.append(rng.randint(1, 3), world.record_ms())
    if not (host := lookups.all_copied(story)):
        return
    if rng.random() < 0.3:
        lookups.save(world, host)
    world.note("trap: the last records are cleaned beside transactions")
    kill(host)
    world.source.append(rng.randint(2, 3), world.record_ms())
    is_committed = rng.random() < 0.5
    _write_keys(world, client)
    _end(world, client, "commit" if is_committed else "abort")
    lookups.clean(world)
    if rng.random() < 0.5:
        _write_keys(world, client)
    world.start_host(former_dead=True)
    lookups.looked_up(story)
    _end(world, client)
    lookups.all_copied(story)
