"""Stories of a source that loses copied records with lower ordinals than those of a rebuilt map."""

from tests.sim.host import LANE, Shape
from tests.sim.scheduler import Story
from tests.sim.traps.driving import copy_all, drive
from tests.sim.traps.moments import kill
from tests.sim.world import World

QUIET = Shape(
    poison=True,
    on_reject="skip",
    truncation=True,
    elections=False,
    kills=False,
    pauses=False,
    ledger_faults=False,
    refusals=False,
)


def _write(world: World, *, refused: bool = False) -> None:
    """The source has another record, which the target refuses or not."""
    world.source.append(1, world.record_ms())
    if refused:
        world.target.poison.add(world.source.number)


def _play(seed: int) -> bool:
    """The target refuses one record of each of the two epochs of the source. The last record follows the second one,
    so that its ordinal is in doubt, and no position is saved after it. The source then has another branch of its
    history. The next holder rebuilds the map from this ordinal on, and ends. Return whether the last holder has begun
    after that."""
    story = Story(seed, QUIET)
    world, source = story.world, story.world.source
    world.saves, world.target.largest = 1.0, 1 << 62  # the target refuses no others
    for at in range(4):
        _write(world, refused=at == 1)
    host = world.start_host(former_dead=False)
    if not copy_all(world):
        return False
    source.elect()
    for at in range(5):
        _write(world, refused=at == 4)
    if not copy_all(world):
        return False
    world.saves = 0.0
    _write(world)
    drive(world, host, lambda: host.lane.acked > 7, without=("append",))
    kill(host)
    source.branch(6, world.record_ms())
    _write(world)
    former = world.start_host(former_dead=True)
    drive(world, former, lambda: world.rebuilds > 0)
    kill(former)
    world.start_host(former_dead=True)
    story.settle()
    return world.rebuilds > 0 and world.truth.lanes[LANE].grant > former.lane.grant


def test_records_that_replaced_lost_ones_below_a_rebuilt_map_are_copied() -> None:
    """LOSS. The ledger has the epoch of the source's present records for the ordinal after the map. A fetch with this
    epoch did not show that the source had lost records of a later one."""
    assert sum(_play(seed) for seed in range(10)) > 5
