"""Source offsets whose records are not copied, for reasons that the ledger or a lane gives."""

from collections.abc import Set as AbstractSet

from mirrord.ledger.facts.core import Reason
from mirrord.ledger.facts.seeks import SeekDone
from tests.sim.checks import once_a_check
from tests.sim.host import LANE
from tests.sim.world import World


@once_a_check
def recorded_as(world: World, reason: Reason) -> AbstractSet[int]:
    """Source offsets for which this is the ledger's last verdict."""
    return {offset for gap in world.gaps if gap.reason == reason for offset in range(gap.start, gap.end)}


def filtered(world: World) -> AbstractSet[int]:
    """Source offsets that, according to the ledger, a filter has skipped."""
    return recorded_as(world, "filtered") if world.shape.policies else frozenset()


def skipped(world: World) -> AbstractSet[int]:
    """Source offsets that, according to the ledger, were skipped by a command to continue further ahead."""
    return recorded_as(world, "skipped") if world.shape.seeks else frozenset()


def skipped_and_there(world: World) -> AbstractSet[int]:
    """Those of the source offsets that were skipped by a command at which the source still has what it had then. If it
    has another record there since an unclean election, that record must be copied."""
    offsets = skipped(world)
    if not offsets:
        return offsets
    source, done = world.source, [fact for entry in world.ledger for fact in entry.facts if isinstance(fact, SeekDone)]
    then = {
        number
        for fact in done
        for number in source.shown.get(fact.epoch, source.offset_of)
        if fact.start <= source.offset_of.get(number, -1) < fact.end
    }
    return {offset for offset in offsets if (number := source.at(offset)) is None or number in then}


def rejected(world: World, arrived: AbstractSet[int]) -> AbstractSet[int]:
    """Source offsets that were skipped because the target refuses their records. An offset that an unclean election
    removed belongs to another record by now, and that may have arrived."""
    if not world.rejected:
        return frozenset()
    offset_of = world.source.offset_of
    removed = world.rejected.intersection(offset_of[number] for number in world.source.cut)
    if not removed:
        return world.rejected
    return world.rejected - (removed & {offset_of[number] for number in arrived - world.source.cut if number > 0})


@once_a_check
def passed_over(world: World) -> AbstractSet[int]:
    """Source offsets that a filter has skipped after the last copied record, or that are skipped because the target
    refuses their records. They need not be recorded yet.

    The former holder of the lane may have got another answer, which bound nothing.
    """
    record = world.truth.lanes.get(LANE)
    grant = record.grant if record is not None else 0
    live = [host.lane for host in world.hosts if host.alive and host.lane.grant == grant]
    verdicts = [verdict for lane in live for verdict in lane.skipped if verdict.reason in {"filtered", "rejected"}]
    return {offset for verdict in verdicts for offset in range(verdict.start, verdict.end)}
