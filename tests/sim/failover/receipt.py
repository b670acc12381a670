"""What must be true after a failover: its receipt compared with both logs, and the positions of consumer groups."""

from collections import Counter
from typing import TYPE_CHECKING

from mirrord.ledger.facts.recovery import LostRange, Recovery
from mirrord.ledger.folding.failovers import in_progress
from mirrord.replication.lane.phases import Phase
from tests.sim.at_end import never_arrived
from tests.sim.failover.positions import check_positions
from tests.sim.failover.setting import Ending, Failover
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.world import World


def check_failover(world: "World", failover: Failover) -> None:
    """Check what a story has come to in the end."""
    if failover.ending is None:
        return
    (recovery,) = (each for each in world.truth.recoveries if each.ended)
    if in_progress(world.truth.recoveries) is not None or recovery.number != failover.ending.number:
        raise Violation("the failover has ended the copying, and is not complete")
    for host in world.hosts.living:
        is_up_to_date = host.state.next_offset == len(world.ledger)
        if is_up_to_date and host.lane.phase is Phase.COPYING:
            raise Violation(f"{host.name} still copies, although it has read that the copying has ended")
    if not failover.misled:
        _check_receipt(world, failover, failover.ending, recovery)
        check_positions(world, failover, recovery)


def _check_receipt(world: "World", failover: Failover, ending: Ending, recovery: Recovery) -> None:
    history = world.target.brokers[world.target.leader].history
    arrived = Counter(number for stored in history for number in stored.numbers) - failover.overdue
    then = {number for number in arrived if number in world.source.offset_of}
    lacking = _lacking(world, then, ending)
    _check_overdue(world, failover, then, recovery)
    if recovery.mode == "planned":
        found = {world.source.offset_of[number] for number in ending.found}
        if recovery.lost or lacking & found:
            raise Violation(f"a planned failover loses {recovery.lost or sorted(lacking & found)}")
    if not recovery.lost:
        if below := sorted(offset for offset in lacking if offset < ending.known_end):
            raise Violation(f"source offsets {below} are lost, and the receipt says that nothing is")
        return
    (lost,) = recovery.lost
    expected = max(ending.known_end, lost.start) if ending.known_end >= 0 else -1
    if lost.end != expected:
        raise Violation(f"the source was known to end at {ending.known_end}, the receipt says {lost.end}")
    missing = {offset for start, end in lost.missing for offset in range(start, end)}
    if below := sorted(offset for offset in lacking if offset < lost.start and offset not in missing):
        raise Violation(f"source offsets {below} are lost, and the receipt does not say so: {lost}")
    _check_exact(world, lost, missing, then)


def _lacking(world: "World", then: set[int], ending: Ending) -> set[int]:
    """Return the source offsets of the records that the target lacks without any reason, and that the source had when
    the copying ended. An unclean election of the target may have removed records that had been acknowledged."""
    source = world.source
    excused = ending.wanted & world.target.lost.keys()
    lost_by_target = {source.offset_of[number] for number in excused - then}
    once = min(source.parts, default=source.end)
    lacking = {offset for offset in never_arrived(world, then) if source.at(offset) in ending.wanted}
    return {offset for offset in lacking - lost_by_target if offset < once}


def _check_exact(world: "World", lost: LostRange, missing: set[int], then: set[int]) -> None:
    """Check that the target has no record that is lost according to the receipt, unless the receipt says why. Nothing
    shows that an unclean election has moved records to offsets below the position of the lane, or that records came
    later than anyone waits for them."""
    source = world.source
    once = min(source.parts, default=source.end)
    sure = then - world.excused - world.late
    there = {offset for number in sure if (offset := source.offset_of[number]) < once}
    wrong = sorted(offset for offset in there if offset >= lost.start or offset in missing)
    if wrong and not lost.remark and not world.target.lost:
        raise Violation(f"source offsets {wrong} are in the target, and the receipt says that they are lost: {lost}")


def _check_overdue(world: "World", failover: Failover, then: set[int], recovery: Recovery) -> None:
    """Check that what was appended later than anyone waits for it is lost according to the receipt, or was there
    before."""
    offsets = {world.source.offset_of[number] for number in failover.overdue.keys() - then}
    named = {offset for each in recovery.lost for start, end in each.missing for offset in range(start, end)}
    start = min((each.start for each in recovery.lost), default=1 << 62)
    if late := sorted(offset for offset in offsets if offset < start and offset not in named):
        raise Violation(f"source offsets {late} have come after the end, and the receipt does not name them")
