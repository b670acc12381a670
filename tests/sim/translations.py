"""The offset map of the ledger, compared with the logs."""

from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from tests.sim.after_retention import may_be_forgotten, wrong_translation
from tests.sim.host import LANE
from tests.sim.late_records import not_looked_for
from tests.sim.left_out import skipped
from tests.sim.unknown_records import is_left_open
from tests.sim.untraced import is_lost
from tests.sim.violation import Violation
from tests.sim.world import World


def check_target_map(world: World) -> None:
    """The map's other side: the target offsets of the lane's ordinals, according to the ledger."""
    record = world.truth.lanes[LANE]
    other = {each.base: each for each in world.target.brokers[1 - world.target.leader].log}
    for stored in world.target.brokers[world.target.leader].log:
        # Each replica cleans for itself, so what one had removed may appear with the other.
        if stored.producer < 0 or (world.shape.cleans and other.get(stored.base) != stored):
            continue
        for at in range(stored.count):
            if not stored.numbers[at]:
                continue
            recorded = record.target_runs.offset_of(stored.ordinal + at)
            if recorded != stored.base + at and not may_be_forgotten(world, stored.ordinal + at, stored.base + at):
                raise Violation(f"ordinal {stored.ordinal + at} is at {stored.base + at}, the ledger says {recorded}")


def check_translations(world: World) -> None:
    """Every offset of either side, translated, against what the logs hold."""
    if any(each.deleted for each in world.target.brokers):
        if wrong := wrong_translation(world):
            raise Violation(wrong)
        return
    log = [stored for stored in world.target.brokers[world.target.leader].log if stored.producer >= 0]
    stand = [(stored, at, number) for stored in log for at, number in enumerate(stored.numbers)]
    if not_looked_for(world):
        return
    known = [each for each in stand if not is_left_open(world, each[0].ordinal + each[1], each[2])]
    known = [each for each in known if not is_lost(world, each[2], each[0].ordinal + each[1])]
    pairs = [(world.source.offset_of[number], stored.base + at) for stored, at, number in known]
    end, ordinal = log[-1].end, log[-1].ordinal + log[-1].count
    record = world.truth.lanes[LANE]
    lane = LaneMap(record, CopiedPosition(ordinal, end, world.source.end))
    goes_on = record.source_runs.offset_of(ordinal)
    without = world.rejected | skipped(world)
    nexts, all_stands = _next_of(pairs), _places_of(pairs)
    for offset in range(world.source.end + 1):
        answer = lane.to_target(offset)
        true = nexts[offset] if offset < len(nexts) else end
        stands = all_stands.get(offset, [])
        if answer.offset != true or (answer.kind in {"exact", "reordered"}) != bool(stands):
            raise Violation(f"source offset {offset} is translated to {answer}, expected {true}, {stands}")
        if stands and answer.record not in stands:
            raise Violation(f"the record at source offset {offset} is at {stands}, the answer is {answer}")
    pairs = [(there, here) for here, there in pairs]
    nexts, all_stands = _next_of(pairs), _places_of(pairs)
    for offset in range(end + 1):
        answer = lane.to_source(offset)
        true = nexts[offset] if offset < len(nexts) else goes_on
        # A reader that continues at a skipped offset misses nothing, and sees nothing twice.
        early = answer.offset is not None and true is not None and answer.offset <= true
        early = early and without.issuperset(range(answer.offset or 0, true or 0))
        stands = all_stands.get(offset, [])
        if (answer.offset != true and not early) or (stands and answer.record != stands[0]):
            raise Violation(f"target offset {offset} is translated to {answer}, expected {true}, {stands}")


def _next_of(pairs: list[tuple[int, int]]) -> list[int]:
    """Return for each offset of one log, up to the last one in the pairs, the lowest offset in the other log at which a
    record with this offset or a higher one is."""
    lowest: dict[int, int] = {}
    for here, there in pairs:
        lowest[here] = min(there, lowest.get(here, there))
    found, last = list[int](), max(lowest, default=-1)
    for offset in range(last, -1, -1):
        place = lowest.get(offset)
        found.append(found[-1] if place is None or (found and found[-1] < place) else place)
    return found[::-1]


def _places_of(pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    """Return for each offset of one log the offsets in the other log at which a record with this offset is."""
    found: dict[int, list[int]] = {}
    for here, there in pairs:
        found.setdefault(here, []).append(there)
    return found
