"""An operator seeks ahead, and the source then loses the skipped records and has others at their offsets."""

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.replication.lane.phases import Phase
from tests.sim import truth
from tests.sim.host import LANE, Host, Shape
from tests.sim.traps.driving import copy_all, drive, save_position
from tests.sim.traps.moments import kill
from tests.sim.world import World

SHAPE = Shape(truncation=True, seeks=True)
WRITTEN, SKIPPED_UNTIL = 10, 20


def _sought(seed: int, *, elected: bool = False) -> tuple[World, Host]:
    """Source offsets 0 to 9 are copied. Offsets 10 to 19, in batches of two, are skipped, and nothing follows yet. If
    `elected` is set, another leader has written the skipped records."""
    world = World(seed, SHAPE)
    for _ in range(5):
        world.source.append(2, world.record_ms())
    host = world.start_host(former_dead=False)
    assert copy_all(world) is host
    while world.target.replicate():
        pass
    save_position(host)
    kill(host)
    if elected:
        world.source.elect()
    for _ in range(5):
        world.source.append(2, world.record_ms())
    order = LaneSought(LANE, WRITTEN, SKIPPED_UNTIL, 0, Origin("ada@host", "broken", 0))
    world.write((order,), world.truth.lease_epoch)
    host = world.start_host(former_dead=True)
    assert copy_all(world) is host
    assert host.lane.position == SKIPPED_UNTIL
    return world, host


def _sought_first(seed: int) -> tuple[World, Host]:
    """Nothing is copied. Offsets 0 to 9, in batches of two, are skipped, and nothing follows yet."""
    world = World(seed, SHAPE)
    host = world.start_host(former_dead=False)
    assert copy_all(world) is host
    kill(host)
    for _ in range(5):
        world.source.append(2, world.record_ms())
    world.write((LaneSought(LANE, 0, 10, 0, Origin("ada@host", "broken", 0)),), world.truth.lease_epoch)
    host = world.start_host(former_dead=True)
    assert copy_all(world) is host
    assert host.lane.position == 10
    return world, host


def _missing(world: World) -> list[int]:
    """Source offsets of the records that the target lacks."""
    leader = world.target.brokers[world.target.leader]
    there = {number for stored in leader.history for number in stored.numbers}
    return [world.source.offset_of[number] for number in world.source.wanted() if number not in there]


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("lost", [1, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_records_that_replaced_skipped_ones_are_copied(seed: int, lost: int, dies: bool) -> None:
    """LOSS. The lane asked the source only about the last copied record, which the source still had."""
    world, host = _sought(seed)
    source = world.source
    if dies:
        kill(host)
    source.truncate(lost)
    begin = source.end
    while source.end <= SKIPPED_UNTIL + 3:
        source.append(2, world.record_ms())
    if dies:
        world.start_host(former_dead=True)
    assert copy_all(world)
    truth.check(world, final=True)
    assert _missing(world) == list(range(WRITTEN, begin))


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_skipped_records_stay_skipped_after_an_election(seed: int, dies: bool) -> None:
    """The source has lost nothing. A leader has followed that has all records."""
    world, host = _sought(seed)
    if dies:
        kill(host)
    world.source.elect()
    for _ in range(3):
        world.source.append(2, world.record_ms())
    if dies:
        world.start_host(former_dead=True)
    assert copy_all(world)
    truth.check(world, final=True)
    assert _missing(world) == list(range(WRITTEN, SKIPPED_UNTIL))


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_records_that_replaced_the_first_ones_are_copied(seed: int, dies: bool) -> None:
    """LOSS. The next holder asked the source about nothing, because nothing had been copied."""
    world, host = _sought_first(seed)
    if dies:
        kill(host)
    world.source.truncate(3)
    while world.source.end <= 13:
        world.source.append(2, world.record_ms())
    if dies:
        world.start_host(former_dead=True)
    assert copy_all(world)
    truth.check(world, final=True)
    assert _missing(world) == list(range(4))


@pytest.mark.parametrize("seed", range(3))
def test_a_seek_after_all_copied_records_were_lost_is_asked_about(seed: int) -> None:
    """LOSS. In the round of the seek, there was no copied record to ask about, so the ledger lacked the epoch."""
    world, host = _sought_first(seed)
    world.source.append(2, world.record_ms())
    assert copy_all(world) is host
    world.source.truncate(6)
    for _ in range(8):
        world.source.append(2, world.record_ms())
    host.lane.on_loss = "halt"
    drive(world, host, lambda: host.lane.phase is Phase.HALTED)
    assert host.lane.phase is Phase.HALTED
    world.write((LaneSought(LANE, 0, 16, 0, Origin("ada@host", "broken", 0), 0),), world.truth.lease_epoch)
    drive(world, host, lambda: host.lane.phase is Phase.COPYING and host.lane.position == 16)
    assert host.lane.position == 16
    host.lane.on_loss = "continue"
    world.source.truncate(3)
    while world.source.end <= 19:
        world.source.append(2, world.record_ms())
    assert copy_all(world)
    assert _missing(world) == list(range(10))


@pytest.mark.parametrize("seed", range(3))
def test_records_of_an_earlier_epoch_that_replaced_skipped_ones_are_copied(seed: int) -> None:
    """LOSS. The new leader has records of an earlier epoch than the skipped ones, at the same offsets. The lane goes
    back only to the end of these."""
    world, _ = _sought(seed, elected=True)
    world.source.branch(4, world.record_ms())
    begin = world.source.end
    while world.source.end <= SKIPPED_UNTIL + 3:
        world.source.append(2, world.record_ms())
    assert copy_all(world)
    assert (_missing(world), begin) == ([], WRITTEN + 4)
