"""What must be true of the keys in a compacted target."""

from tests.sim.after_retention import was_deleted
from tests.sim.left_out import filtered, passed_over, rejected, skipped
from tests.sim.newer_records import places, standing, was_theirs
from tests.sim.unknown_records import is_known, superseded_without_trace, was_hidden
from tests.sim.violation import Violation
from tests.sim.world import World


def check_order_of_keys(world: World) -> None:
    """No record comes after a newer one of its key: a later one of the source, or a foreign one that was written after
    the lane knew that the first one was there. What the source lost (its offsets have been used again), and late bytes
    accepted by a broker that forgot the producer, are not compared. Nor are foreign records that late bytes followed,
    or a copied record that no lookup could keep out: they are no longer the last ones of their key, and if the cleaner
    runs, it removes them. A later record of the source that follows then replaces an older one, not a foreign one."""
    if not world.shape.cleans:
        return
    own: dict[int, int] = {}
    number_at: dict[int, int] = {}
    theirs: dict[int, list[int]] = {}
    for number, batch in places(world):
        key = world.target.key(number)
        if number < 0:
            theirs.setdefault(key, []).append(-number)
            continue
        # Bytes that came late follow all others, which the cleaner removes for them.
        if number in world.known.late:
            theirs.pop(key, None)
        if number in world.source.cut or number in world.excused:
            continue
        offset = world.source.offset_of[number]
        if own.get(key, -1) >= offset and not was_hidden(world, number_at[key], batch):
            raise Violation(f"key {key} is stale: source offset {offset} stands after {own[key]}")
        before = theirs.pop(key) if key in theirs and is_known(world, number) else []
        if before and world.known.is_over(number, before):
            raise Violation(f"key {key}: source offset {offset} was put over a newer record")
        own[key], number_at[key] = offset, number


def check_newest_of_keys(world: World) -> None:
    """The last value of each key is the newest: the source's, or a foreign one that was written after it."""
    without = rejected(world, set(standing(world))) | filtered(world) | passed_over(world) | skipped(world)
    wanted = [number for number in world.source.wanted() if world.source.offset_of[number] not in without]
    newest: dict[int, int] = {world.target.key(number): number for number in wanted}
    stands: dict[int, list[int]] = {}
    for number in standing(world):
        stands.setdefault(world.target.key(number), []).append(number)
    # Bytes that came after the last possible moment follow all others.
    late = {world.target.key(number) for number in world.excused}
    for key, number in newest.items():
        if key in late:
            continue
        last = stands.get(key, [None])[-1]
        if last is None and (was_theirs(world, number) or was_deleted(world, number)):
            continue
        if last != number and superseded_without_trace(world, number):
            continue
        if last is None:
            raise Violation(
                f"key {key} is missing, its newest record is at source offset {world.source.offset_of[number]}"
            )
        # What the source has lost since stays on the target, and the ledger says so. So does what it has cleaned.
        if last > 0 and last != number and last not in world.source.cut | world.source.unwanted:
            stale, wanted = world.source.offset_of[last], world.source.offset_of[number]
            raise Violation(f"key {key} is stale: it has the value of source offset {stale}, not of {wanted}")
