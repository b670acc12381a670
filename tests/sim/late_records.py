"""Records that came late, and what the ledger names instead of them."""

from collections.abc import Set as AbstractSet

from mirrord.replication.lane.source.recorded_epochs import is_truncated
from tests.sim.checks import once_a_check
from tests.sim.host import LANE
from tests.sim.unknown_records import is_left_open
from tests.sim.world import World


@once_a_check
def stand(world: World) -> list[tuple[int, int]]:
    """The records in the log of the target's leader, and those that retention has deleted from it: (ordinal, number).
    The number is 0 if the cleaner has removed the record."""
    log = world.target.brokers[world.target.leader].history
    return [each for stored in log for each in enumerate(stored.numbers, stored.ordinal)]


def named_anew(world: World) -> set[int]:
    """Numbers of records that came late and for which the map may name others for the moment: a policy may have
    answered differently, or the source lost them."""
    shape = world.shape
    return world.late if shape.policies or shape.retention or shape.truncation else set()


@once_a_check
def not_looked_for(world: World) -> dict[int, int]:
    """Numbers of records that came late and that the source has deleted → what the ledger names instead. What a policy
    has changed is not looked for in the source."""
    late = world.late & world.source.expired if world.shape.policies else set[int]()
    runs = world.truth.lanes[LANE].source_runs
    there = stand(world) if late else ()
    return {number: runs.offset_of(ordinal) or 0 for ordinal, number in there if number in late}


@once_a_check
def taken_by_late_bytes(world: World) -> AbstractSet[int]:
    """Source offsets whose ordinals belong to other records, which came so late that no rule can keep them out. A
    comparison does not show this, because a policy may change the same record in different ways."""
    if not world.shape.policies or not world.excused:
        return frozenset()
    runs = world.truth.lanes[LANE].source_runs
    return {runs.offset_of(ordinal) or 0 for ordinal, number in stand(world) if number in world.excused}


@once_a_check
def lost_as_well(world: World) -> AbstractSet[int]:
    """Numbers of records that came late and that the source has lost, like those that the ledger names instead."""
    record, late = world.truth.lanes[LANE], world.late & world.source.cut
    if not record.truncations or not late:
        return frozenset()
    return {
        number
        for ordinal, number in stand(world)
        if number in late and is_truncated(record, ordinal, record.source_runs.offset_of(ordinal) or 0)
    }


@once_a_check
def left_open(world: World) -> AbstractSet[int]:
    """Numbers of records at ordinals whose record is unknown according to the ledger."""
    if not world.truth.lanes[LANE].holes:
        return frozenset()
    return {number for ordinal, number in stand(world) if number > 0 and is_left_open(world, ordinal, number)}


def late_left_open(world: World) -> AbstractSet[int]:
    """Those of them that came late."""
    return left_open(world) & (world.late | world.excused)
