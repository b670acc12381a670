"""What the ledger says, and what a compacted target holds, once retention has deleted records of the target."""

from collections.abc import Set as AbstractSet

from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.state import LaneState
from tests.sim.host import LANE
from tests.sim.stored import SEQUENCES, ordinal_of
from tests.sim.unknown_records import is_left_open
from tests.sim.world import World


def wrong_translation(world: World) -> str:
    """What is wrong with the translated offsets of the records that the target has, or empty. Of those that it has
    deleted, the ledger need not know where they were."""
    log = [stored for stored in world.target.brokers[world.target.leader].log if stored.producer >= 0]
    if not log:
        return ""
    copied = CopiedPosition(log[-1].ordinal + log[-1].count, log[-1].end, world.source.end)
    lane = LaneMap(world.truth.lanes[LANE], copied)
    places = {
        number: stored.base + at
        for stored in log
        for at, number in enumerate(stored.numbers)
        if not is_left_open(world, stored.ordinal + at, number)
        if not may_be_forgotten(world, stored.ordinal + at, stored.base + at)
    }
    for number in places.keys() - world.source.cut:
        offset, place = world.source.offset_of[number], places[number]
        there, back = lane.to_target(offset), lane.to_source(place)
        if there.record != place or back.record != offset:
            return f"source offset {offset} is at {place}, the answers are {there} and {back}"
    return ""


def may_be_forgotten(world: World, ordinal: int, place: int) -> bool:
    """Whether the ledger need not know where this ordinal is: a leader had deleted it when the lane continued after it.
    Each replica deletes for itself, so the current leader may still have the record."""
    is_unknown = world.truth.lanes[LANE].target_runs.offset_of(ordinal) is None
    return is_unknown and place < world.target.brokers[1 - world.target.leader].start


def was_deleted(world: World, number: int) -> bool:
    """Whether retention has deleted a copied record, or the record of the same key that superseded it, even if only a
    lookup took the record for superseded."""
    broker, key = world.target.brokers[world.target.leader], world.target.key
    deleted = {each for stored in broker.history if stored.end <= broker.start for each in stored.numbers if each}
    is_superseded = number in world.target.cleaned or number in world.known.presumed
    is_superseded = is_superseded or _was_left_out(world, number, deleted)
    return number in deleted or (is_superseded and key(number) in map(key, deleted))


def _was_left_out(world: World, number: int, deleted: AbstractSet[int]) -> bool:
    """A plan left this record out because of a foreign one of its key. Retention has deleted that or a later one, with
    all records before it."""
    key = world.target.key
    seen = range(world.known.appended.get(number, 0) + 1, world.known.left_out.get(number, 0) + 1)
    first = next((each for each in seen if key(each) == key(number)), None)
    return first is not None and any(each <= -first and key(each) == key(number) for each in deleted)


def was_cleaned(world: World, offset: int) -> bool:
    """The cleaner of a compacted target removed the record at this source offset, and retention its newer one."""
    number = world.source.at(offset)
    return world.shape.cleans and number is not None and was_deleted(world, number)


def lost_without_trace(world: World, offset: int) -> bool:
    """Whether an unclean election has removed the copy of this source offset, and retention has since deleted what was
    appended there. Nothing then shows at which offset the log parted from the lane's records (decision 122)."""
    number, start = world.source.at(offset), world.target.brokers[world.target.leader].start
    parted_at = world.target.parted_at.get(number) if number is not None else None
    return world.shape.unclean and parted_at is not None and parted_at < start


def is_stuck(world: World) -> bool:
    """Whether the leader accepts no batch of the lane that a holder may send (decision 122)."""
    return is_repeat_of_deleted(world) or expects_a_copied_ordinal(world)


def expects_a_copied_ordinal(world: World) -> bool:
    """Whether the leader expects an ordinal that retention has deleted: a holder copied deleted records again, because
    it did not know the position that a former holder saved after it had begun."""
    broker = world.target.brokers[world.target.leader]
    producer = world.truth.lanes[LANE].producer_id
    known = broker.memory.get(producer)
    if known is None or not world.target.unknown.since:
        return False
    behind = max((each.ordinal + each.count for each in broker.deleted if each.producer == producer), default=0)
    return ordinal_of(known.last_sequence, world.past.ordinal) + 1 < behind


def is_repeat_of_deleted(world: World) -> bool:
    """Whether the leader treats a batch that has only the lane's next ordinal as a repeat of one that retention has
    deleted, and accepts no other ordinal: it followed a leader that had forgotten the producer (decision 122)."""
    broker = world.target.brokers[world.target.leader]
    known = broker.memory.get(world.truth.lanes[LANE].producer_id)
    if known is None:
        return False
    wanted = (known.last_sequence + 1) % SEQUENCES
    return any((first, last) == (wanted, wanted) and base < broker.start for first, last, base in known.batches)


def were_unknown(world: World, record: LaneState) -> bool:
    """Whether retention had deleted the first copies of the records because of which a lane has halted, and the holder
    that copied them again could not know about those. A later holder may know about them: it has read the last position
    of an earlier holder. It halts because of the second copies as because of any others."""
    unknown = {number for copies in world.target.unknown.since.values() for _, number in copies}
    offsets = {world.source.offset_of[number] for number in unknown}
    return record.halted is not None and offsets.issuperset(range(record.halted.start, record.halted.end))
