"""What must be true of a compacted target whenever its lane has nothing left to do, not only at the end of a story.

Later records of the same keys hide by then what was lost before them.
"""

from collections.abc import Iterable, Mapping

from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from tests.sim.after_retention import lost_without_trace, was_cleaned, was_deleted
from tests.sim.checks import once_a_check
from tests.sim.host import LANE, Host
from tests.sim.newer_records import has_newer, is_superseded, seems_newer, standing, taken, was_theirs
from tests.sim.partition import explained_for
from tests.sim.unknown_records import left_no_trace, superseded_without_trace
from tests.sim.world import World


def wrong_so_far(world: World) -> str:
    """What is wrong with a compacted target, or empty."""
    return (lost_so_far(world) or put_back(world)) if world.shape.cleans else ""


def may_come_back(world: World, number: int) -> bool:
    """Whether an unclean election may have brought back this record in a truncated compacted log, after its ordinal was
    used again. The lane finds that when it resumes. If the target deletes its oldest records, these are compared as
    well, although a lane may have used their ordinals again."""
    may_be_gone = number in world.target.lost or world.shape.expires
    return world.shape.cleans and world.shape.unclean and may_be_gone


def came_back_deleted(world: World, number: int) -> bool:
    """Whether an election may have brought back this record, and retention has deleted it from the log of the leader.
    Nobody can read it there, and no holder can find that its ordinal was used again."""
    return may_come_back(world, number) and number not in standing(world)


def came_back(world: World) -> bool:
    """The log holds records other than those in the ledger, because it was truncated before, or because another replica
    had cleaned them. Or it held them when the lane halted: its cleaner may have removed them since."""
    return world.truth.lanes[LANE].halted in world.known.returned or _has_others(world)


def note_returned(world: World) -> None:
    """If the lane has just halted, remember whether such records were there."""
    halted = world.truth.lanes[LANE].halted
    if halted is not None and halted not in world.known.returned and _has_others(world):
        world.known.returned.append(halted)


def _has_others(world: World) -> bool:
    runs = world.truth.lanes[LANE].source_runs
    log = [stored for stored in world.target.brokers[world.target.leader].history if stored.producer >= 0]
    stand = [(stored.ordinal + at, number) for stored in log for at, number in enumerate(stored.numbers) if number]
    others = (number for ordinal, number in stand if runs.offset_of(ordinal) != world.source.offset_of[number])
    return any(may_come_back(world, number) or left_no_trace(world, number) for number in others)


def lost_so_far(world: World) -> str:
    """What is wrong with the source offsets below the position of a lane that says that it has finished with these, or
    empty. Each of them was copied, has a verdict, or is superseded by a record that the target has now. What no lane
    copies needs a verdict in any case."""
    host = settled(world)
    if host is None or world.excused or world.late or world.source.cut:
        return ""
    source, there, outlived = world.source, taken(world), world.target.outlived
    offsets = [source.offset_of[each] for each in source.wanted() if each not in there and each not in outlived]
    expired = source.expired - there - outlived if not world.shape.policies else set[int]()
    never_copied = source.never_copied()
    if not (offsets or expired or never_copied):
        return ""
    explained = explained_for(world, host.lane)
    for offset in sorted((*offsets, *never_copied)):
        reason = explained.get(offset)
        if not max(source.start, source.begin) <= offset < host.lane.position or reason not in {None, "compacted"}:
            continue
        if offset in never_copied:
            if reason is None:
                return f"{host.name} has finished with source offset {offset}, which is neither copied nor explained"
        elif not _may_be_missing(world, offset):
            return f"{host.name} has finished with source offset {offset}, which is nowhere: {reason}"
    for number in expired:
        offset = source.offset_of[number]
        is_open = offset < host.lane.position and explained.get(offset) in {None, "compacted"}
        if is_open and not _may_be_gone(world, number):
            return f"{host.name} has finished with source offset {offset}, which the source has deleted"
    return ""


def settled(world: World) -> Host | None:
    """The last holder of the lane, if it says that it has finished with each source record below its position."""
    host = world.hosts[-1] if world.hosts else None
    if host is None or not host.alive or host.paused or host.lane.phase is not Phase.COPYING:
        return None
    lane = host.lane
    if lane.ready or lane.in_flight or lane.log.end_epoch != world.target.epoch or host.appends or host.landed:
        return None
    if lane.comparison.later_pending or lane.confirming or host.state.next_offset < len(world.ledger):
        return None
    progress = progress_record(lane, 1, world.wall_ms)
    return host if progress is not None and progress.settled else None


def _may_be_gone(world: World, number: int) -> bool:
    """Whether the target need not have a record that the source has deleted."""
    is_newer = has_newer(world, number) or was_theirs(world, number) or seems_newer(world, number)
    is_newer = is_newer or _is_older(world, number)
    return is_newer or number in world.known.presumed or was_deleted(world, number)


def _may_be_missing(world: World, offset: int) -> bool:
    number = world.source.at(offset)
    is_older = number is not None and _is_older(world, number)
    has_left_no_trace = lost_without_trace(world, offset) or superseded_without_trace(world, number)
    return is_older or has_left_no_trace or is_superseded(world, offset) or was_cleaned(world, offset)


def _is_older(world: World, number: int) -> bool:
    """Whether the target has had a later record of the lane with this key. If it was lost, it is copied again."""
    return world.source.offset_of[number] < _last_appended(world).get(world.target.key(number), -1)


@once_a_check
def _last_appended(world: World) -> Mapping[int, int]:
    """The highest source offset of each key whose record was ever appended."""
    return _last_of_keys(world, world.known.first_appended)


@once_a_check
def _last_taken(world: World) -> Mapping[int, int]:
    """The same for the records in the log, and those that its cleaner has removed."""
    return _last_of_keys(world, (each for each in taken(world) if each > 0))


def _last_of_keys(world: World, numbers: Iterable[int]) -> Mapping[int, int]:
    offset_of, key, found = world.source.offset_of, world.target.key, dict[int, int]()
    for number in numbers:
        of = key(number)
        found[of] = max(offset_of[number], found.get(of, -1))
    return found


def is_older_than_copied(world: World, number: int | None) -> bool:
    """Whether the log of a compacted target has, or had until its cleaner removed it, a later record of the lane with
    the key of this one."""
    if not world.shape.cleans or number is None:
        return False
    return world.source.offset_of[number] < _last_taken(world).get(world.target.key(number), -1)


def put_back(world: World) -> str:
    """What is wrong with the order of the lane's records, although the log no longer shows it, or empty. The cleaner
    has removed the newest record of a key from its batch. As long as the log has the rest of this batch and the source
    has the record, a lookup shows that it was appended, and that older records of its key must not follow."""
    target, source = world.target, world.source
    leader = target.brokers[target.leader]
    # Most events change nothing that this looks at.
    seen = [target.epoch, world.known.lookups, *leader.log, *leader.whole]
    seen += [*source.state, len(source.cut), len(world.excused), len(world.late)]
    if seen == world.checks.in_order:
        return ""
    looked_up = {number for number, each in world.known.looked_up.items() if each[-1].epoch == target.epoch}
    if all(looked_up.isdisjoint(each.numbers) for each in leader.log if each.leader_epoch == target.epoch):
        world.checks.in_order = seen
        return ""
    whole = {stored.id: stored.numbers for stored in leader.whole if stored.producer >= 0}
    newest: dict[int, int] = {}
    for stored in leader.log:
        if stored.producer < 0:
            continue
        for number in stored.numbers:
            newer = newest.get(target.key(number), -1) if number else -1
            if newer > source.offset_of.get(number, newer) and _was_looked_up(world, number, stored.leader_epoch):
                return f"source offset {source.offset_of[number]} was put over {newer}, which the cleaner has removed"
        for number in whole.get(stored.id, ()):
            offset = source.offset_of.get(number, -1)
            if number and number not in world.excused and number not in world.late and source.at(offset) == number:
                newest[target.key(number)] = max(newest.get(target.key(number), -1), offset)
    world.checks.in_order = seen
    return ""


def _was_looked_up(world: World, number: int, leader_epoch: int) -> bool:
    """Whether the record was last looked up in the log of the present leader, and appended to that."""
    lookups = world.known.looked_up.get(number)
    is_last = bool(lookups) and lookups[-1].epoch == leader_epoch == world.target.epoch
    return is_last and not any(number in late for late in (world.excused, world.late, world.source.cut))
