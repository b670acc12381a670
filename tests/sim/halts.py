"""Halts for which there is no reason, whether or not the next holder continues."""

import re

from mirrord.ledger.facts.core import LaneHalted
from mirrord.ledger.state import LaneState
from tests.sim.target import cleaned_from
from tests.sim.world import World

_LACKS = re.compile(r"lacks the records of source offsets \[(\d+), (\d+)\), and another client")

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
    return halt.reason == "unexplained" and "cannot be rebuilt" in halt.line and not is_forced(world, halt.line)


def is_forced(world: World, line: str) -> bool:
    """Whether a lane may say that its map cannot be rebuilt. This is so in three cases:

    - The target lacks a record, and another client has written its key. If the record was in the log, and the cleaner
      or an election has removed it, the other client's record is newer. If it never was, the other one is older.
    - The cleaner or an election has removed records since they were compared, and a filter excludes some of the records
      of the source, so it is not known which ones were removed.
    - The source no longer has all records of the target, and a filter excludes others, so nothing shows which ones the
      target has.
    """
    source, target, shape = world.source, world.target, world.shape
    if found := _LACKS.search(line):
        return target.foreign_numbers > 0 and _may_have_had(world, range(*map(int, found.groups())))
    if "have since been removed" in line:
        return shape.policies and any(number > 0 for number in (*target.cleaned, *target.lost))
    is_gone = bool(source.expired or source.cut or source.cleaned)
    return is_gone and shape.policies and "a filter excludes" in line


def _may_have_had(world: World, offsets: range) -> bool:
    """Whether the target may have had records that it lacks, for all that anyone can know. Its cleaner has removed
    other records of the lane, an election has brought back batches whose ordinals were used again, or an election has
    removed these records, and no lookup has left them out since."""
    numbers = {world.source.at(offset) for offset in offsets}
    lost = numbers & world.target.lost.keys() - world.known.left_out.keys()
    is_cleaned = any(number > 0 for number in cleaned_from(world.target.brokers[world.target.leader]))
    return is_cleaned or bool(lost) or world.known.is_behind_returned


def unrecorded_difference(record: LaneState) -> bool:
    """Return whether a lane has halted because target and source differ, and the ledger does not contain the
    difference. Then neither this holder nor a later one rebuilds the map."""
    is_recorded = record.last_check is not None and record.last_check.outcome == "different"
    return record.halted is not None and "target and source differ" in record.halted.line and not is_recorded
