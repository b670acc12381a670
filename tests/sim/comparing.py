"""How the simulation compares foreign batches of a lane's range with the source, and finds them there again."""

from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.kafka.protocol.sequence import SEQUENCES
from mirrord.model.intervals import ranges
from mirrord.replication.lane.signals import (
    AskCheck,
    AskRebuild,
    AskScan,
    CheckAnswer,
    OwnBatch,
    RebuildAnswer,
    ScanAnswer,
)
from mirrord.replication.lane.source.source_epochs import (
    Epochs,
    epoch_at,
    is_of_later_epoch,
    is_truncated,
)
from mirrord.replication.lane.source.source_epochs import mapped as standing_pieces
from mirrord.replication.lane.target import missing_records
from mirrord.replication.lane.target.batch_relocation import (
    Range,
    SourceBatch,
    TargetBatch,
    Unplaced,
    covered_below,
    is_open,
    last_below,
    locate,
    search_range,
)
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer, SupersededJudge
from mirrord.replication.lane.target.target_scan import but_not_void
from tests.sim.source import OUT_OF_RANGE

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


def scanned(world: "World", question: AskScan) -> ScanAnswer:
    """Read the target by batch headers (`mirrord.replication.host.own_batch_scan.own_batches`)."""
    error = 0 if world.target.high_watermark >= question.end else 7
    error = OUT_OF_RANGE if question.start < world.target.start else error
    found = world.target.read(question.start, question.end)
    own = tuple(
        OwnBatch(stored.base, stored.count, stored.sequence % SEQUENCES, 0, stored.leader_epoch)
        for stored in found
        if stored.producer == question.producer_id
    )
    others = tuple((stored.base, stored.end) for stored in found if stored.producer != question.producer_id)
    stretch = (question.purpose, question.start, question.end)
    return ScanAnswer(question.question, error, *stretch, own, others, world.shape.cleans)


def compared(world: "World", record: Any, question: AskCheck) -> CheckAnswer:
    """Compare the target's records with the source (`mirrord.replication.host.batch_verification`)."""
    error = 0 if world.target.high_watermark >= question.end else 7
    runs = record.source_runs
    is_deleted = question.start < world.target.start
    outcome, note, gone, replaced, equal_until = (
        "unverifiable" if is_deleted else "equal",
        "",
        list[int](),
        list[int](),
        -1,
    )
    for stored in world.target.read(question.start, question.end):
        if stored.producer != question.producer_id:
            continue
        for at, number in enumerate(stored.numbers):
            ordinal = stored.sequence + at
            within = question.first <= ordinal <= question.last
            if not within or not but_not_void(record.holes, ordinal, ordinal):
                continue
            if not number:
                outcome = "unverifiable" if outcome == "equal" else outcome
                continue
            offset = runs.offset_of(ordinal) or 0
            there, epoch = world.source.at(offset), epoch_at(question.epochs, ordinal)
            is_another = epoch >= 0 and world.source.epoch_of(offset) != epoch and there != number
            is_lost = is_truncated(record, ordinal, offset)
            gone += [ordinal] if there is None and offset < world.source.end else []
            replaced += [ordinal] if (there is None or is_another) and ordinal not in gone and not is_lost else []
            if is_lost or is_another:
                there = None
            if there is None and outcome == "equal":
                outcome = "unverifiable"
            elif there is not None and there != number:
                outcome, note = "different", f"ordinal {ordinal}"
            elif there == number:
                equal_until = ordinal + 1
    behind = next((each for each in world.source.log if each.base < question.position <= each.last + 1), None)
    epoch = -1 if behind is None else behind.epoch
    end = world.source.end if world.source.end < question.position else -1
    answer = (
        question.question,
        error,
        question.first,
        question.last,
        outcome,
        note,
        epoch,
        end,
        ranges(gone),
        equal_until,
        ranges(replaced),
    )
    return CheckAnswer(*answer)  # type: ignore[arg-type]


def relocated(world: "World", record: Any, question: AskRebuild) -> RebuildAnswer:
    """Find the target's records in the source (`mirrord.replication.host.batch_relocation`)."""
    read = world.target.read(question.start, question.end)
    stored = [each for each in read if each.producer == question.producer_id]
    own = tuple(OwnBatch(each.base, each.count, each.sequence % SEQUENCES, 0) for each in stored)
    if world.target.high_watermark < question.end:
        return RebuildAnswer(question.question, 7, (), None)
    if question.start < world.target.start:
        return RebuildAnswer(question.question, OUT_OF_RANGE, (), None)
    if world.shape.policies:
        # As the host of a lane answers (`mirrord.replication.host.lane_host`): such a lane has to wait, so nothing
        # needs to be found.
        return RebuildAnswer(question.question, 0, own, None, "its records go through a policy")
    first = question.first
    cuts = [(each, max(first - each.sequence, 0)) for each in stored if each.sequence + each.count > first]
    standing = [
        TargetBatch(each.sequence + cut, [number or None for number in each.numbers[cut:]]) for each, cut in cuts
    ]
    last = max((each.first + len(each.contents) for each in standing), default=first) - 1
    searched = search_range(record, first, last)
    searched = Range(searched.start, max(min(searched.end, world.source.last_stable), searched.start))
    lost = world.source.aborted_offsets()
    originals = [
        SourceBatch(each.base, each.last + 1, {} if uncopied else dict(each.records), not uncopied, each.epoch)
        for each in world.source.log
        for uncopied in (bool(each.attributes & CONTROL) or each.base in lost,)
        if each.last >= searched.start and each.base < searched.end
    ]
    try:
        below = covered_below(record, first), last_below(record, first)
        located = locate(standing, originals, *below, searched, partial(is_open, record), record.source_runs.offset_of)
    except Unplaced as why:
        numbers = (number for batch in standing for number in batch.contents if isinstance(number, int) and number)
        is_there = any(world.source.at(world.source.offset_of[number]) == number for number in numbers)
        world.known.unplaced = None if is_there else first
        return RebuildAnswer(question.question, 0, own, None, str(why))
    world.known.unplaced = None
    located = replace(located, source_start=world.source.start)
    return RebuildAnswer(question.question, 0, own, located, compacts=world.shape.cleans)


def _expect(world: "World", epochs: Epochs, judge: SupersededJudge, missing: Missing, places: tuple[int, int]) -> None:
    """Look up one missing record in the source, by its ordinal and its source offset."""
    ordinal, offset = places
    if offset >= world.source.last_stable:
        return  # of an open transaction, or after one: no lane has copied it yet
    number = world.source.at(offset)
    batch = next((each for each in world.source.log if each.base <= offset <= each.last), None)
    if offset in world.source.aborted_offsets() or (batch is not None and batch.attributes & CONTROL):
        if missing.kind != "last":
            judge.gone(missing, ordinal, by_retention=False)
    elif number is not None and batch is not None:
        if not is_of_later_epoch(epochs, ordinal, batch.epoch):
            key = world.target.key(number)
            judge.expect(missing, ordinal, offset, key, batch.newest_ms, source_epoch=batch.epoch)
    elif offset < world.source.end:
        judge.gone(missing, ordinal, by_retention=offset < world.source.start)


def superseded(world: "World", record: Any, question: AskSuperseded) -> SupersededAnswer:
    """Look up what is missing by its keys (`mirrord.replication.host.superseded_lookup`)."""
    if world.target.high_watermark < question.end:
        return SupersededAnswer(question.question, 7)
    judge = SupersededJudge(question)
    epochs = record.epochs if question.epochs is None else question.epochs
    for missing in question.missing:
        for ordinal in missing_records.without_record(record, missing):
            judge.gone(missing, ordinal, by_retention=False)
        for first, start, length in missing_records.pieces(record, missing):
            for at in range(length):
                _expect(world, epochs, judge, missing, (first + at, start + at))
    for stored in world.target.read(0, world.target.high_watermark):
        for at, number in enumerate(stored.numbers):
            if number:
                sequence = (stored.sequence + at) % SEQUENCES if stored.producer == record.producer_id else -1
                key = world.target.key(number)
                judge.see(stored.base + at, key, stored.newest_ms, stored.leader_epoch, sequence)
    lowest = judge.lowest_left()
    for first, start, length in (piece for each in question.appended for piece in standing_pieces(record, *each)):
        for at in range(max(lowest + 1 - start, 0), length):
            number = world.source.at(start + at)
            if number is not None and not is_of_later_epoch(
                record.epochs, first + at, world.source.epoch_of(start + at)
            ):
                judge.see_appended(world.target.key(number), start + at)
    return judge.answer()


def looked_up(world: "World", host: "Host", question: AskSuperseded) -> SupersededAnswer:
    """Look up what is missing, and note what the holder can know from that."""
    target, record = world.target, host.record()
    is_last = [each.kind == "last" for each in question.missing]
    assert is_last == sorted(is_last), "the host ends a lookup with the ranges of the kind `last`"
    asked = asked_about(world, record, question)
    committed, hidden = target.read(0, target.high_watermark), target.hidden(target.leader)
    between = [number for number, each in asked.items() if each.kind == "between"]
    world.known.look_up(host.name, asked, committed, target.epoch, hidden, between)
    answer = superseded(world, record, question)
    found = presumed(world, asked, answer)
    world.known.presumed |= found
    world.known.presume(found, target.brokers[target.leader], question.end, target.key)
    return answer


def asked_about(world: "World", record: Any, question: AskSuperseded) -> dict[int, Missing]:
    """Return the numbers of the records that a lookup is about, each with the range that it is part of."""
    asked = {
        record.source_runs.offset_of(ordinal): (ordinal, each)
        for each in question.missing
        for ordinal in range(each.first, each.last + 1)
    }
    there = [(offset, number) for batch in world.source.log for offset, number in batch.records]
    there += [(world.source.offset_of[number], number) for number in world.source.expired - world.source.cut]
    return {number: replace(asked[offset][1], first=asked[offset][0]) for offset, number in there if offset in asked}


def presumed(world: "World", asked: dict[int, Missing], answer: SupersededAnswer) -> set[int]:
    """Return the records that a lookup rightly took for appended and then removed: nothing shows whether they were. The
    target has records of their keys, not before the gap, with timestamps that are not earlier (decision 94). The same
    goes for records that the target refused if other clients' records and later ones of the lane follow. Of what the
    source has deleted, the lane knows neither key nor timestamp."""
    newest: dict[int, tuple[int, int]] = {}
    for stored in world.target.read(0, world.target.high_watermark):
        for offset, number in enumerate(stored.numbers, stored.base):
            newest |= {world.target.key(number): (offset, stored.newest_ms)} if number else {}
    time_ms = {number: batch.newest_ms for batch in world.source.log for _, number in batch.records}
    again = {at for first, last in answer.again for at in range(first, last + 1)}
    unknown = {
        number
        for number, each in asked.items()
        if each.first not in again
        if each.kind == "between" or (each.kind == "last" and each.first < answer.until)
    }
    found: set[int] = set()
    for number in unknown:
        offset, newest_ms = newest.get(world.target.key(number), (-1, -1))
        if offset >= asked[number].newer_from(asked[number].first) and newest_ms >= time_ms.get(number, 0):
            found.add(number)
    return found
