"""Two replicas of the target lead in turn. While one of them leads, the other one is down, so that its log stays as it
is and may come back later."""

from dataclasses import replace

import pytest

from mirrord.replication.lane.phases import Phase
from tests.sim import truth
from tests.sim.host import Host, Shape
from tests.sim.themes import OLD_MS
from tests.sim.traps.driving import drive, on_the_way, save_position
from tests.sim.traps.elections import other_log
from tests.sim.traps.moments import kill
from tests.sim.world import World

SHAPE = Shape(unclean=True, retention=True, truncation=True, forgetting=True, record_age_ms=OLD_MS)


def swap(world: World, host: Host, *, dies: bool) -> Host:
    """The leader goes down, and the other replica leads with its own log, in an unclean election. Return the host,
    or the next one if it dies as well."""
    target = world.target
    other_log(world)
    target.forget(target.leader, world.wall_ms)
    if not dies:
        return host
    kill(host)
    world.wire.clear()
    return world.start_host(former_dead=True)


def copy(world: World, host: Host, count: int, *, follows: bool = False) -> None:
    """The source has so many new records, and the host copies everything. The position after that is saved."""
    for _ in range(count):
        world.source.append(1, world.record_ms())
    lane, target = host.lane, world.target

    def is_done() -> bool:
        is_idle = not (lane.in_flight or lane.ready or lane.intents or lane.notes)
        is_new = lane.log.end_epoch == target.epoch
        return lane.phase is Phase.COPYING and is_idle and is_new and lane.position >= world.source.end

    if lane.phase is Phase.COPYING and lane.log.end_epoch != target.epoch:
        world.do(("moved", host))
    assert drive(world, host, is_done, without=() if follows else ("replicate",)), lane.halt.line
    save_position(host)


def begun(seed: int) -> tuple[World, Host]:
    """Both replicas have ordinals 0 to 4. Only the leader has ordinals 5 to 9."""
    world = World(seed, SHAPE)
    host = world.start_host(former_dead=False)
    copy(world, host, 5, follows=True)
    while world.target.replicate():
        pass
    world.target.in_sync = False
    copy(world, host, 5)
    return world, host


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_all_records_of_a_log_that_comes_back_are_compared(seed: int, dies: bool) -> None:
    """LIE. The ledger assigned other records to ordinals 5 to 9 after the first log was gone. When it came back, the
    lane read only the last batch before its position, and rebuilt the map from there on."""
    world, host = begun(seed)
    world.source.expire(7)
    host = swap(world, host, dies=dies)
    copy(world, host, 2)
    host = swap(world, host, dies=dies)
    copy(world, host, 0)
    truth.check(world)
    assert world.rebuilds


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("kept", [0, 2])
@pytest.mark.parametrize("seed", range(4))
def test_a_log_that_a_rebuild_has_not_read_is_compared(seed: int, kept: int, dies: bool) -> None:
    """LIE. The map was rebuilt from the first log. When the second one came back, the lane took its batches for the
    rebuilt records, because the rebuild had been after the reassignment."""
    world, host = begun(seed)
    world.source.expire(7)
    host = swap(world, host, dies=dies)
    copy(world, host, 2)
    host = swap(world, host, dies=dies)
    copy(world, host, 1)
    truth.check(world)
    world.source.expire(len(world.source.log) - kept)
    host = swap(world, host, dies=dies)
    copy(world, host, 1)
    truth.check(world)


@pytest.mark.parametrize("shape", [SHAPE, replace(SHAPE, policies=True, steady=True), replace(SHAPE, policies=True)])
@pytest.mark.parametrize("sender_dies", [False, True])
@pytest.mark.parametrize(("dies", "saves"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("seed", range(4))
def test_batches_that_were_never_acknowledged_come_back(
    seed: int, dies: bool, saves: bool, sender_dies: bool, shape: Shape
) -> None:
    """LOSS. A deposed leader appended batches that the lane then counted as refused. Others got their ordinals, and
    were acknowledged by the next leader. When the first log came back, the lane took its batches for those.

    NEEDLESS HALT. If the lane had not saved its position since, the next holder did not know that more than one record
    had been sent under these ordinals, and looked for the place of a record that the source had lost. If the records
    go through a filter, no place was looked for at all."""
    world = World(seed, shape)
    source, target = world.source, world.target
    host = world.start_host(former_dead=False)
    copy(world, host, 5, follows=True)
    while target.replicate():
        pass
    target.in_sync = False
    save_position(host)
    for _ in range(4):
        source.append(1, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host, 1), without=("arrive",))
    assert requests or shape.policies
    host = swap(world, host, dies=sender_dies)
    for each in requests or ():
        world.wire += [] if each in world.wire else [each]
        world.do(("arrive", each))
    source.truncate(4)
    saved = world.progress
    copy(world, host, 6)
    world.progress = world.progress if saves else saved
    host = swap(world, host, dies=dies)
    copy(world, host, 0)
    truth.check(world, final=True)


@pytest.mark.parametrize("seed", range(8))
def test_batches_that_an_earlier_holder_sent_come_back(seed: int) -> None:
    """LOSS. As above, but the holder that sent the batches saves its position in the new leader epoch, and ends before
    it assigns their ordinals again. The next holder cannot know of these batches, so the ledger does not name them."""
    world = World(seed, SHAPE)
    source, target = world.source, world.target
    host = world.start_host(former_dead=False)
    copy(world, host, 5, follows=True)
    while target.replicate():
        pass
    target.in_sync = False
    save_position(host)
    for _ in range(4):
        source.append(1, world.record_ms())
    requests = drive(world, host, lambda: on_the_way(world, host, 1), without=("arrive",))
    assert requests
    swap(world, host, dies=False)
    for each in requests:
        world.do(("arrive", each))
    source.truncate(4)
    world.do(("moved", host))

    def has_resumed() -> bool:
        return host.lane.phase is Phase.COPYING and host.lane.log.end_epoch == target.epoch

    assert drive(world, host, has_resumed, without=("replicate", "fetch"))
    save_position(host)
    kill(host)
    world.wire.clear()
    host = world.start_host(former_dead=True)
    copy(world, host, 6)
    host = swap(world, host, dies=True)
    copy(world, host, 0)
    truth.check(world, final=True)
