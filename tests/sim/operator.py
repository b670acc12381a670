"""What people do in the simulation."""

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.quarantine import QuarantineReplayed, QuarantineSkipped, waiting
from mirrord.ledger.facts.seeks import LaneSought
from tests.sim.host import LANE
from tests.sim.world import World


def decide_on_parked(world: World) -> bool:
    """Leave out, or let be tried again, what the lane waits at; False when it waits at nothing."""
    record = world.truth.lanes.get(LANE)
    waits = waiting(record.quarantine) if record is not None else None
    if waits is None:
        return False
    if world.rng.random() < 0.3:
        # Somebody alters the settings of the copy, so that it takes the records: no order is needed.
        world.target.former_poison |= world.target.poison
        world.target.poison.clear()
        world.target.settings += 1
        world.note("operator alters the settings")
        return True
    where = (LANE, waits.start, waits.end, Origin("ada@host", "", 0))
    refused = world.source.at(waits.start) in world.target.poison
    again = not refused or world.rng.random() < 0.2
    fact = QuarantineReplayed(*where) if again else QuarantineSkipped(*where)
    world.write((fact,), 1)
    world.note(f"operator {fact}")
    return True


def seek(world: World) -> None:
    """Order the lane further ahead, from where it is known to stand."""
    record, known = world.truth.lanes.get(LANE), world.progress
    if record is None or not record.source_runs or known is None:
        return
    start = max(known.source_offset, world.source.start)
    if start >= world.source.end:
        return
    end = world.rng.randint(start + 1, min(world.source.end, start + 6))
    fact = LaneSought(LANE, known.source_offset, end, world.source.start, Origin("ada@host", "", 0))
    world.write((fact,), 1)
    world.note(f"operator {fact}")


def orders(world: World) -> list[LaneSought]:
    """All that were given."""
    return [fact for entry in world.ledger for fact in entry.facts if isinstance(fact, LaneSought)]
