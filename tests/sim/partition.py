"""Each source offset exactly once: copied, or explained by one verdict that is true."""

from collections import Counter
from collections.abc import Mapping

from mirrord.ledger.facts.core import Reason
from mirrord.replication.lane.state import Lane
from tests.sim.checks import once_a_check
from tests.sim.host import LANE
from tests.sim.known import NEVER
from tests.sim.newer_records import seems_newer
from tests.sim.operator import orders
from tests.sim.transactions import never_seen
from tests.sim.world import World


def unaccounted(world: World, numbers: list[int]) -> str:
    """What is wrong with it, or empty. `numbers` are the records in the target.

    If the source was truncated, offsets from there on may have belonged to several records.
    """
    record, source = world.truth.lanes[LANE], world.source
    if world.excused or world.target.leapt:
        return ""
    copied = Counter(source.offset_of[number] for number in numbers)
    explained, end, once = _explained(world), _lane(world).position, min(source.parts, default=source.end)
    if neither := [offset for offset in range(source.begin, end) if offset not in copied and offset not in explained]:
        return f"source offsets that are neither copied nor explained: {neither}"
    # An idle lane finds late bytes before it sends again.
    late = {source.offset_of[number] for number in world.late} & _unrecorded(world).keys()
    twice = [offset for offset in sorted(copied.keys() - late) if offset in explained and offset < once]
    twice = [offset for offset in twice if explained[offset] != "doubled" and not _is_unknown(world, offset)]
    if both := [(offset, explained[offset]) for offset in twice]:
        return f"source offsets that are copied and explained: {both}"
    # What a former holder was about to jump over, and the ledger records, may be further on.
    if beyond := [offset for offset in (*copied, *_unrecorded(world)) if end <= offset < once]:
        return f"source offsets behind the position {end}: {beyond}"
    told = [each for each in sorted(explained.items()) if each[0] < once and not _is_unknown(world, each[0])]
    if false := [each for each in told if not _is_true(world, *each)]:
        return f"verdicts that are not true: {false}"
    counts = world.checks.forgotten.counted(_bound(world), record)
    if not source.cut and counts != +Counter(record.verdicts.counts):
        return f"the ledger counts {record.verdicts.counts}, and holds {dict(counts)}"
    return ""


def false_verdicts(world: World) -> str:
    """What is wrong with the verdicts in a compacted target, or empty. There, a record also counts as cleaned if the
    target had a newer one of its key."""
    once = min(world.source.parts, default=world.source.end)
    false = [
        (offset, reason)
        for offset, reason in sorted(_explained(world).items())
        if offset < once and reason not in {"unexplained", "doubled"}
        if not _is_true(world, offset, reason) and not _was_superseded(world, offset, reason)
    ]
    return f"verdicts that are not true: {false}" if false else ""


def _was_superseded(world: World, offset: int, reason: Reason) -> bool:
    number = world.source.at(offset)
    if reason != "compacted" or number is None:
        return False
    key, known = world.target.key(number), world.known
    theirs = range(known.first_appended.get(number, NEVER) + 1, world.target.foreign_numbers + 1)
    theirs = (each for each in theirs if each not in never_seen(world))
    ours = (each for each in known.appended if world.source.offset_of[each] > offset)
    is_newer = any(world.target.key(each) == key for each in (*theirs, *ours))
    return is_newer or number in known.presumed or seems_newer(world, number)


def _explained(world: World) -> dict[int, Reason]:
    return _bound(world) | _unrecorded(world)


def explained_for(world: World, lane: Lane) -> dict[int, Reason]:
    """The source offsets that have a verdict in the ledger, or that this lane has skipped."""
    return _bound(world) | _skipped(lane)


def _bound(world: World) -> dict[int, Reason]:
    return {
        offset: gap.reason for gap in world.gaps if gap.reason != "truncated" for offset in range(gap.start, gap.end)
    }


def _unrecorded(world: World) -> dict[int, Reason]:
    """What the lane has skipped after its last run: verdicts travel with the run that follows them."""
    return _skipped(_lane(world))


def _skipped(lane: Lane) -> dict[int, Reason]:
    return {offset: each.reason for each in lane.skipped for offset in range(each.start, each.end)}


def _lane(world: World) -> Lane:
    """The lane as its last holder has it."""
    return next(host.lane for host in reversed(world.hosts) if host.alive)


def _is_unknown(world: World, offset: int) -> bool:
    """Whether nothing shows if the target has the record: the content of some ordinals there is unknown, and the source
    no longer has the record."""
    return any(hole.is_open for hole in world.truth.lanes[LANE].holes) and world.source.at(offset) is None


@once_a_check
def _last_numbers(world: World) -> Mapping[int, int]:
    """Source offset → number of the last record that had it."""
    return {at: number for number, at in world.source.offset_of.items()}


def _is_true(world: World, offset: int, reason: Reason) -> bool:
    """Whether the source's own history says the same."""
    source = world.source
    number = _last_numbers(world).get(offset)
    match reason:
        case "control":
            return number is None
        case "aborted" | "compacted":
            return number in source.unwanted or (reason == "compacted" and source.at(offset) is None)
        case "expired":
            return offset < source.start
        case "rejected":
            return number in world.target.poison | world.target.former_poison
        case "skipped":
            return any(order.start <= offset < order.end for order in orders(world))
        case "filtered":
            return number is not None
        case "doubled":
            return offset in world.named
        case _:
            return False
