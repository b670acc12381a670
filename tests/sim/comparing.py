"""How the simulation answers questions about the contents of the logs: with the product's own code, on readers of the
fake logs."""

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL
from mirrord.ledger.facts.core import Reason
from mirrord.replication.host.batch_relocation import BatchRelocation
from mirrord.replication.host.batch_verification import check
from mirrord.replication.host.own_batch_scan import scan
from mirrord.replication.host.retried_reads import is_repeated
from mirrord.replication.host.superseded_lookup import CopyRules, SupersededLookup
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import (
    AskCheck,
    AskRebuild,
    AskScan,
    CheckAnswer,
    RebuildAnswer,
    ScanAnswer,
)
from mirrord.replication.lane.source.left_out_ranges import left_out
from mirrord.replication.lane.source.recorded_epochs import UNKNOWN, recorded_at
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.fixtures.fake_pipe import as_any
from tests.sim.log_readers import PARTITION, SourceReader, TargetReader, at_once
from tests.sim.slow_brokers import READS
from tests.sim.transactions import uncommitted

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

AnswerT = TypeVar("AnswerT")


def _answer(work: Coroutine[Any, Any, AnswerT], failed: Callable[[int], AnswerT]) -> AnswerT:
    """What the work returns, or what `failed` makes of the error if a log cannot be read."""
    try:
        return at_once(work)
    except ReadFailed as failure:
        return failed(failure.error)


def _compacts(world: "World") -> Callable[[], Awaitable[bool]]:
    async def compacts() -> bool:
        return world.shape.cleans

    return compacts


def _source_compacts(world: "World") -> Callable[[], Awaitable[bool]]:
    async def compacts() -> bool:
        return world.shape.compaction

    return compacts


def is_asked_again(lane: Lane, question: Any, error: int) -> bool:
    """Whether a question about the contents of the logs is asked again after this error (`read_and_tell`)."""
    return error > 0 and isinstance(question, READS) and is_repeated(lane, question.question, error)


def scanned(world: "World", question: AskScan) -> ScanAnswer:
    """Find the lane's batches in the target (`LaneHost._scan`)."""
    target = as_any(TargetReader(world.target))
    failed = partial(
        ScanAnswer, question.question, purpose=question.purpose, start=question.start, end=question.end, own=()
    )
    return _answer(scan(target, PARTITION, question, _compacts(world)), failed)


def compared(world: "World", record: Any, question: AskCheck) -> CheckAnswer:
    """Compare the target's records with the source (`LaneHost._check`). No filter changes a record."""
    source, target = as_any(SourceReader(world.source)), as_any(TargetReader(world.target))
    failed = partial(CheckAnswer, question.question, first=question.first, last=question.last, outcome="unverifiable")
    answer = _answer(check((source, PARTITION), (target, PARTITION), (source, target), record, question), failed)
    if answer.outcome == "different" and not _differs(world, record, question):
        raise AssertionError(f"a comparison reports a difference where there is none: {answer.note}")
    return answer


def _differs(world: "World", record: Any, question: AskCheck) -> bool:
    """Whether the target holds another record than the source at an ordinal whose record is known according to the
    ledger."""
    own = (each for each in world.target.read(question.start, question.end) if each.producer == question.producer_id)
    stand = ((each.ordinal + at, number) for each in own for at, number in enumerate(each.numbers) if number)
    for ordinal, number in stand:
        is_void = any(hole.first <= ordinal <= hole.last for hole in record.holes)
        if question.first <= ordinal <= question.last and not is_void:
            offset = record.source_runs.offset_of(ordinal)
            if offset is not None and world.source.at(offset) not in {None, number}:
                return True
    return False


def relocated(world: "World", host: "Host", question: AskRebuild) -> RebuildAnswer:
    """Find the target's records in the source (`LaneHost._relocate`)."""
    assert host.lane.origins is None, "no story with other flows' copies in the source rebuilds a map"
    source, target = as_any(SourceReader(world.source)), as_any(TargetReader(world.target))
    read_committed = host.lane.read_committed
    asks = source, target
    search = BatchRelocation(source, target, PARTITION, PARTITION, asks, None, read_committed=read_committed)
    failed = partial(RebuildAnswer, question.question, own=(), located=None)
    record, compacts = host.record(), _compacts(world)
    compact = _source_compacts(world), compacts
    answer = _answer(search.run(record, question, *compact, is_filtered=world.shape.policies), failed)
    world.known.is_behind_returned |= _has_newer_than_returned(world, question)
    if not answer.error:
        is_unplaced = answer.located is None and not _holds_any(world, question)
        world.known.unplaced = question.first if is_unplaced else None
    return answer


def _has_newer_than_returned(world: "World", question: AskRebuild) -> bool:
    """Whether the target's log has other records after batches that an election has brought back, and whose ordinals
    belong to other records by now."""
    stand = world.target.read(question.start, question.end)
    returned = [
        stored.end
        for stored in stand
        if stored.producer == question.producer_id
        if any(start < stored.ordinal + stored.count and stored.ordinal < end for start, end in question.earlier)
    ]
    return bool(returned) and question.end > max(returned)


def _holds_any(world: "World", question: AskRebuild) -> bool:
    """Whether the source still has any of the lane's records that a rebuild is about."""
    source = world.source
    own = (each for each in world.target.read(question.start, question.end) if each.producer == question.producer_id)
    numbers = (number for stored in own for number in stored.numbers[max(question.first - stored.ordinal, 0) :])
    return any(source.at(source.offset_of[number]) == number for number in numbers if number)


def superseded(world: "World", host: "Host", question: AskSuperseded) -> SupersededAnswer:
    """Look up what is missing by its keys (`Lookups._look_up`)."""
    lane = host.lane
    assert lane.origins is None, "no story with other flows' copies in the source looks records up"
    source, target = as_any(SourceReader(world.source)), as_any(TargetReader(world.target))
    rules = CopyRules(lane.read_committed, partial(_decide, world) if world.shape.policies else None)
    sides = (source, PARTITION), (target, PARTITION)
    search = SupersededLookup(
        *sides, (source, target), host.record(), rules, is_open=lambda number: number in lane.questions
    )
    return _answer(search.run(question), partial(SupersededAnswer, question.question))


def _decide(world: "World", record: DecodedRecord, known: bool | None) -> DecodedRecord | Reason:
    """The filter (`RecordPolicies.decide`, `toy.Filter`)."""
    if world.shape.steady:
        return record if known or world.filter.keeps(record.offset) else "filtered"
    if world.filter.keeps(record.offset) if known is None else known:
        return record
    world.known.drop_again(number for number in world.known.taken if world.source.offset_of[number] >= record.offset)
    return "filtered"


def looked_up(world: "World", host: "Host", question: AskSuperseded) -> SupersededAnswer:
    """Look up what is missing, and note what the holder can know from that."""
    target, record = world.target, host.record()
    is_last = [each.kind == "last" for each in question.missing]
    assert is_last == sorted(is_last), "the host ends a lookup with the ranges of the kind `last`"
    answer = superseded(world, host, question)
    if answer.error:
        return answer
    asked = asked_about(world, record, question)
    committed, hidden = target.read(0, target.high_watermark), target.hidden(target.leader)
    between = [number for number, each in asked.items() if each.kind == "between"]
    world.known.look_up(host.name, asked, committed, target.epoch, hidden, between, uncommitted(target))
    found = presumed(world, asked, answer, may_be_appended_until(world, record, question))
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


def presumed(
    world: "World", asked: dict[int, Missing], answer: SupersededAnswer, appended_until: int = NEVER
) -> set[int]:
    """Return the records that a lookup rightly took for appended and then removed: nothing shows whether they were. The
    target has records of their keys, not before the gap, with timestamps that are not earlier (decision 94). The same
    goes for records that the target refused if other clients' records and later ones of the lane follow. Of what the
    source has deleted, the lane knows neither key nor timestamp. No record of the kind `last` at or above the ordinal
    `appended_until` was appended (`may_be_appended_until`)."""
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
        if each.kind == "between" or (each.kind == "last" and each.first < min(answer.until, appended_until))
    }
    found: set[int] = set()
    for number in unknown:
        offset, newest_ms = newest.get(world.target.key(number), (-1, -1))
        if offset >= asked[number].newer_from(asked[number].first) and newest_ms >= time_ms.get(number, 0):
            found.add(number)
    return found


def may_be_appended_until(world: "World", record: Any, question: AskSuperseded) -> int:
    """Return the ordinal after the last one of the kind `last` that may have been appended and then removed. The log
    has an empty offset for each such record, and no record follows one that no lane copies: one that is aborted or not
    committed, that is skipped, or whose leader epoch is not in the ledger. What the source has deleted cannot be shown
    to a filter."""
    source, last = world.source, [each for each in question.missing if each.kind == "last"]
    if not last:
        return NEVER
    there = {at for stored in world.target.brokers[world.target.leader].log for at in range(stored.base, stored.end)}
    room = len({*range(min(last[0].above, question.end), question.end)} - there)
    # These have no offsets.
    room += sum(each.last - each.first + 1 for each in (*record.displaced, *record.holes) if each.first <= each.last)
    passed = source.aborted_offsets()
    if world.shape.steady:
        passed |= {at for at in range(source.start, source.end) if not world.filter.keeps(at)}
    passed |= {batch.base for batch in source.log if batch.attributes & CONTROL}
    epochs = record.epochs if question.epochs is None else question.epochs
    ordinals = [ordinal for each in last for ordinal in range(each.first, each.last + 1)]
    for ordinal in ordinals[:room]:
        offset = record.source_runs.offset_of(ordinal)
        known = recorded_at(epochs, ordinal)
        is_later = source.epoch_of(offset) > known > UNKNOWN
        is_skipped = any(each.start <= offset < each.end and each.is_about(known) for each in left_out(record, 0))
        if is_skipped or offset in passed or offset >= source.last_stable or is_later:
            return ordinal
    return ordinals[0] + room
