"""The comparison of batches with the source, where the source has lost records and uses their offsets again."""

from collections.abc import Awaitable, Callable
from random import Random

import pytest
from msgspec.structs import replace

from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.ledger.facts.core import SourceRun, TargetRun, Verdict
from mirrord.model.errors import PolicyFault
from mirrord.model.runs import Run
from mirrord.replication.host.batch_verification import DELETED, LOST, BatchVerification, check
from mirrord.replication.host.unwritten_records import unwritten
from mirrord.replication.lane.signals import AskCheck
from mirrord.replication.lane.target.batch_compare import BatchFinding
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.superseded_logs import PARTITION, FakeLog, written
from tests.sim import toy
from tests.sim.log_readers import SourceReader, TargetReader, at_once
from tests.sim.source import FakeSource
from tests.sim.target import FakeTarget
from tests.unit.replication.lane.test_rebuilding import LANE, Play

PRODUCER = 501


async def compared(
    source: str,
    epochs: tuple[tuple[int, int], ...] = ((0, 3),),
    *,
    truncated: int | None = None,
    begin: int = 10,
    copies: str = "abcde",
    changing: Callable[[DecodedRecord], DecodedRecord] | None = None,
    reassigned: tuple[tuple[int, int], ...] = (),
) -> BatchFinding:
    """Compare the ordinals 0 to 4 of a target, with the keys `copies`, with the source offsets 10 to 14. The source's
    records from the offset `begin` on have the keys `source`, are all of leader epoch 4, and are all that the source
    has. According to the ledger, the source has lost what was copied from the offset `truncated` on."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 10),), (), epochs), TargetRun(LANE, 1, 0, 0, 1))
    if truncated is not None:
        play.fold(SourceRun(LANE, 1, (Run(5, truncated),), (Verdict(truncated, 15, "truncated"),), ((5, 3),)))
    end = begin + len(source)
    originals = FakeLog([written(begin, source)] if source else [], end, end, begin=begin)
    target = FakeLog([written(0, copies, producer=(PRODUCER, 0))], 5, 5)
    wanted = AskCheck(1, PRODUCER, 0, 4, 0, 5, 15, epochs, reassigned)
    sides = as_any(originals), as_any(target), PARTITION, PARTITION
    return await BatchVerification(*sides, play.record, wanted, changing).run((end, begin))


@pytest.mark.parametrize(
    ("source", "replaced", "equal_until"),
    [("xyzde", ((0, 3),), 5), ("abxyz", ((2, 5),), 2), ("xy", ((0, 5),), -1), ("ab", ((2, 5),), 2)],
)
async def test_what_the_source_has_in_place_of_copied_records(
    source: str, replaced: tuple[tuple[int, int], ...], equal_until: int
) -> None:
    finding = await compared(source)
    assert finding == BatchFinding("unverifiable", finding.note, (), equal_until, replaced)


async def test_the_very_same_records_in_a_later_epoch_are_equal() -> None:
    assert await compared("abcde") == BatchFinding("equal", equal_until=5)


async def test_only_a_record_of_the_recorded_epoch_differs() -> None:
    assert (await compared("xbcde", ((0, 4),))).outcome == "different"
    finding = await compared("xbcdy", ((0, 3), (4, 4)))
    assert (finding.outcome, finding.note) == ("different", "ordinal 4 (source offset 14) differs in its key")


async def test_records_that_the_source_has_lost_according_to_the_ledger_are_not_compared() -> None:
    finding = await compared("xyzuv", truncated=12)
    assert finding == BatchFinding("unverifiable", LOST.note, (), -1, ((0, 2),))


@pytest.mark.parametrize("end", [0, 9, 10])
async def test_a_source_log_that_ends_before_the_copied_records_has_lost_them(end: int) -> None:
    finding = await compared("", begin=end)
    assert finding == BatchFinding("unverifiable", finding.note, (), -1, ((0, 5),))


@pytest.mark.parametrize(("copies", "gone"), [("abcde", ((0, 2),)), ("a-cde", ((0, 1),)), ("--cde", ())])
async def test_records_after_deleted_ones_are_compared(copies: str, gone: tuple[tuple[int, int], ...]) -> None:
    """The source has deleted the first two records. Those that the target also lacks do not count as gone."""
    finding = await compared("cde", begin=12, copies=copies)
    assert finding == BatchFinding("unverifiable", finding.note, gone, 5)
    assert (await compared("cxe", ((0, 4),), begin=12, copies=copies)).outcome == "different"


async def test_all_copied_records_may_have_been_deleted() -> None:
    finding = await compared("vwxyz", begin=20)
    assert finding == BatchFinding("unverifiable", finding.note, ((0, 5),))


async def test_records_that_the_source_deletes_during_a_comparison_are_gone() -> None:
    """LOSS. The comparison did not report that the records were gone, so it ended the doubt about their ordinals."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 10),), (), ((0, 4),)), TargetRun(LANE, 1, 0, 0, 1))
    target = FakeLog([written(0, "abcde", producer=(PRODUCER, 0))], 5, 5)

    async def begin() -> int:
        return 12

    sides = as_any(FakeLog([written(12, "cde")], 15, 15, begin=12)), as_any(target), PARTITION, PARTITION
    comparison = BatchVerification(*sides, play.record, AskCheck(1, PRODUCER, 0, 4, 0, 5, 15, ((0, 4),)))
    finding = await comparison.run((15, 10), source_begin=begin)
    assert finding == BatchFinding("unverifiable", finding.note, ((0, 2),), 5)


async def after_retention(
    source: str, log_start: int, known: Callable[[], Awaitable[int]] | None = None, *, first: int = 0
) -> BatchFinding:
    """Compare the ordinals from `first` to 4 with the source offsets 10 to 14. The target has batches at the offsets 0
    and 2. Retention on the target has deleted the offsets below `log_start`."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 10),), (), ((0, 4),)), TargetRun(LANE, 1, 0, 0, 1))
    originals = FakeLog([written(10, source)], 15, 15, begin=10)
    copies = [written(0, "ab", producer=(PRODUCER, 0)), written(2, "cde", producer=(PRODUCER, 2))]
    target = FakeLog([each for each in copies if each.header.base_offset >= log_start], 5, 5, begin=log_start)

    async def begin() -> int:
        return log_start

    wanted = AskCheck(1, PRODUCER, first, 4, 0, 5, 15, ((0, 4),))
    sides = as_any(originals), as_any(target), PARTITION, PARTITION
    return await BatchVerification(*sides, play.record, wanted).run((15, 10), known or begin)


async def test_what_retention_has_left_on_the_target_is_compared() -> None:
    assert await after_retention("abcde", 2) == replace(DELETED, equal_until=5, deleted_until=2)
    assert await after_retention("xycde", 2) == replace(DELETED, equal_until=5, deleted_until=2)
    assert (await after_retention("abcdx", 2)).outcome == "different"
    assert await after_retention("abcde", 5) == replace(DELETED, deleted_until=5)


async def test_nothing_is_missing_if_retention_has_deleted_records_of_others_only() -> None:
    assert await after_retention("abcde", 2, first=2) == BatchFinding("equal", equal_until=5)


async def test_offsets_that_the_target_never_had_are_not_compared() -> None:
    async def begin() -> int:
        return 0

    assert await after_retention("abcde", 5, begin) == replace(DELETED, deleted_until=5)


@pytest.mark.parametrize(
    ("position", "epoch", "end"),
    [(-1, -1, -1), (2, -1, -1), (3, -1, -1), (4, 1, -1), (5, 2, -1), (6, -1, 5), (7, -1, 5)],
)
def test_the_lane_learns_what_precedes_its_position(position: int, epoch: int, end: int) -> None:
    """The source has the offsets 3, of epoch 1, and 4, of epoch 2."""
    source = FakeSource(Random(0))
    source.append(3, 1)
    for _ in range(2):
        source.elect()
        source.append(1, 1)
    source.expire(1)
    reads, copies = as_any(SourceReader(source)), as_any(TargetReader(FakeTarget()))
    wanted = AskCheck(1, PRODUCER, 0, -1, 0, 0, position)
    answer = at_once(check((reads, PARTITION), (copies, PARTITION), (reads, copies), Play.opened().record, wanted))
    assert (answer.source_epoch, answer.source_end) == (epoch, end)


async def test_the_note_does_not_say_why_the_source_lacks_records() -> None:
    """Retention may have deleted them after the bounds of the log were requested. An election may also have removed
    them."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 10),), (), ()), TargetRun(LANE, 1, 0, 0, 1))
    target = FakeLog([written(0, "abcde", producer=(PRODUCER, 0))], 5, 5)
    sides = as_any(FakeLog([], 20, 20, begin=15)), as_any(target), PARTITION, PARTITION
    finding = await BatchVerification(*sides, play.record, AskCheck(1, PRODUCER, 0, 4, 0, 5, 15)).run()
    assert (finding.outcome, finding.note) == ("unverifiable", "the source no longer has some of the records")


@pytest.mark.parametrize("copies", [(), ("ab",)])
async def test_records_of_which_the_target_has_none_are_not_equal(copies: tuple[str, ...]) -> None:
    """The target has no batch with ordinals 3 and 4, although the log was read from its beginning."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 10),), (), ((0, 4),)), TargetRun(LANE, 1, 0, 0, 1))
    target = FakeLog([written(0, each, producer=(PRODUCER, 0)) for each in copies], 5, 5)
    sides = as_any(FakeLog([written(10, "abcde")], 15, 15, begin=10)), as_any(target), PARTITION, PARTITION
    finding = await BatchVerification(*sides, play.record, AskCheck(1, PRODUCER, 3, 4, 0, 5, 15, ((0, 4),))).run()
    assert finding == BatchFinding("unverifiable", "the target has none of these records")


@pytest.mark.parametrize(
    ("elects", "epochs", "unwritten"),
    [
        (False, ((0, 0),), ((2, 4),)),
        (False, ((0, 0), (3, -1)), ((2, 3),)),
        (False, ((0, -1),), ()),
        (False, (), ()),
        (True, ((0, 0),), ()),
        (True, ((0, 1),), ((2, 4),)),
    ],
)
def test_a_leader_that_still_leads_in_the_epoch_of_the_records_has_lost_none(
    elects: bool, epochs: tuple[tuple[int, int], ...], unwritten: tuple[tuple[int, int], ...]
) -> None:
    """WRONG VERDICT. The source log ends at offset 2. Records at offsets 2 and 3 cannot have been copied in the epoch
    of its leader, although the target has records with their ordinals."""
    source, target, play = FakeSource(Random(0)), FakeTarget(1), Play.opened()
    source.append(4, 0)
    data = toy.encode(0, 3, source.log[0].records, newest_ms=0, producer=(PRODUCER, 0, 0))
    target.produce(0, bytes(data), 0)
    while target.replicate():
        pass
    source.log.clear()
    source.end = 0
    source.append(2, 0)
    source.log[0].records = [(offset, 1001 + offset) for offset in range(2)]
    if elects:
        source.elect()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), epochs), TargetRun(LANE, 1, 0, 0, 1))
    sides = as_any(SourceReader(source)), as_any(TargetReader(target))
    wanted = AskCheck(1, PRODUCER, 0, 3, 0, 4, 4, epochs)
    answer = at_once(check((sides[0], PARTITION), (sides[1], PARTITION), sides, play.record, wanted))
    assert (answer.outcome, answer.replaced, answer.unwritten) == ("unverifiable", ((2, 4),), unwritten)
    assert ("has not had a record for ordinal 2 yet" in answer.note) == bool(unwritten)


def test_a_log_that_has_grown_is_not_asked_about() -> None:
    """The source log has reached the offset of the first record since the records were read."""
    source = FakeSource(Random(0))
    source.append(3, 0)
    reader = as_any(SourceReader(source))
    assert at_once(unwritten(reader, PARTITION, [(0, 2), (1, 3)], ((0, 0),))) == ((1, 2),)


def unchanged(record: DecodedRecord) -> DecodedRecord:
    return record


def failing(record: DecodedRecord) -> DecodedRecord:
    raise PolicyFault(f"no answer for offset {record.offset}")


@pytest.mark.parametrize(
    ("reassigned", "outcome"),
    [((), "unverifiable"), (((0, 1), (3, 5)), "unverifiable"), (((1, 2),), "different"), (((0, 5),), "different")],
)
async def test_a_changed_record_differs_if_its_ordinal_was_assigned_to_another_one(
    reassigned: tuple[tuple[int, int], ...], outcome: str
) -> None:
    """LOSS. An election had brought back a batch whose ordinals belonged to other records by then. The transform might
    have changed, so the difference did not count, and the records in the map were never copied."""
    finding = await compared("axcde", ((0, 4),), changing=unchanged, reassigned=reassigned)
    assert finding.outcome == outcome, finding.note
    assert (await compared("abcde", ((0, 4),), changing=unchanged, reassigned=reassigned)).outcome == "equal"


async def test_reassigned_ordinals_that_a_policy_cannot_compare_are_not_settled() -> None:
    finding = await compared("xbcde", ((0, 4),), changing=failing, reassigned=((1, 3),))
    assert (finding.outcome, finding.gone) == ("unverifiable", ((1, 3),))
    assert (await compared("xbcde", ((0, 4),), changing=failing)).gone == ()
