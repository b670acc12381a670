"""What operators do in the simulation."""

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.quarantine import QuarantineReplayed, QuarantineSkipped
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.quarantine import waiting
from tests.sim.host import LANE
from tests.sim.world import World


def decide_on_parked(world: World) -> bool:
    """Skip, or retry, the record the lane waits at; False if it waits at none."""
    record = world.truth.lanes.get(LANE)
    waits = waiting(record.quarantine) if record is not None else None
    if waits is None:
        return False
    if world.rng.random() < 0.3:
        # An operator alters the configs of the target topic so that it accepts the records: no command is needed.
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


def seek(world: World, *, to_end: bool = False) -> None:
    """Command the lane to continue further ahead than its known position."""
    record, known = world.truth.lanes.get(LANE), world.progress
    if record is None or not record.source_runs or known is None:
        return
    start = max(known.source_offset, world.source.start)
    if start >= world.source.end:
        return
    end = world.source.end if to_end else world.rng.randint(start + 1, min(world.source.end, start + 6))
    fact = LaneSought(LANE, known.source_offset, end, world.source.start, Origin("ada@host", "", 0))
    world.write((fact,), 1)
    world.note(f"operator {fact}")


def orders(world: World) -> list[LaneSought]:
    """All commands that were given."""
    return [fact for entry in world.ledger for fact in entry.facts if isinstance(fact, LaneSought)]
