"""An election on the target interrupts the comparison of the first batch that was acknowledged after a takeover."""

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskScan,
    CheckAnswer,
    Effects,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ScanAnswer,
    TargetMoved,
)
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


def acknowledged(base_offset: int = 10) -> tuple[Faulty, AskCheck]:
    """The source no longer has offsets 10 and 11. A former holder, which has left the lane cleanly, may have sent them
    under ordinal 10, under which the lane has copied offset 12, after other clients' records up to `base_offset`.
    Return the comparison of ordinal 10."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    effects = play.chunk(one(play.ask_target(10, last=9), FetchFrom), 12)
    produce = one(play.bind_all(effects), Produce)
    assert play.record.regiven == 10
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, base_offset))
    play.bind_all(effects)
    return play, one(effects, AskCheck)


def after_election(play: Faulty, *own: OwnBatch) -> Effects:
    """Another leader has these batches of the lane, the last of its log."""
    play.tell(TargetMoved(2))
    end = max((each.base_offset + each.count for each in own), default=10)
    effects = play.ask_target(end, epoch=2, last=end - 1)
    while scans := [each for each in effects if isinstance(each, AskScan)]:
        (scan,) = scans
        found = tuple(each for each in own if each.base_offset + each.count > scan.start)
        effects = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, found, (), False))
        play.bind_all(effects)
    return effects


def test_an_interrupted_comparison_is_repeated() -> None:
    """LOSS. The ordinal stayed in doubt until another holder took the lane, which compared everything copied since. By
    then, the source may have deleted the record that the target lacks."""
    play, former = acknowledged()
    check = one(after_election(play, OwnBatch(0, 10, 0, 0, 1), OwnBatch(10, 1, 10, 0, 1)), AskCheck)
    assert (check.first, check.last, check.start, play.lane.phase) == (10, 10, 10, Phase.COPYING)
    assert play.tell(CheckAnswer(former.question, 0, 10, 10, "equal")) == []
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 10, 10, "equal", equal_until=11)))
    assert (play.lane.phase, play.lane.next_ordinal, play.record.regiven) == (Phase.COPYING, 11, -1)


def test_a_repeated_comparison_reads_up_to_the_new_end_of_the_log() -> None:
    """NO END. The election removed other clients' records, after which the lane's were appended. The comparison could
    not be read before the log had grown to its former end again. A later comparison of all records is pending."""
    play, _ = acknowledged(14)
    play.lane.comparison.later_pending = True
    check = one(after_election(play, OwnBatch(0, 10, 0, 0, 1), OwnBatch(10, 1, 10, 0, 1)), AskCheck)
    assert (check.first, check.last, check.start, check.end) == (10, 10, 10, 11)


def test_a_comparison_that_has_ended_is_not_repeated() -> None:
    play, check = acknowledged()
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 10, 10, "equal", equal_until=11)))
    effects = after_election(play, OwnBatch(0, 10, 0, 0, 1), OwnBatch(10, 1, 10, 0, 1))
    assert not [each for each in effects if isinstance(each, AskCheck)]
    assert (play.lane.phase, play.record.regiven) == (Phase.COPYING, -1)


def test_a_batch_that_was_lost_before_its_comparison_is_compared_when_it_is_appended_again() -> None:
    play, _ = acknowledged()
    effects = after_election(play, OwnBatch(0, 10, 0, 0, 1))
    assert play.lane.next_ordinal == 10
    effects = play.chunk(one(effects, FetchFrom), 12)
    produce = one([*effects, *play.bind_all(effects)], Produce)
    effects = play.tell(ProduceAnswer(play.lane.round, produce.batches[0], 0, 10))
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (10, 10)
