"""Which records in a compacted target are newer than others of their key."""

from collections.abc import Set as AbstractSet

from tests.sim.checks import once_a_check
from tests.sim.known import NEVER
from tests.sim.world import World


@once_a_check
def taken(world: World) -> AbstractSet[int]:
    """Numbers of all records that the leader's log has, or would have if its cleaner had not removed them."""
    checks, log = world.checks, world.target.brokers[world.target.leader].whole
    if log != checks.whole:
        checks.whole, checks.taken = log.copy(), world.target.taken()
    return checks.taken


@once_a_check
def standing(world: World) -> list[int]:
    """The records of the present leader's log."""
    log = world.target.brokers[world.target.leader].log
    return [number for stored in log for number in stored.numbers if number]


@once_a_check
def places(world: World) -> list[tuple[int, tuple[int, int]]]:
    """The records of the present leader's log, each with the base offset and the leader epoch of its batch."""
    log = world.target.brokers[world.target.leader].log
    return [(number, (stored.base, stored.leader_epoch)) for stored in log for number in stored.numbers if number]


def is_superseded(world: World, offset: int) -> bool:
    """The compacted target has a newer record with the key of the one at this source offset."""
    number = world.source.at(offset)
    if number is None or has_newer(world, number):
        return number is not None
    return world.shape.cleans and (was_theirs(world, number) or seems_newer(world, number))


def has_newer(world: World, number: int) -> bool:
    """The compacted target has a newer record of the same key: a later one of the source, or a foreign one."""
    if not world.shape.cleans:
        return False
    key = world.target.key(number)
    last = next((each for each in reversed(standing(world)) if world.target.key(each) == key), 0)
    return _is_newer(world, last, number) or (
        last in world.excused and _is_newer(world, _last_in_time(world, key), number)
    )


def _last_in_time(world: World, key: int) -> int:
    """The last record of this key that was not put over newer ones by bytes that came so late that no rule can keep
    them out, or 0. The cleaner may have removed it because of these bytes."""
    log = world.target.brokers[world.target.leader].whole
    numbers = (number for stored in reversed(log) for number in reversed(stored.numbers) if number)
    return next((each for each in numbers if each not in world.excused and world.target.key(each) == key), 0)


def _is_newer(world: World, there: int, number: int) -> bool:
    if there < 0:
        return -there > world.known.first_appended.get(number, NEVER) or number in world.known.presumed
    return there > 0 and world.source.offset_of[there] > world.source.offset_of[number]


def seems_newer(world: World, number: int) -> bool:
    """An election removed this record, and a plan left it out because of a foreign one, which is the last of its key.
    The foreign record is older, but of a leader epoch that the holder did not know when this one was acknowledged. An
    acknowledgement does not say whether this one was appended in that epoch as well (decision 95)."""
    key, known, lost_in = world.target.key(number), world.known, world.target.lost.get(number, 0)
    last = next((each for each in reversed(places(world)) if world.target.key(each[0]) == key), None)
    if last is None:
        return False
    foreign, (_, leader_epoch) = -last[0], last[1]
    is_seen = 0 < foreign <= known.left_out.get(number, 0)
    return is_seen and known.epochs.hides(number, leader_epoch, lost_in)


def was_theirs(world: World, number: int) -> bool:
    """A foreign record superseded this one and was the newest of its key when an election lost it. Either the target's
    cleaner had removed this one before, as far as a holder can know, or a plan had left it out because of the foreign
    record (decision 95)."""
    key, appended = world.target.key(number), world.known.appended.get(number, 0)
    lost = [-each for each in world.target.lost if each < 0 and world.target.key(each) == key and -each > appended]
    # Its cleaner may have removed the record because of which this one was left out, before a later one was lost.
    seen = range(appended + 1, world.known.left_out.get(number, 0) + 1)
    is_left_out = bool(lost) and any(world.target.key(each) == key for each in seen)
    return is_left_out or (bool(lost) and number in taken(world)) or _was_presumed(world, number, lost)


def _was_presumed(world: World, number: int, lost: list[int]) -> bool:
    """A lookup took this record for appended and then removed because of a foreign one, and that one or a later one is
    among the `lost` ones. The target still has whatever was at the offsets at which this record may have been, so it is
    not copied again, like one that was indeed appended and then removed (decisions 94 and 95)."""
    presumed = world.known.presumed_at.get(number)
    leader = world.target.brokers[world.target.leader]
    return (
        presumed is not None
        and any(each >= presumed.foreign for each in lost)
        and any((stored.base, stored.leader_epoch) in presumed.batches for stored in leader.whole)
    )
