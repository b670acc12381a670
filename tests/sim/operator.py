"""What people do in the simulation."""

from mirrord.model.fact import Origin
from mirrord.model.quarantine import QuarantineReplayed, QuarantineSkipped, waiting
from tests.sim.host import LANE
from tests.sim.world import World


def decide_on_parked(world: World) -> bool:
    """Leave out, or let be tried again, what the lane waits at; False when it waits at nothing."""
    record = world.truth.lanes.get(LANE)
    waits = waiting(record.quarantine) if record is not None else None
    if waits is None:
        return False
    where = (LANE, waits.start, waits.end, Origin("ada@host", "", 0))
    refused = world.source.at(waits.start) in world.target.poison
    again = not refused or world.rng.random() < 0.2
    fact = QuarantineReplayed(*where) if again else QuarantineSkipped(*where)
    world.write((fact,), 1)
    world.note(f"operator {fact}")
    return True
