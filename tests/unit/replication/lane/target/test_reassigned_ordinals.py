"""Ordinals that were assigned to other records are compared once they have been acknowledged. What was acknowledged
after them is not in doubt."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AppendFailed,
    AskCheck,
    AskScan,
    CheckAnswer,
    Chunk,
    Drain,
    Drained,
    Effects,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ScanAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.transitions import Resume
from tests.sim import toy
from tests.unit.replication.lane.target.test_target_retention import sandwich
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_interrupted_comparison import acknowledged
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


def next_holder(play: Faulty, *, deleted_until: int = -1, gone: tuple[tuple[int, int], ...] = ()) -> Effects:
    """The next holder takes the lane. Ordinals 10 to 499 have been appended since the resume. The target has deleted
    those below `deleted_until`, and the source has deleted the records of the ordinals `gone`. Return the effects of
    the comparison."""
    retake(play, 500, 500, 502, epoch=1)
    effects = sandwich(play, 499, 500, max(deleted_until, 0))
    if scans := [each for each in effects if isinstance(each, AskScan)]:
        effects = scanned(play, scans[0])
    result = {"equal_until": 500, "deleted_until": deleted_until, "gone": gone}
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (10, 499)
    return play.tell(CheckAnswer(check.question, 0, 10, 499, "unverifiable", "deleted", **result))


def scanned(play: Faulty, scan: AskScan) -> Effects:
    own = (OwnBatch(scan.start, 500 - scan.start, scan.start, 0, 1),)
    return play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own, (), False))


@pytest.mark.parametrize("is_drained", [True, False])
def test_what_follows_acknowledged_ordinals_is_not_copied_again(*, is_drained: bool) -> None:
    """DOUBLED, or NEEDLESS HALT. The holder leaves the lane, or ends, while the comparison of ordinal 10 is open. Then
    retention on the target deletes ordinals 10 to 399. The next holder copied all of them again, or halted, because
    there were too many of them."""
    play, _ = acknowledged()
    if is_drained:
        assert one(play.tell(Drain()), Drained).clean
    effects = next_holder(play, deleted_until=400)
    play.bind_all(effects)
    assert [hole for hole in play.record.holes if hole.first <= hole.last] == []
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 500, 502)
    assert (play.record.regiven, play.record.regiven_until) == (-1, -1)


def test_records_that_nobody_received_an_acknowledgement_for_are_searched_for() -> None:
    """LOSS. The holder ended before the ledger knew which ordinals had been acknowledged."""
    play, _ = acknowledged()
    play.record.regiven_until = -1
    wake = one(next_holder(play, deleted_until=400), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    effects = scanned(play, one(sandwich(play, 499, 500, 400), AskScan))
    check = one(effects, AskCheck)
    play.tell(CheckAnswer(check.question, 0, 10, 499, "unverifiable", "deleted", deleted_until=400))
    assert play.lane.comparison.differs is not None
    assert play.lane.comparison.differs.first == 10


@pytest.mark.parametrize(("gone", "is_open"), [(((11, 400),), False), (((10, 400),), True)])
def test_records_that_the_source_has_deleted_are_searched_for_only_if_they_are_in_doubt(
    gone: tuple[tuple[int, int], ...], *, is_open: bool
) -> None:
    """NEEDLESS HALT."""
    play, _ = acknowledged()
    play.bind_all(next_holder(play, gone=gone))
    assert play.lane.phase is (Phase.REBUILDING if is_open else Phase.COPYING)
    assert is_open or play.record.regiven == -1


def test_a_position_above_the_ordinal_is_saved_once_the_ledger_limits_the_doubt() -> None:
    """The next holder would otherwise doubt everything above the ordinal."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    effects = play.chunk(one(play.ask_target(10, last=9), FetchFrom), 12)
    produce = one(play.bind_all(effects), Produce)
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 10))
    assert progress_record(play.lane, 1, 1) is None
    play.bind_all(effects)
    progress = progress_record(play.lane, 1, 1)
    assert progress is not None
    assert (progress.ordinal, play.record.regiven_until) == (11, 11)


def copied_from_the_middle(play: Faulty) -> Effects:
    """An earlier attempt has sent ordinals 10 to 13. The lane copies offsets 10, 11, 13 and 14: the source has deleted
    offset 12 since, so ordinal 12 gets another record. Return the effects of the acknowledgements."""
    play.lane.sent_below = 14
    effects: Effects = []
    for offset in (10, 11, 13, 14):
        data = bytearray(toy.encode(offset, offset, [(offset, 100 + offset)], newest_ms=1))
        got = play.tell(Chunk(max(play.lane.questions), 0, 20, 20, 0, (), data, 0, len(data)))
        effects += [*got, *play.bind_all(got)]
    assert play.record.regiven == 12
    target_offset, found = 10, list[Effects]()
    while batches := [batch for each in effects if isinstance(each, Produce) for batch in each.batches]:
        effects = []
        for batch in batches:
            effects += play.tell(ProduceAnswer(play.lane.round, batch, 0, target_offset))
            target_offset += batch.count
        found.append(effects)
        effects = [*effects, *play.bind_all(effects)]
    return [each for effects in found for each in effects]


def in_the_middle() -> tuple[Faulty, Effects]:
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    play.ask_target(10, last=9)
    return play, copied_from_the_middle(play)


def test_an_ordinal_in_the_middle_is_compared_when_it_has_been_acknowledged() -> None:
    """NEEDLESS HALT. Only the next holder compared it, together with all records copied since: by then, retention had
    deleted most of them."""
    play, effects = in_the_middle()
    check = one(effects, AskCheck)
    assert (check.first, check.start) == (12, 10)
    assert check.last == check.end - 1 == 12
    assert play.record.regiven_until == 14
    effects = play.tell(CheckAnswer(check.question, 0, 12, 12, "equal", equal_until=13))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (13, 13)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 13, 13, "equal", equal_until=14)))
    assert (play.record.regiven, play.lane.comparison.first_ack_check) == (-1, None)


def test_a_comparison_that_fails_is_repeated() -> None:
    play, check = acknowledged()
    wake = one(play.tell(CheckAnswer(check.question, 7, 10, 10, "unverifiable")), Wake)
    play.now = wake.at
    again = one(play.tell(Woken(wake.question)), AskCheck)
    assert again == replace(check, question=again.question)
    play.bind_all(play.tell(CheckAnswer(again.question, 0, 10, 10, "equal", equal_until=11)))
    assert play.record.regiven == -1


def test_another_reassigned_ordinal_is_not_settled_by_an_earlier_comparison() -> None:
    """The comparison of ordinal 10 is open when ordinal 12 is assigned to another record. The ledger marks only the
    lower one."""
    play, check = acknowledged()
    play.lane.sent_below = 12
    data = bytearray(toy.encode(15, 15, [(15, 115)], newest_ms=1))
    fetch = max(play.lane.questions - {check.question})
    effects = play.tell(Chunk(fetch, 0, 20, 20, 0, (), data, 0, len(data)))
    produce = one([*effects, *play.bind_all(effects)], Produce)
    assert (play.lane.comparison.due_at, play.lane.comparison.due_below) == (10, 12)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 10, 10, "equal", equal_until=11)))
    assert (play.record.regiven, play.record.regiven_until) == (11, -1)
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 11))
    play.bind_all(effects)
    second = one(effects, AskCheck)
    assert (second.first, second.last, play.record.regiven_until) == (11, 11, 12)
    play.bind_all(play.tell(CheckAnswer(second.question, 0, 11, 11, "equal", equal_until=12)))
    assert play.record.regiven == -1


def test_an_ordinal_is_compared_after_a_new_grant() -> None:
    """The comparison is interrupted by an append whose outcome is unknown. The lane takes a new grant, and continues
    above the ordinal."""
    play, _ = acknowledged()
    play.lane.comparison.first_ack_check = None
    play.lane.tag += 1
    play.lane.appends.add(play.lane.tag)
    effects = play.tell(AppendFailed(play.lane.tag, play.record))
    wake = one(effects, Wake)
    play.now = wake.at
    play.bind(play.tell(Woken(wake.question)))
    effects = play.ask_target(11, last=10)
    assert play.lane.phase is Phase.COPYING
    check = one(effects, AskCheck)
    assert (check.first, check.last, check.start, check.end) == (10, 10, 10, 11)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 10, 10, "equal", equal_until=11)))
    assert play.record.regiven == -1


def test_a_lane_that_is_drained_limits_the_doubt_before_it_leaves() -> None:
    """The acknowledgement arrives while the lane is being drained."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    effects = play.chunk(one(play.ask_target(10, last=9), FetchFrom), 12)
    produce = one(play.bind_all(effects), Produce)
    assert not [each for each in play.tell(Drain()) if isinstance(each, Drained)]
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 10))
    assert not [each for each in effects if isinstance(each, Drained)]
    assert one(play.bind_all(effects), Drained).clean
    assert (play.record.regiven, play.record.regiven_until) == (10, 11)


def test_a_comparison_begins_where_the_scan_has_found_the_records() -> None:
    """FALSE EVIDENCE. The comparison began above the record, because the ledger did not have its target offset yet, and
    found nothing to compare."""
    play = opened(SourceRun(LANE, 1, (Run(0, 6),), (), ((0, 0),), regiven=True))
    play.take(None)
    play.lane.has_policies = True  # the first comparison does not show which record the target holds
    scan = one(play.ask_target(1, last=0), AskScan)
    own = (OwnBatch(0, 1, 0, 0, 1),)
    check = one(play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own)), AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, 0, 0, "unverifiable"))
    assert (play.lane.phase, play.record.target_runs.offset_of(0)) == (Phase.COPYING, None)
    assert one(effects, AskCheck).start == 0
    play.lane.comparison.first_ack_check = replace(one(effects, AskCheck), start=1)
    play.lane.go(Resume())
    play.bind_all(effects)
    check = one(play.ask_target(1, last=0), AskCheck)
    assert (check.first, check.last, check.start) == (0, 0, 0)
