"""Halts for which there is no reason, whether or not the next holder continues."""

from mirrord.ledger.facts.core import LaneHalted
from mirrord.ledger.state import LaneState
from tests.sim.world import World

_NEWEST = 8
"""At most so many entries are added to the ledger between two checks."""


def needless_halt(world: World, *, final: bool) -> str:
    """What is wrong with the newest halts, or with all of them at the end; empty if nothing is."""
    first = 0 if final else len(world.ledger) - _NEWEST
    entries = (world.ledger[at] for at in world.checks.halts if at >= first)
    halts = (fact for entry in entries for fact in entry.facts if isinstance(fact, LaneHalted))
    return next((f"halted without need: {each.line}" for each in halts if _is_needless(world, each)), "")


def _is_needless(world: World, halt: LaneHalted) -> bool:
    if halt.reason in {"truncated", "expired"}:
        if any(host.lane.on_loss == "halt" for host in world.hosts):
            return halt.reason == "truncated" and not any(part <= halt.start for part in world.source.parts)
        return True
    # The records of the ordinals are in one of the logs, in worlds in which neither log forgets any.
    shape = world.shape
    forgets = world.source.expired or world.excused or world.late or shape.cleans or shape.expires
    return halt.reason == "unexplained" and "cannot be rebuilt" in halt.line and not forgets


def unrecorded_difference(record: LaneState) -> bool:
    """Return whether a lane has halted because target and source differ, and the ledger does not contain the
    difference. Then neither this holder nor a later one rebuilds the map."""
    is_recorded = record.last_check is not None and record.last_check.outcome == "different"
    return record.halted is not None and "target and source differ" in record.halted.line and not is_recorded
