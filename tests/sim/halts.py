"""Halts for which there is no reason, whether or not the next holder continues."""

from mirrord.ledger.facts.core import LaneHalted
from mirrord.ledger.facts.seeks import SeekDone
from mirrord.ledger.state import LaneState
from tests.sim.world import World

_NEWEST = 8
"""At most so many entries are added to the ledger between two checks."""


def needless_halt(world: World, *, final: bool) -> str:
    """What is wrong with the newest halts, or with all of them at the end; empty if nothing is."""
    entries = world.ledger if final else world.ledger[-_NEWEST:]
    halts = (fact for entry in entries for fact in entry.facts if isinstance(fact, LaneHalted))
    return next((f"halted without need: {each.line}" for each in halts if _is_needless(world, each)), "")


def _is_needless(world: World, halt: LaneHalted) -> bool:
    if halt.reason == "truncated":
        if any(host.lane.on_loss == "halt" for host in world.hosts):
            return not any(part <= halt.start for part in world.source.parts)
        # After a leap over a refused record, too, it does not know the epoch (tests.sim.test_lost_after_a_leap).
        return not world.shape.poison and not sought_over_a_loss(world) and not may_be_unwritten(world)
    # The records of the ordinals are in one of the logs, in worlds in which neither log forgets any.
    shape = world.shape
    forgets = world.source.expired or world.excused or world.late or shape.cleans or shape.policies or shape.expires
    return halt.reason == "unexplained" and "cannot be rebuilt" in halt.line and not forgets


def sought_over_a_loss(world: World) -> bool:
    """Whether a command jumped over what the source then lost: the lane has no epoch that shows where its history
    diverged. A loss of the source ends the command in the fold, so the commands are taken from the entries."""
    ends = [fact.end for entry in world.ledger for fact in entry.facts if isinstance(fact, SeekDone)]
    return any(part < end for end in ends for part in world.source.parts)


def may_be_unwritten(world: World) -> bool:
    """Whether late bytes may have the ordinals that the ledger gives to records that the source does not have yet. The
    map is not rebuilt from them if a policy may change records, so the lane waits."""
    return world.shape.policies and bool(world.excused or world.late)


def unrecorded_difference(record: LaneState) -> bool:
    """Return whether a lane has halted because target and source differ, and the ledger does not contain the
    difference. Then neither this holder nor a later one rebuilds the map."""
    is_recorded = record.last_check is not None and record.last_check.outcome == "different"
    return record.halted is not None and "target and source differ" in record.halted.line and not is_recorded
