"""What must always be true, checked against fakes that know everything."""

from collections.abc import Sequence

from mirrord.model.runs import Runs
from tests.sim.at_end import check_complete
from tests.sim.checks import Matched
from tests.sim.compacted_copy import came_back_deleted, may_come_back, note_returned, wrong_so_far
from tests.sim.halts import needless_halt
from tests.sim.host import LANE
from tests.sim.late_records import lost_as_well, named_anew
from tests.sim.left_out import filtered, rejected, skipped
from tests.sim.never_copied import wrongly_copied
from tests.sim.order_of_keys import check_order_of_keys
from tests.sim.stored import Stored
from tests.sim.unknown_records import is_hidden_copy, is_left_open, is_of_unread_log, left_no_trace
from tests.sim.violation import Violation
from tests.sim.world import World

__all__ = ["Violation", "check"]


def check(world: World, *, final: bool = False) -> None:
    """Compare the current leader's log with the source and with the ledger. Do nothing if none of the three has changed
    and this is not the final check."""
    picture = _picture(world)
    is_same = picture == world.checks.picture and not final
    if is_same and not world.shape.cleans:
        return
    world.checks.derived = {}
    try:
        if wrong := wrong_so_far(world):
            raise Violation(wrong)
        world.checks.picture = picture
        if not is_same:
            _compare(world, final=final)
    finally:
        world.checks.derived = None


def _compare(world: World, *, final: bool) -> None:
    record = world.truth.lanes.get(LANE)
    history = world.target.brokers[world.target.leader].history
    ours = _ours(history, world.checks.matched)
    if not ours:
        if final:
            check_complete(world, [])
        return
    if record is None:
        raise Violation("the target holds records of a lane that the ledger does not know")
    halted = record.halted is not None
    note_returned(world)
    # Two writers that saw different views of a compacted source, or bytes of an older view: the lane finds out and
    # halts, but not at once.
    shape = world.shape
    views = shape.compaction and (halted or len(world.hosts) > 1 or shape.late or shape.twice)
    numbers = _numbers(world, history, ours, views=views, final=final)
    if wrong := wrongly_copied(world, numbers) or needless_halt(world, final=final):
        raise Violation(wrong)
    _order(
        world,
        numbers,
        has_holes=bool(record.holes),
        excused=(views or bool(named_anew(world))) and (halted or not final),
    )
    check_order_of_keys(world)
    if final:
        check_complete(world, numbers)


def _ours(history: list[Stored], known: Matched | None) -> list[Stored]:
    """Return the lane's batches in a target log."""
    if known is None or known.history != history[: len(known.history)]:
        return [stored for stored in history if stored.producer >= 0]
    return known.log + [stored for stored in history[len(known.history) :] if stored.producer >= 0]


def _numbers(world: World, history: list[Stored], log: list[Stored], *, views: bool, final: bool) -> list[int]:
    """Return the numbers of the lane's records. Check that each is at the ordinal at which it is according to the
    ledger, unless there is an excuse."""
    record, offset_of, known = world.truth.lanes[LANE], world.source.offset_of, world.checks.matched
    is_longer = known is not None and known.log == log[: len(known.log)]
    rest = log[len(known.log) :] if known is not None and is_longer else log
    begin = world.past.ordinal
    end = max([stored.ordinal + stored.count for stored in rest], default=begin)
    end = max(end, known.end) if known is not None and is_longer else end
    if known is not None and known.mapped_at == world.checks.mapped_at and len(known.offsets) >= end - begin:
        offsets = known.offsets
    else:
        offsets = _source_offsets(world, record.source_runs, end)
    numbers, all_match = list[int](), True
    if known is not None and is_longer and known.producer == record.producer_id and known.agrees_with(offsets):
        numbers = known.numbers.copy()
    else:
        rest = log
    for stored in rest:
        if stored.producer != record.producer_id:
            raise Violation(f"producer id {stored.producer} wrote, the ledger knows {record.producer_id}")
        there = [offset_of.get(number, -1) for number in stored.numbers]
        if there == offsets[stored.ordinal - begin : stored.ordinal - begin + stored.count]:
            numbers += stored.numbers
            continue
        for ordinal, number in enumerate(stored.numbers, stored.ordinal):
            if not number:
                continue
            offset = offsets[ordinal - begin]
            if offset != offset_of[number]:
                if not _is_excused(world, ordinal, offset, number, views=views, final=final):
                    raise Violation(
                        f"the ledger says that ordinal {ordinal} is source offset {offset}, "
                        f"the target holds offset {offset_of[number]}"
                    )
                all_match = False
            numbers.append(number)
    known = Matched(history.copy(), log, record.producer_id, end, world.checks.mapped_at, offsets, numbers)
    world.checks.matched = known if all_match else None
    return numbers


def _source_offsets(world: World, runs: Runs, end: int) -> list[int | None]:
    """Return the source offsets of the story's ordinals below an end, according to the ledger."""
    begin = world.past.ordinal
    if not world.past.is_in_story(end):
        raise Violation(f"the target holds ordinal {end - 1}, the story began with ordinal {begin}")
    found: list[int | None] = []
    for ordinal, offset, count in runs.between(begin, end - 1):
        found += [None] * (ordinal - begin - len(found))
        found += range(offset, offset + count)
    return found + [None] * (end - begin - len(found))


def _is_excused(world: World, ordinal: int, offset: int | None, number: int, *, views: bool, final: bool) -> bool:
    """Return whether the target may have a record at this ordinal, although the ledger names another source offset."""
    record, source = world.truth.lanes[LANE], world.source
    goes_on = record.halted is not None or not final
    return (
        number in world.excused
        or (goes_on and (views or number in named_anew(world) or may_come_back(world, number)))
        # Of two offsets that the source no longer holds, it is impossible to say which one it was.
        or (number in source.unwanted and source.at(offset or 0) is None)
        or number in lost_as_well(world)
        or left_no_trace(world, number)
        or came_back_deleted(world, number)
        or is_left_open(world, ordinal, number)
        # A former holder may have been further; what it sent is compared before the end.
        or (0 <= record.regiven <= ordinal and not final)
        or (not final and is_of_unread_log(world))
    )


def _picture(world: World) -> tuple[int, ...]:
    """A value that changes whenever anything compared here does."""
    target = world.target
    leader = target.brokers[target.leader]
    here = target.epoch, leader.end, leader.start, target.leapt, len(world.excused), len(world.ledger), len(world.hosts)
    return world.source.state + here


def _order(world: World, numbers: list[int], *, has_holes: bool, excused: bool) -> None:
    there = set(numbers)
    if len(there) != len(numbers):
        twice = sorted(number for number in there if numbers.count(number) > 1)
        if excused or all(number in world.excused or is_hidden_copy(world, number) for number in twice):
            return
        if {world.source.offset_of[number] for number in twice} <= world.named:
            return
        raise Violation(f"doubled: source offsets {[world.source.offset_of[number] for number in twice]}")
    # A broker that forgot the producer may accept a batch after one that it refused. That is in the log before anyone
    # can know; from then on only the end shows whether the lane found and repaired it.
    if has_holes or world.target.leapt or world.excused or world.shape.cleans:
        return
    wanted = _wanted(world, there)
    if wanted[: len(numbers)] == numbers:
        return
    position = {number: at for at, number in enumerate(wanted)}
    last = -1
    for number in numbers:
        if number in world.source.unwanted:
            continue
        at = position.get(number)
        if at is None:
            raise Violation(f"source offset {world.source.offset_of[number]} arrived before it was stable")
        if at != last + 1:
            lost = [world.source.offset_of[each] for each in wanted[last + 1 : at]]
            if not excused and not filtered(world) >= set(lost):
                raise Violation(f"lost or reordered in front of offset {world.source.offset_of[number]}: {lost}")
        last = at


def _wanted(world: World, there: set[int]) -> Sequence[int]:
    """The numbers that the target should have, in order, if these are there."""
    wanted, without = world.source.wanted(), rejected(world, there) | skipped(world)
    if without:
        wanted = [number for number in wanted if world.source.offset_of[number] not in without]
    if world.target.outlived:
        wanted = [number for number in wanted if number in there or number not in world.target.outlived]
    return wanted
