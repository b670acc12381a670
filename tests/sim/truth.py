"""What must always be true, checked against fakes that know everything."""

from mirrord.ledger.facts.core import SourceRun, VerdictGiven
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.seeks import pending
from mirrord.ledger.state import LaneState
from mirrord.replication.lane.source.recorded_epochs import is_truncated
from tests.sim.after_retention import (
    is_stuck,
    lost_without_trace,
    may_be_forgotten,
    was_cleaned,
    was_deleted,
    were_unknown,
    wrong_translation,
)
from tests.sim.compacted_copy import came_back, is_older_than_copied, may_come_back, note_returned, wrong_so_far
from tests.sim.halts import needless_halt, unrecorded_difference
from tests.sim.host import LANE
from tests.sim.never_copied import wrongly_copied
from tests.sim.newer_records import has_newer, is_superseded, places, standing, was_theirs
from tests.sim.operator import orders
from tests.sim.partition import false_verdicts, unaccounted
from tests.sim.unknown_records import (
    are_apart,
    is_hidden_copy,
    is_known,
    is_left_open,
    left_no_trace,
    recorded_as,
    was_hidden,
)
from tests.sim.untraced import is_lost, taken_offsets
from tests.sim.world import World


class Violation(AssertionError):
    """Something was lost, duplicated, reordered or recorded wrongly."""


def check(world: World, *, final: bool = False) -> None:
    """Compare the current leader's log with the source and with the ledger. Do nothing if none of the three has changed
    and this is not the final check."""
    _check_so_far(world)
    picture = _picture(world)
    if picture == world.checked and not final:
        return
    world.checked = picture
    record = world.truth.lanes.get(LANE)
    log = world.target.brokers[world.target.leader].history
    ours = [stored for stored in log if stored.producer >= 0]
    if not ours:
        if final:
            _complete(world, [])
        return
    if record is None:
        raise Violation("the target holds records of a lane that the ledger does not know")
    holes = [(hole.first, hole.last, hole.again) for hole in record.holes]
    halted = record.halted is not None
    note_returned(world)
    # Two writers that saw different views of a compacted source, or bytes of an older view: the lane finds out and
    # halts, but not at once.
    shape = world.shape
    views = shape.compaction and (halted or len(world.hosts) > 1 or shape.late or shape.twice)
    late = _named_anew(world)
    numbers: list[int] = []
    for stored in ours:
        if stored.producer != record.producer_id:
            raise Violation(f"producer id {stored.producer} wrote, the ledger knows {record.producer_id}")
        for at, number in enumerate(stored.numbers):
            if not number:
                continue
            offset = record.source_runs.offset_of(stored.sequence + at)
            excused = (views and (halted or not final)) or number in world.excused
            excused = excused or (number in late and (halted or not final))
            # Of two offsets that the source no longer holds, it is impossible to say which one it was.
            excused = excused or (number in world.source.unwanted and world.source.at(offset or 0) is None)
            excused = excused or number in _lost_as_well(world) or left_no_trace(world, number)
            excused = excused or is_left_open(world, stored.sequence + at, number)
            # A former holder may have been further; what it sent is compared before the end.
            excused = excused or (0 <= record.regiven <= stored.sequence + at and not final)
            excused = excused or (may_come_back(world, number) and (halted or not final))
            if offset != world.source.offset_of[number] and not excused:
                raise Violation(
                    f"the ledger says that ordinal {stored.sequence + at} is source offset {offset}, "
                    f"the target holds offset {world.source.offset_of[number]}"
                )
            numbers.append(number)
    if wrong := wrongly_copied(world, numbers) or needless_halt(world, final=final):
        raise Violation(wrong)
    _order(world, numbers, holes, excused=(views or bool(late)) and (halted or not final))
    check_order_of_keys(world)
    if final:
        _complete(world, numbers)


def _check_so_far(world: World) -> None:
    if wrong := wrong_so_far(world):
        raise Violation(wrong)


def _named_anew(world: World) -> set[int]:
    """Numbers of records that came late and for which the map may name others for the moment: a policy may have
    answered differently, or the source lost them."""
    shape = world.shape
    return world.late if shape.policies or shape.retention or shape.truncation else set()


def _not_looked_for(world: World) -> dict[int, int]:
    """Numbers of records that came late and that the source has deleted → what the ledger names instead. What a policy
    has changed is not looked for in the source."""
    runs = world.truth.lanes[LANE].source_runs
    log = world.target.brokers[world.target.leader].history if world.shape.policies else []
    stand = [(stored.sequence + at, number) for stored in log for at, number in enumerate(stored.numbers)]
    late = world.late & world.source.expired
    return {number: runs.offset_of(ordinal) or 0 for ordinal, number in stand if number in late}


def _taken_by_late_bytes(world: World) -> set[int]:
    """Source offsets whose ordinals belong to other records, which came so late that no rule can keep them out. A
    comparison does not show this, because a policy may change the same record in different ways."""
    if not world.shape.policies or not world.excused:
        return set()
    runs = world.truth.lanes[LANE].source_runs
    log = world.target.brokers[world.target.leader].history
    stand = [(stored.sequence + at, number) for stored in log for at, number in enumerate(stored.numbers)]
    return {runs.offset_of(ordinal) or 0 for ordinal, number in stand if number in world.excused}


def _lost_as_well(world: World) -> set[int]:
    """Numbers of records that came late and that the source has lost, like those that the ledger names instead."""
    record = world.truth.lanes[LANE]
    if not record.truncations:
        return set()
    log = world.target.brokers[world.target.leader].history
    stand = [(stored.sequence + at, number) for stored in log for at, number in enumerate(stored.numbers)]
    late = [each for each in stand if each[1] in world.late & world.source.cut]
    return {
        number for ordinal, number in late if is_truncated(record, ordinal, record.source_runs.offset_of(ordinal) or 0)
    }


def _left_open(world: World, *, late_only: bool = True) -> set[int]:
    """Numbers of records (that came late), at ordinals whose record is unknown according to the ledger."""
    log = world.target.brokers[world.target.leader].history
    stand = [(stored.sequence + at, number) for stored in log for at, number in enumerate(stored.numbers)]
    late = world.late | world.excused
    found = {number for ordinal, number in stand if number > 0 and is_left_open(world, ordinal, number)}
    return found & late if late_only else found


def _picture(world: World) -> tuple[int, ...]:
    """A value that changes whenever anything compared here does."""
    source, target = world.source, world.target
    there = (source.number, source.start, source.end, len(source.log), len(source.unwanted), len(source.open))
    here = (target.epoch, target.end, target.start, int(target.leapt), len(world.excused))
    return (*there, *here, len(world.ledger), len(world.hosts))


def _order(world: World, numbers: list[int], holes: list[tuple[int, int, int]], *, excused: bool) -> None:
    if len(set(numbers)) != len(numbers):
        twice = sorted(number for number in set(numbers) if numbers.count(number) > 1)
        if excused or all(number in world.excused or is_hidden_copy(world, number) for number in twice):
            return
        if {world.source.offset_of[number] for number in twice} <= world.named:
            return
        raise Violation(f"doubled: source offsets {[world.source.offset_of[number] for number in twice]}")
    # A broker that forgot the producer may accept a batch after one that it refused. That is in the log before anyone
    # can know; from then on only the end shows whether the lane found and repaired it.
    if holes or world.target.leapt or world.excused or world.shape.cleans:
        return
    without = _rejected(world, set(numbers)) | _skipped(world)
    wanted = [number for number in world.source.wanted() if world.source.offset_of[number] not in without]
    wanted = [number for number in wanted if number in numbers or number not in world.target.outlived]
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
            if not excused and not _filtered(world).issuperset(lost):
                raise Violation(f"lost or reordered in front of offset {world.source.offset_of[number]}: {lost}")
        last = at


def _target_map(world: World) -> None:
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
            recorded = record.target_runs.offset_of(stored.sequence + at)
            if recorded != stored.base + at and not may_be_forgotten(world, stored.sequence + at, stored.base + at):
                raise Violation(f"ordinal {stored.sequence + at} is at {stored.base + at}, the ledger says {recorded}")


def _translations(world: World) -> None:
    """Every offset of either side, translated, against what the logs hold."""
    if any(each.deleted for each in world.target.brokers):
        if wrong := wrong_translation(world):
            raise Violation(wrong)
        return
    log = [stored for stored in world.target.brokers[world.target.leader].log if stored.producer >= 0]
    stand = [(stored, at, number) for stored in log for at, number in enumerate(stored.numbers)]
    if _not_looked_for(world):
        return
    known = [each for each in stand if not is_left_open(world, each[0].sequence + each[1], each[2])]
    known = [each for each in known if not is_lost(world, each[2], each[0].sequence + each[1])]
    pairs = [(world.source.offset_of[number], stored.base + at) for stored, at, number in known]
    end, ordinal = log[-1].end, log[-1].sequence + log[-1].count
    record = world.truth.lanes[LANE]
    lane = LaneMap(record, CopiedPosition(ordinal, end, world.source.end))
    goes_on = record.source_runs.offset_of(ordinal)
    without = world.rejected | _skipped(world)
    for offset in range(world.source.end + 1):
        answer = lane.to_target(offset)
        true = min((there for here, there in pairs if here >= offset), default=end)
        stands = [there for here, there in pairs if here == offset]
        if answer.offset != true or (answer.kind in {"exact", "reordered"}) != bool(stands):
            raise Violation(f"source offset {offset} is translated to {answer}, expected {true}, {stands}")
        if stands and answer.record not in stands:
            raise Violation(f"the record at source offset {offset} is at {stands}, the answer is {answer}")
    for offset in range(end + 1):
        answer = lane.to_source(offset)
        true = min((here for here, there in pairs if there >= offset), default=goes_on)
        # A reader that continues at a skipped offset misses nothing, and sees nothing twice.
        early = answer.offset is not None and true is not None and answer.offset <= true
        early = early and without.issuperset(range(answer.offset or 0, true or 0))
        stands = [here for here, there in pairs if there == offset]
        if (answer.offset != true and not early) or (stands and answer.record != stands[0]):
            raise Violation(f"target offset {offset} is translated to {answer}, expected {true}, {stands}")


def _left_out(world: World, arrived: set[int]) -> None:
    """Records that the target refuses are skipped, and no others."""
    poison = {world.source.offset_of[number] for number in world.target.poison | world.target.former_poison}
    if arrived & world.target.poison or not world.rejected <= poison:
        raise Violation(f"left out are source offsets {sorted(world.rejected)}, refused were {sorted(poison)}")
    if len(set(world.letters.lying)) < len(world.letters.lying):
        raise Violation(f"parked twice: {world.letters.lying}")


def _sought(world: World, skipped: set[int]) -> None:
    """Everything skipped by commands was in one of them, and every command is carried out."""
    wanted = {offset for order in orders(world) for offset in range(order.start, order.end)}
    if not skipped <= wanted:
        raise Violation(f"left out by no order: source offsets {sorted(skipped - wanted)}")
    record = world.truth.lanes.get(LANE)
    # What the source has lost before the lane reached it is skipped once the source has grown that far again.
    left = [each for each in pending(record.seeks) if each.end <= world.source.end] if record is not None else []
    if left:
        raise Violation(f"an order was not carried out: {left}")


def _filtered(world: World) -> set[int]:
    """Source offsets that, according to the ledger, a filter has skipped."""
    gaps = world.gaps if world.shape.policies else ()
    return {offset for gap in gaps if gap.reason == "filtered" for offset in range(gap.start, gap.end)}


def _rejected(world: World, arrived: set[int]) -> set[int]:
    """Source offsets that were skipped because the target refuses their records. An offset that an unclean election
    removed belongs to another record by now, and that may have arrived."""
    offset_of = world.source.offset_of
    removed = {offset_of[number] for number in world.source.cut}
    return world.rejected - (removed & {offset_of[number] for number in arrived - world.source.cut if number > 0})


def _skipped(world: World) -> set[int]:
    """Source offsets that, according to the ledger, were skipped by a command to continue further ahead."""
    gaps = world.gaps if world.shape.seeks else ()
    return {offset for gap in gaps if gap.reason == "skipped" for offset in range(gap.start, gap.end)}


def _passed_over(world: World) -> set[int]:
    """Source offsets that a filter has skipped after the last copied record, or that are skipped because the target
    refuses their records. They need not be recorded yet.

    The former holder of the lane may have got another answer, which bound nothing.
    """
    record = world.truth.lanes.get(LANE)
    grant = record.grant if record is not None else 0
    live = [host.lane for host in world.hosts if host.alive and host.lane.grant == grant]
    verdicts = [verdict for lane in live for verdict in lane.skipped if verdict.reason in {"filtered", "rejected"}]
    return {offset for verdict in verdicts for offset in range(verdict.start, verdict.end)}


def _unseen(world: World, arrived: set[int]) -> set[int]:
    """Source offsets that may be in the target twice although the ledger does not know."""
    # Bytes that come after the last possible moment are found with the next batch, and a policy may skip that.
    unseen = {number for number in world.excused if world.shape.policies}
    unseen |= {number for number in arrived if world.shape.cleans and is_hidden_copy(world, number)}
    # Retention may have deleted a copy before anyone read it.
    deleted = world.target.brokers[world.target.leader].deleted
    unseen |= {number for stored in deleted for number in world.excused.intersection(stored.numbers)}
    return {world.source.offset_of[number] for number in unseen}


def _complete(world: World, numbers: list[int]) -> None:  # noqa: C901 -- one check after the other
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
    arrived, taken = set(numbers), world.target.taken()
    filtered, skipped = _filtered(world) | _passed_over(world), _skipped(world)
    wanted = [number for number in world.source.wanted() if number not in arrived | world.target.outlived]
    missing = [offset for offset in map(world.source.offset_of.__getitem__, wanted) if offset not in world.rejected]
    missing = [offset for offset in missing if offset not in filtered | skipped]
    # An offset that an unclean election removed belongs to another record by now.
    there = {world.source.offset_of[number] for number in arrived - world.source.cut}
    # An idle lane finds late bytes before it sends again; the ledger knows of neither yet.
    late = {world.source.offset_of[number] for number in world.late}
    both = sorted(_filtered(world) & there | _passed_over(world) & there - late)
    if both:
        raise Violation(f"copied, and the ledger says that a filter left them out: source offsets {both}")
    twice = {world.source.offset_of[number] for number in arrived if numbers.count(number) > 1}
    unseen = _unseen(world, arrived)
    if world.named - unseen != twice - unseen and not world.target.leapt:
        raise Violation(f"doubled are source offsets {sorted(twice)}, the ledger says {sorted(world.named)}")
    if record is not None and world.shape.cleans:
        _keys(world)
    if record is not None and not world.excused:
        _target_map(world)
        if numbers and not world.shape.cleans:
            _translations(world)
    missing = [offset for offset in missing if not is_superseded(world, offset) and not was_cleaned(world, offset)]
    missing = [offset for offset in missing if not is_older_than_copied(world, world.source.at(offset))]
    missing = [offset for offset in missing if offset not in _taken_by_late_bytes(world)]
    missing = [offset for offset in missing if not lost_without_trace(world, offset)]
    if missing:
        raise Violation(f"never arrived: source offsets {missing}")
    _left_out(world, arrived)
    offset_of = world.source.offset_of
    _sought(world, skipped)
    # What was skipped before it was deleted is none of these, and what nothing explains is a loss as well.
    recorded = world.lost | skipped | filtered | world.rejected | taken_offsets(world, arrived | taken)
    recorded |= recorded_as(world, "unexplained") | recorded_as(world, "expired")
    untaken = {number for number in world.source.expired - arrived - taken if not has_newer(world, number)}
    untaken = {number for number in untaken if not is_older_than_copied(world, number)}
    unknown = _not_looked_for(world)
    if unrecorded := sorted({offset_of[number] for number in untaken} - recorded - set(unknown.values())):
        raise Violation(f"deleted before they were copied, and the ledger does not say so: source offsets {unrecorded}")
    _check_expired(world, arrived - unknown.keys())
    _truncated(world, arrived)
    if record is not None and not unknown and (wrong := _wrong_verdicts(world, numbers)):
        raise Violation(wrong)
    for host in world.hosts:
        if host.alive and host.state.next_offset == len(world.ledger) and host.state != world.truth:
            raise Violation(f"{host.name} folded the same ledger to another state")


def _check_expired(world: World, arrived: set[int]) -> None:
    """A record that was copied is not recorded as deleted before that. A late record that has been deleted since counts
    as the one that the ledger names: no one can see a difference."""
    copied = (world.source.expired & arrived) - _left_open(world) - world.excused
    traced = {world.source.offset_of[number] for number in copied if not left_no_trace(world, number)}
    if falsely := sorted(traced & recorded_as(world, "expired")):
        raise Violation(f"copied, and the ledger says that they were deleted before: source offsets {falsely}")


def _wrong_verdicts(world: World, numbers: list[int]) -> str:
    """What is wrong with the verdicts, or empty."""
    if world.shape.cleans:
        return "" if world.excused else false_verdicts(world)
    return unaccounted(world, numbers)


def _keys(world: World) -> None:
    """The last value of each key is the newest: the source's, or a foreign one that was written after it."""
    without = _rejected(world, set(standing(world))) | _filtered(world) | _passed_over(world) | _skipped(world)
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
        if last is None:
            raise Violation(
                f"key {key} is missing, its newest record is at source offset {world.source.offset_of[number]}"
            )
        # What the source has lost since stays on the target, and the ledger says so. So does what it has cleaned.
        if last > 0 and last != number and last not in world.source.cut | world.source.unwanted:
            stale, wanted = world.source.offset_of[last], world.source.offset_of[number]
            raise Violation(f"key {key} is stale: it has the value of source offset {stale}, not of {wanted}")


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
        before = theirs.pop(key, []) if is_known(world, number) else []
        if before and world.known.is_over(number, before):
            raise Violation(f"key {key}: source offset {offset} was put over a newer record")
        own[key], number_at[key] = offset, number


def _may_halt(world: World, record: LaneState) -> bool:
    reason = record.halted.reason if record.halted is not None else ""
    if reason == "unexplained" and _named_anew(world):
        return True
    # The records to be compared are gone from both logs: the source has deleted them, and the target topic's cleaner or
    # an unclean election has removed them. So nothing shows which records the ordinals belong to
    # (docs/explanation/gaps.md, "Open").
    differs = record.last_check is not None and record.last_check.outcome == "different"
    is_gone = bool(world.target.lost) or not world.target.cleaned.isdisjoint(world.source.expired)
    if reason == "unexplained" and differs and world.shape.cleans and world.source.expired and is_gone:
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


def _truncated(world: World, arrived: set[int]) -> None:
    """Records that were copied and then lost by the source are recorded, from the first such offset on."""
    # What comes after the last possible moment, and that the source has lost since, cannot be compared any more.
    known = (arrived & world.source.cut) - _left_open(world, late_only=False) - _lost_as_well(world) - world.excused
    known -= world.source.untraced
    gone = {world.source.offset_of[number] for number in known}
    for each, removed in world.truncated:
        # The records between that offset and the first copied record may not have been copied.
        if removed is None or any(world.source.offset_of[number] < each.start for number in known & removed):
            raise Violation(f"recorded as truncated: {each}, the source parted at {sorted(world.source.parts)}")
    # Of offsets that the source uses again the last verdict may be about the later records.
    facts = [fact for entry in world.ledger for fact in entry.facts if isinstance(fact, SourceRun | VerdictGiven)]
    open_ = [each for fact in facts for each in fact.verdicts if each.reason == "unexplained"]
    said = {offset for each in open_ for offset in range(each.start, each.end)}
    said |= {offset for each, _ in world.truncated for offset in range(each.start, each.end)}
    if unrecorded := sorted(gone - said):
        raise Violation(f"copied and then lost by the source, and the ledger does not say so: {unrecorded}")
