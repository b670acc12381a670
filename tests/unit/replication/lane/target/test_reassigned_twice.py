"""Several ordinals are assigned to other records before a comparison is complete. Each of them is compared, and the
ledger does not limit the doubt before all of them have been acknowledged."""

import pytest

from mirrord.ledger.facts.core import LaneTaken, SourceRun, TakeoverChecked
from mirrord.model.runs import Run
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskEnd,
    AskScan,
    Bound,
    CheckAnswer,
    Chunk,
    Drain,
    Drained,
    Effects,
    EndAnswer,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ScanAnswer,
    TargetMoved,
    Wake,
    Woken,
)
from tests.sim import toy
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.target.test_target_retention import sandwich
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_interrupted_comparison import acknowledged
from tests.unit.replication.lane.test_last_comparison import later
from tests.unit.replication.lane.test_last_comparison import play as copied  # noqa: F401 -- a fixture
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at


def bind(play: Play, effects: Effects) -> Effects:
    """The ledger takes all facts. Return what follows."""
    appends = [each for each in effects if isinstance(each, Append)]
    return [found for each in appends for found in play.tell(Bound(each.tag, play.fold(*each.facts), play.record))]


def copy(play: Play, offset: int, *, other_than: int = -1) -> Produce:
    """Copy one record of the source. `other_than`: an open question that is not the fetch."""
    fetch = max(play.lane.questions - {other_than})
    effects = play.tell(
        chunk(
            FetchFrom(fetch, play.lane.round, play.lane.position, play.lane.epoch),
            data((offset, 1, 4, 0)),
            high_watermark=offset + 1,
            last_stable=offset + 1,
        )
    )
    return one([*effects, *bind(play, effects)], Produce)


def acknowledge(play: Play, produce: Produce, target_offset: int) -> Effects:
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, target_offset))
    return [*effects, *bind(play, effects)]


def answer(play: Play, check: AskCheck) -> Effects:
    """Target and source are equal."""
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=check.last + 1))
    return [*effects, *bind(play, effects)]


def test_a_record_that_was_acknowledged_during_the_last_comparison_is_compared(copied: Play) -> None:  # noqa: F811
    """LOSS. The last comparison includes ordinals 10 and 11. A late batch may have ordinal 12, and the lane's own batch
    may have been acknowledged as its repeat."""
    check = later(copied)
    acknowledge(copied, copy(copied, 13, other_than=check.question), 12)
    effects = answer(copied, check)
    assert copied.record.last_check == TakeoverChecked(LANE, 2, 10, 11, "equal", "", more=True)
    assert copied.record.regiven == 12
    second = one(effects, AskCheck)
    assert (second.first, second.last, copied.record.regiven_until) == (12, 12, 13)


def test_a_higher_ordinal_stays_in_doubt_after_the_last_comparison(copied: Play) -> None:  # noqa: F811
    """LOSS. Ordinals 12 and 13 are assigned again, and the last comparison includes only the lower one."""
    copied.lane.gap.compacts = True
    acknowledge(copied, copy(copied, 13), 12)
    copied.now = 20.0
    asked = one(copied.tell(Woken(ask(copied.lane))), AskEnd)
    check = one(copied.tell(EndAnswer(asked.question, 0, 1, 13)), AskCheck)
    assert (check.first, check.last) == (10, 12)
    produce = copy(copied, 15, other_than=check.question)  # the source has removed offset 14
    answer(copied, check)
    assert copied.record.regiven == 13
    second = one(acknowledge(copied, produce, 13), AskCheck)
    assert (second.first, second.last) == (13, 13)


def two_runs() -> tuple[Faulty, AskCheck, Produce]:
    """Ordinal 10 begins a run with a new source epoch. Ordinal 11 begins another one, because the source has removed
    offset 11. A former holder sent offsets 10 and 11 under these ordinals. Ordinal 10 has been acknowledged."""
    play = opened(*BEGUN)
    play.take(progress_at(10, state="copying"), cleanly=False)
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    effects = play.tell(chunk(fetch, data((10, 1, 1, 0), (12, 1, 1, 0)), high_watermark=13))
    effects += play.bind_all(effects)
    assert (play.record.regiven, play.record.source_runs.offset_of(11)) == (10, 12)
    effects = acknowledge(play, one(effects, Produce), 10)
    return play, one(effects, AskCheck), one(effects, Produce)


def test_each_run_of_one_fact_is_compared() -> None:
    """LOSS. The comparison of ordinal 10 removed the mark of ordinal 11."""
    play, check, produce = two_runs()
    assert (check.first, check.last, play.record.regiven_until) == (10, 10, -1)
    acknowledge(play, produce, 11)
    assert play.record.regiven_until == 12
    second = one(answer(play, check), AskCheck)
    assert (second.first, second.last) == (11, 11)
    assert (play.record.regiven, play.record.regiven_until) == (11, 12)
    answer(play, second)
    assert play.record.regiven == -1


def test_the_next_holder_doubts_an_ordinal_that_was_not_acknowledged() -> None:
    """LOSS. The replicator ends after ordinal 10 has been acknowledged. The target has the former holder's batches, and
    the source has deleted the record of ordinal 11, which was never copied."""
    play, _, _ = two_runs()
    retake(play, 10, 10, 10, epoch=1)
    effects = sandwich(play, 11, 12, 0)
    if scans := [each for each in effects if isinstance(each, AskScan)]:
        own = tuple(OwnBatch(at, 1, at, 0, 1) for at in range(scans[0].start, 12))
        scanned = ScanAnswer(scans[0].question, 0, scans[0].purpose, scans[0].start, scans[0].end, own, (), False)
        effects = play.tell(scanned)
    check = one(effects, AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable", "", gone=((11, 12),)))
    play.bind_all(effects)
    assert play.lane.phase is Phase.REBUILDING


def test_records_are_not_compared_again_while_a_comparison_is_open() -> None:
    """COST. An earlier attempt has sent the ordinals, and the source has removed each second record since. Each
    acknowledgement began another comparison from the first of these ordinals on."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    play.ask_target(10, last=9)
    play.lane.sent_below = 2000
    found, waiting = list[AskCheck](), list[AskCheck]()
    for at in range(60):
        offset = 12 + 2 * at
        buffer = bytearray(toy.encode(offset, offset, [(offset, 100 + offset)], newest_ms=1))
        fetch = max(play.lane.questions - {each.question for each in waiting})
        effects = play.tell(Chunk(fetch, 0, 500, 500, 0, (), buffer, 0, len(buffer)))
        effects += play.bind_all(effects)
        effects = acknowledge(play, one(effects, Produce), 10 + at)
        if at % 4 == 3 and waiting:
            effects += answer(play, waiting.pop())
        new = [each for each in effects if isinstance(each, AskCheck)]
        found, waiting = [*found, *new], [*waiting, *new]
    assert sum(each.last - each.first + 1 for each in found) <= 60
    assert found[-1].last >= 10 + 50


def read(play: Faulty, offset: int, *, other_than: int) -> Effects:
    buffer = bytearray(toy.encode(offset, offset, [(offset, 100 + offset)], newest_ms=1))
    fetch = max(play.lane.questions - {other_than})
    return play.tell(Chunk(fetch, 0, 40, 40, 0, (), buffer, 0, len(buffer)))


def test_a_mark_that_the_ledger_does_not_have_yet_is_not_forgotten() -> None:
    """NEEDLESS HALT. Ordinal 11 is acknowledged while the append that marks ordinal 12 is in progress. Ordinal 12 was
    never compared, and the ledger had no end of the doubt."""
    play, check = acknowledged()
    play.lane.sent_below = 13
    eleven = one(read(play, 13, other_than=check.question), Produce)
    pending = read(play, 15, other_than=check.question)
    checked = play.tell(CheckAnswer(check.question, 0, 10, 10, "equal", equal_until=11))
    effects = play.tell(ProduceAnswer(play.lane.round, eleven.batches[0], 0, 11))
    effects = [*bind(play, pending), *bind(play, checked), *bind(play, effects)]
    second = one(acknowledge(play, one(effects, Produce), 12), AskCheck)
    assert (second.first, second.last) == (11, 12)
    progress = progress_record(play.lane, 1, 1)
    assert progress is not None
    assert (progress.ordinal, play.record.regiven_until) == (13, 13)


def test_all_ordinals_that_were_sent_before_are_compared() -> None:
    """LOSS. Several batches may arrive late. One run assigns all of their ordinals to other records."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    play.ask_target(10, last=9)
    play.lane.sent_below = 15
    compared = set[int]()
    for at in range(5):
        effects = read(play, 12 + at, other_than=-1)
        effects += play.bind_all(effects)
        effects = acknowledge(play, one(effects, Produce), 10 + at)
        check = one(effects, AskCheck)
        compared.update(range(check.first, check.last + 1))
        answer(play, check)
    assert compared == {*range(10, 15)}
    assert play.record.regiven == -1


def test_a_mark_is_compared_after_the_last_comparison_has_been_skipped() -> None:
    """NEEDLESS DOUBT. A comparison at the resume is equal, but its append fails. The lane takes a new grant and is idle
    from then on."""
    play = opened(*BEGUN)
    play.fold(SourceRun(LANE, 1, (Run(10, 11),), (), (), regiven=True))
    play.take(progress_at(11, state="copying"), barrier_s=8.0, cleanly=False)
    check = one(play.ask_target(11, last=10), AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "equal", equal_until=11))
    append = next(each for each in effects if isinstance(each, Append))
    wake = one(play.tell(AppendFailed(append.tag, play.record)), Wake)
    play.now = wake.at
    play.bind(play.tell(Woken(wake.question)))
    play.ask_target(11, last=10)
    play.now += 20
    asked = one(play.tell(Woken(ask(play.lane))), AskEnd)
    check = one(play.tell(EndAnswer(asked.question, 0, 1, 11)), AskCheck)
    assert (check.first, check.last) == (10, 10)
    answer(play, check)
    assert play.record.regiven == play.lane.next_ordinal, "only the next ordinal is in doubt"


def reopened(play: Play) -> None:
    """The ledger has mark 12 without an end. The lane has resumed under another leader, at target offset 15, because
    others have written offsets 13 and 14. Then an append fails."""
    play.lane.late_writes.until = 30.0
    check = later(play)
    acknowledge(play, copy(play, 13, other_than=check.question), 12)
    answer(play, check)
    play.record.regiven_until = -1
    play.now = 31.0
    play.tell(TargetMoved(2))
    effects = sandwich(play, 12, 15, 0, age_ms=0, leader_epoch=2)
    while scans := [each for each in effects if isinstance(each, AskScan)]:
        log = (OwnBatch(0, 10, 0, 1, 1), OwnBatch(10, 2, 10, 1, 1), OwnBatch(12, 1, 12, 1, 1))
        own = tuple(each for each in log if each.base_offset + each.count > scans[0].start)
        scanned = (scans[0].question, 0, scans[0].purpose, scans[0].start, scans[0].end, own, ((13, 15),), False)
        effects = play.tell(ScanAnswer(*scanned))
        bind(play, effects)
    fetch = one(effects, FetchFrom)
    effects = play.tell(chunk(fetch, data((14, 1, 4, 0)), high_watermark=15, last_stable=15))
    produce = one([*effects, *bind(play, effects)], Produce)
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 16))
    append = next(each for each in effects if isinstance(each, Append))
    play.tell(AppendFailed(append.tag, play.record))
    assert play.lane.phase is Phase.OPENING


def test_a_drain_during_an_append_in_doubt_records_no_offset(copied: Play) -> None:  # noqa: F811
    """WRONG MAP. Ordinal 12 is at target offset 12. The lane recorded the offset at which it had resumed, and reported
    that it had been left cleanly."""
    reopened(copied)
    effects = copied.tell(Drain())
    effects += bind(copied, effects)
    assert copied.record.target_runs.offset_of(12) == 12
    assert not one(effects, Drained).clean


def test_a_drain_ends_if_the_ledger_does_not_take_the_end_of_the_doubt() -> None:
    """ENDLESS LOOP. Another replicator has taken the lane, and the lane appended the fact again and again."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    effects = play.chunk(one(play.ask_target(10, last=9), FetchFrom), 12)
    produce = one(play.bind_all(effects), Produce)
    play.tell(Drain())
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 10))
    play.fold(LaneTaken(LANE, play.record.grant + 1, "third", (0, 0)))
    for _ in range(3):
        effects = bind(play, effects)
    assert play.lane.phase is Phase.DRAINED


@pytest.mark.parametrize("end", [12, 13])
def test_a_comparison_keeps_an_end_above_the_ordinals_that_it_includes(end: int) -> None:
    """NEEDLESS HALT. The next holder would doubt everything from the higher ordinal on."""
    play, _, _ = two_runs()
    play.record.regiven_until = end
    play.fold(TakeoverChecked(LANE, play.record.grant, 10, 11, "equal", more=True))
    assert (play.record.regiven, play.record.regiven_until) == (12, 13 if end == 13 else -1)
