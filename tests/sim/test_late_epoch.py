"""A story in which a batch with records of a new epoch of the source is appended later than anyone waits for it."""

import pytest

from mirrord.replication.lane.phases import Phase
from tests.sim import late_bytes
from tests.sim.host import Shape
from tests.sim.scheduler import Story
from tests.sim.themes import OLD_MS
from tests.sim.traps.driving import drive, on_the_way
from tests.sim.traps.in_between import copied
from tests.sim.traps.moments import forget, kill

QUIET = Shape(
    record_age_ms=OLD_MS,
    forgetting=True,
    truncation=True,
    kills=False,
    pauses=False,
    ledger_faults=False,
    refusals=False,
)


@pytest.mark.parametrize(("number", "place"), [(0, (5, 3)), (1, (8, 6)), (2, (10, 8))])
def test_a_batch_of_a_new_epoch_that_comes_late_is_not_taken_for_a_truncated_one(
    number: int, place: tuple[int, int]
) -> None:
    """The lane has lost its connection, and has resumed. It is killed before it reads on, and its saved resume position
    is older than all that. The next holder finds one of the batches, and must not report that the source has lost these
    records. The source has elected a leader before the last of the batches as well."""
    story = Story(0, QUIET)
    world, source = story.world, story.world.source
    source.append(3, world.record_ms())
    former = world.start_host(former_dead=False)
    drive(world, former, lambda: copied(former) and former.lane.acked == 3)
    world.saves = 0.0
    source.append(2, world.record_ms())
    drive(world, former, lambda: copied(former) and former.lane.acked == 5)
    source.truncate(1)
    for count in (3, 2):
        source.append(count, world.record_ms())
    source.elect()
    source.append(1, world.record_ms())
    drive(world, former, lambda: world.truth.lanes and len(on_the_way(world, former)) == 3, without=("arrive",))
    late = on_the_way(world, former)[number]
    assert (late.batch.first, late.batch.offset) == place
    world.wire.clear()
    former.disconnect()
    drive(world, former, lambda: former.lane.phase is Phase.COPYING)
    former.inbox.clear()  # the source is slow
    drive(world, former, lambda: not former.lane.intents, waits=False)
    forget(world)
    late_bytes.land(world, late)
    kill(former)
    world.start_host(former_dead=True)
    story.settle()
