"""What must be true at the end of a story, once all faults are over."""

from collections import Counter

from mirrord.ledger.facts.core import SourceRun, VerdictGiven
from mirrord.ledger.seeks import pending
from mirrord.ledger.state import LaneState
from tests.sim.after_retention import is_stuck, lost_without_trace, was_cleaned, were_unknown
from tests.sim.compacted_copy import came_back, is_older_than_copied
from tests.sim.halts import is_forced, unrecorded_difference
from tests.sim.host import LANE
from tests.sim.late_records import (
    late_left_open,
    left_open,
    lost_as_well,
    named_anew,
    not_looked_for,
    taken_by_late_bytes,
)
from tests.sim.left_out import filtered, passed_over, recorded_as, skipped, skipped_and_there
from tests.sim.newer_records import has_newer, is_superseded, taken
from tests.sim.operator import orders
from tests.sim.order_of_keys import check_newest_of_keys
from tests.sim.partition import false_verdicts, unaccounted
from tests.sim.translations import check_target_map, check_translations
from tests.sim.unknown_records import are_apart, is_hidden_copy, left_no_trace, superseded_without_trace
from tests.sim.untraced import taken_offsets
from tests.sim.violation import Violation
from tests.sim.world import World


def check_complete(world: World, numbers: list[int]) -> None:  # noqa: C901 -- one check after the other
    """At the end, with all faults over: everything has arrived, or the lane says why it stopped."""
    record = world.truth.lanes.get(LANE)
    if record is not None and record.halted is not None:
        if unrecorded_difference(record):
            raise Violation(f"halted for good, although the map can be rebuilt: {record.halted.line}")
        is_cleaned = world.shape.cleans and bool(world.source.cleaned)
        if is_cleaned or world.excused or came_back(world) or _may_halt(world, record):
            return
        raise Violation(f"halted without a reason: {record.halted.line}")
    # A record that a compacted target took and its cleaner has removed since has arrived, too.
    arrived = set(numbers)
    left_out = filtered(world) | passed_over(world) | skipped(world)
    # An offset that an unclean election removed belongs to another record by now.
    there = {world.source.offset_of[number] for number in arrived - world.source.cut}
    # An idle lane finds late bytes before it sends again; the ledger knows of neither yet.
    late = {world.source.offset_of[number] for number in world.late}
    both = sorted(filtered(world) & there | passed_over(world) & there - late)
    if both:
        raise Violation(f"copied, and the ledger says that a filter left them out: source offsets {both}")
    _check_doubled(world, Counter(numbers))
    if record is not None and world.shape.cleans:
        check_newest_of_keys(world)
    if record is not None and not world.excused:
        check_target_map(world)
        if numbers and not world.shape.cleans:
            check_translations(world)
    if missing := never_arrived(world, arrived):
        raise Violation(f"never arrived: source offsets {missing}")
    _check_refused(world, arrived)
    offset_of = world.source.offset_of
    _check_orders(world)
    # What was skipped before it was deleted is none of these, and what nothing explains is a loss as well.
    recorded = world.lost | left_out | world.rejected | taken_offsets(world, arrived | taken(world))
    recorded |= recorded_as(world, "unexplained") | recorded_as(world, "expired")
    untaken = {number for number in world.source.expired - arrived - taken(world) if not has_newer(world, number)}
    untaken = {number for number in untaken if not is_older_than_copied(world, number)}
    unknown = not_looked_for(world)
    if unrecorded := sorted({offset_of[number] for number in untaken} - recorded - set(unknown.values())):
        raise Violation(f"deleted before they were copied, and the ledger does not say so: source offsets {unrecorded}")
    _check_expired(world, arrived - unknown.keys())
    check_truncated(world, arrived)
    if record is not None and not unknown and (wrong := _wrong_verdicts(world, numbers)):
        raise Violation(wrong)
    for host in world.hosts:
        if host.alive and host.state.next_offset == len(world.ledger) and host.state != world.truth:
            raise Violation(f"{host.name} folded the same ledger to another state")


def never_arrived(world: World, arrived: set[int]) -> list[int]:
    """Return the source offsets of the records that the target lacks without any reason."""
    known = arrived | world.target.outlived
    # The offset of a record that was refused may belong to another record by now.
    known |= world.target.poison | world.target.former_poison
    wanted = [number for number in world.source.wanted() if number not in known]
    may_miss = filtered(world) | passed_over(world) | skipped_and_there(world)
    missing = [offset for number in wanted if (offset := world.source.offset_of[number]) not in may_miss]
    missing = [offset for offset in missing if not is_superseded(world, offset) and not was_cleaned(world, offset)]
    missing = [offset for offset in missing if not is_older_than_copied(world, world.source.at(offset))]
    missing = [offset for offset in missing if offset not in taken_by_late_bytes(world)]
    missing = [offset for offset in missing if not lost_without_trace(world, offset)]
    return [offset for offset in missing if not superseded_without_trace(world, world.source.at(offset))]


def _check_doubled(world: World, counts: Counter[int]) -> None:
    """The ledger names what the target holds twice."""
    twice = {world.source.offset_of[number] for number, count in counts.items() if count > 1}
    unseen = _unseen(world, set(counts))
    if world.named - unseen != twice - unseen and not world.target.leapt:
        raise Violation(f"doubled are source offsets {sorted(twice)}, the ledger says {sorted(world.named)}")


def _check_refused(world: World, arrived: set[int]) -> None:
    """Records that the target refuses are skipped, and no others."""
    poison = {world.source.offset_of[number] for number in world.target.poison | world.target.former_poison}
    if arrived & world.target.poison or not world.rejected <= poison:
        raise Violation(f"left out are source offsets {sorted(world.rejected)}, refused were {sorted(poison)}")
    if len(set(world.letters.lying)) < len(world.letters.lying):
        raise Violation(f"parked twice: {world.letters.lying}")


def _check_orders(world: World) -> None:
    """Everything skipped by commands was in one of them, and every command is carried out."""
    wanted = {offset for order in orders(world) for offset in range(order.start, order.end)}
    if not skipped(world) <= wanted:
        raise Violation(f"left out by no order: source offsets {sorted(skipped(world) - wanted)}")
    record = world.truth.lanes.get(LANE)
    # What the source has lost before the lane reached it is skipped once the source has grown that far again.
    left = [each for each in pending(record.seeks) if each.end <= world.source.end] if record is not None else []
    if left:
        raise Violation(f"an order was not carried out: {left}")


def _unseen(world: World, arrived: set[int]) -> set[int]:
    """Source offsets that may be in the target twice although the ledger does not know."""
    # Bytes that come after the last possible moment are found with the next batch, and a policy may skip that.
    unseen = {number for number in world.excused if world.shape.policies}
    unseen |= {number for number in arrived if world.shape.cleans and is_hidden_copy(world, number)}
    # Retention may have deleted a copy before anyone read it.
    deleted = world.target.brokers[world.target.leader].deleted
    unseen |= {number for stored in deleted for number in world.excused.intersection(stored.numbers)}
    return {world.source.offset_of[number] for number in unseen}


def _check_expired(world: World, arrived: set[int]) -> None:
    """A record that was copied is not recorded as deleted before that. A late record that has been deleted since counts
    as the one that the ledger names: no one can see a difference."""
    copied = (world.source.expired & arrived) - late_left_open(world) - world.excused
    traced = {world.source.offset_of[number] for number in copied if not left_no_trace(world, number)}
    if falsely := sorted(traced & recorded_as(world, "expired")):
        raise Violation(f"copied, and the ledger says that they were deleted before: source offsets {falsely}")


def _wrong_verdicts(world: World, numbers: list[int]) -> str:
    """What is wrong with the verdicts, or empty."""
    if world.shape.cleans:
        return "" if world.excused else false_verdicts(world)
    return unaccounted(world, numbers)


def _may_halt(world: World, record: LaneState) -> bool:
    if record.halted is None:
        return False
    reason = record.halted.reason
    if reason == "unexplained" and (named_anew(world) or is_forced(world, record.halted.line)):
        return True
    # The records to be compared are gone from both logs: the source has deleted them, and the target topic's cleaner or
    # an unclean election has removed them. So nothing shows which records the ordinals belong to
    # (docs/explanation/gaps.md, "Open").
    differs = record.last_check is not None and record.last_check.outcome == "different"
    is_gone = bool(world.target.lost) or not world.target.cleaned.isdisjoint(world.source.expired)
    if reason == "unexplained" and differs and world.shape.cleans and world.source.expired and is_gone:
        return True
    # An election has brought back batches whose ordinals belong to other records by now, and newer records follow them
    # in the log. The other records may have to give way to newer ones of their keys, which a rebuild does not look up.
    if reason == "unexplained" and differs and world.shape.cleans and world.known.is_behind_returned:
        return True
    if reason == "unexplained" and differs and world.source.expired and are_apart(record):
        return True
    if reason == "unexplained" and (is_stuck(world) or (differs and were_deleted(world, record))):
        return True
    is_known = reason == "doubled" and were_unknown(world, record)
    return is_known or bool((world.source.expired or world.source.cut) and (record.holes or world.rebuilds))


def were_deleted(world: World, record: LaneState) -> bool:
    """Return whether the source deleted records before they could be compared, after a holder had given their ordinals
    to them, and a rebuild of the map found none of the target's records. The target may hold other records under these
    ordinals, which a former holder sent."""
    check = record.last_check
    if check is None or world.known.unplaced != check.first:
        return False
    facts = (fact for entry in world.ledger for fact in entry.facts if isinstance(fact, SourceRun) and fact.regiven)
    regiven = min((run.ordinal for fact in facts for run in fact.runs), default=None)
    if regiven is None or not regiven <= check.first <= check.last:
        return False
    deleted = {world.source.offset_of[number] for number in world.source.expired}
    return all(record.source_runs.offset_of(ordinal) in deleted for ordinal in range(check.first, check.last + 1))


def check_truncated(world: World, arrived: set[int]) -> None:
    """Records that were copied and then lost by the source are recorded, from the first such offset on."""
    # What comes after the last possible moment, and that the source has lost since, cannot be compared any more.
    known = (arrived & world.source.cut) - left_open(world) - lost_as_well(world) - world.excused
    known -= world.source.untraced
    gone = {world.source.offset_of[number] for number in known}
    for each, elections in world.truncated:
        # The records between that offset and the first copied record may not have been copied.
        if all(any(world.source.offset_of[number] < each.start for number in known & cut) for cut in elections):
            raise Violation(f"recorded as truncated: {each}, the source parted at {sorted(world.source.parts)}")
    facts = [fact for entry in world.ledger for fact in entry.facts if isinstance(fact, SourceRun | VerdictGiven)]
    open_ = [each for fact in facts for each in fact.verdicts if each.reason == "unexplained"]
    said = {offset for each in open_ for offset in range(each.start, each.end)}
    unnoticed = {world.source.offset_of[number] for number in known - world.source.noticed}
    # Of offsets that the source uses again the last verdict may be about the later records.
    said |= {offset for each, _ in world.truncated for offset in range(each.start, each.end)} - unnoticed
    if unrecorded := sorted(gone - said):
        raise Violation(f"copied and then lost by the source, and the ledger does not say so: {unrecorded}")
