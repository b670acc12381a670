"""A fault while the lane still handles an earlier one: what the first one found may no longer be true."""

from typing import TypeVar

import msgspec
import pytest

from mirrord.ledger.facts.core import HoleFound, LaneFact, Progress, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.lane_report import progress_record as progress_of
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskEnd,
    AskRebuild,
    AskScan,
    Bound,
    CheckAnswer,
    Chunk,
    Drain,
    Drained,
    Effect,
    Effects,
    EndAnswer,
    FetchFrom,
    Halted,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ProducerEntry,
    ProducersAnswer,
    RebuildAnswer,
    ScanAnswer,
    Start,
    VisibleAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.scan_result import Log
from mirrord.replication.lane.target.superseded_records import AskShared, AskSuperseded, SharedAnswer, SupersededAnswer
from mirrord.replication.lane.target.target_scan import walk
from tests.sim import toy
from tests.unit.replication.lane.test_rebuilding import LANE, Play


class Faulty(Play):
    """A lane whose fake target answers with a given end and leader epoch."""

    def take(self, progress: Progress | None, *, barrier_s: float = 0.0, cleanly: bool = True) -> None:
        self.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
        self.lane.gap.compacts = True
        self.bind_all(self.bind(self.tell(Start(self.record, progress, "second", barrier_s, cleanly))))

    def ask_target(self, end: int, epoch: int = 1, last: int | None = None) -> Effects:
        entry = None if last is None else ProducerEntry(last, 1000)
        self.tell(EndAnswer(self.lane.asked, 0, epoch, end))
        self.now = max(self.now, self.lane.late_writes.until if last is None else 0.0)
        self.tell(ProducersAnswer(self.lane.asked, 0, entry))
        self.tell(EndAnswer(self.lane.asked, 0, epoch, end))
        return self.tell(VisibleAnswer(self.lane.asked, 0, end, 0))

    def read(self, effects: Effects, log: tuple[OwnBatch, ...], others: tuple[tuple[int, int], ...] = ()) -> Effects:
        """Answer the questions about a compacted target log: its own batches, and foreign records."""
        while asked := [each for each in effects if isinstance(each, AskScan)]:
            own = tuple(each for each in log if each.base_offset + each.count > asked[0].start)
            answer = ScanAnswer(asked[0].question, 0, asked[0].purpose, asked[0].start, asked[0].end, own, others, True)
            effects = self.tell(answer)
        return effects

    def bind_all(self, effects: Effects) -> Effects:
        found: Effects = []
        for each in effects:
            if isinstance(each, Append):
                found += self.tell(Bound(each.tag, self.fold(*each.facts), self.record))
        return found

    def chunk(self, fetch: FetchFrom, offset: int) -> Effects:
        data = bytearray(toy.encode(offset, offset, [(offset, 100 + offset)], newest_ms=1))
        return self.tell(Chunk(fetch.question, 0, 20, 20, 0, (), data, 0, len(data)))


def opened(*facts: LaneFact) -> Faulty:
    play = Play.opened()
    found = Faulty(play.state)
    found.fold(*facts)
    return found


T = TypeVar("T", bound=Effect)


def one(effects: Effects, kind: type[T]) -> T:
    (found,) = [each for each in effects if isinstance(each, kind)]
    return found


def progress_at(ordinal: int, *, state: str = "drained", epoch: int = 1) -> Progress:
    return Progress(LANE, 1, 1, ordinal, ordinal, epoch, ordinal, 20, 1, 1, True, state, source_epoch=0)


BEGUN = (SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)), TargetRun(LANE, 1, 0, 0, 1))


def test_a_hole_of_an_interrupted_round_is_not_mended_in_a_log_that_has_lost_it() -> None:
    play = opened(*BEGUN)
    play.take(None, cleanly=False)
    scan = one(play.ask_target(9), AskScan)
    own = (OwnBatch(0, 6, 0, 0, 1), OwnBatch(6, 3, 8, 0, 1))  # a hole: ordinals 6 and 7
    check = one(play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own)), AskCheck)
    # An unclean election removes all of it, so the comparison cannot be made.
    wake = one(play.tell(CheckAnswer(check.question, 7, 0, 10, "unverifiable")), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    play.bind_all(play.ask_target(0, epoch=3))
    assert play.lane.phase is Phase.COPYING
    assert (play.lane.next_ordinal, play.lane.position, [*play.lane.plan]) == (0, 0, [])


def test_a_rebuilt_map_names_the_ordinals_before_a_late_batch_in_a_hole() -> None:
    """The hole is recorded again as it is now: the half before the batch."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 9, 5, 1))
    play.fold(HoleFound(LANE, 1, 5, 8, 13, 17), SourceRun(LANE, 1, (Run(13, 5), Run(17, 13))))
    play.take(msgspec.structs.replace(progress_at(17, state="copying"), target_offset=13))
    log = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(5, 2, 7, 0, 2))
    effects = play.ask_target(7, epoch=2)
    while scans := [each for each in effects if isinstance(each, AskScan)]:
        own = tuple(each for each in log if each.base_offset + each.count > scans[0].start)
        effects = play.tell(ScanAnswer(scans[0].question, 0, scans[0].purpose, scans[0].start, scans[0].end, own))
    play.bind_all(effects)
    effects = play.ask_target(7, epoch=2)
    while scans := [each for each in effects if isinstance(each, AskScan)]:
        own = tuple(each for each in log if each.base_offset + each.count > scans[0].start)
        effects = play.tell(ScanAnswer(scans[0].question, 0, scans[0].purpose, scans[0].start, scans[0].end, own))
    asked = one(effects, AskRebuild)
    located = Located((Run(7, 7),), (), ((5, 7),), 9)
    play.bind_all(play.tell(RebuildAnswer(asked.question, 0, log[1:], located)))
    assert [(hole.first, hole.last) for hole in play.record.holes if hole.first <= hole.last] == [(5, 6)]
    assert play.record.source_runs.offset_of(5) == 5


def test_a_doubt_that_arises_after_a_comparison_is_not_settled_by_it() -> None:
    play = opened(*BEGUN)
    play.fold(SourceRun(LANE, 1, (Run(10, 11),), (), (), True))  # another record may have been sent under ordinal 10
    play.take(progress_at(10))
    check = one(play.ask_target(13, last=12), AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, 10, 12, "equal", "", 0, equal_until=13))
    fetch = one(effects, FetchFrom)
    play.bind_all(effects)
    # The source's cleaner has removed a record, so a run begins at ordinal 13 before the first acknowledgement.
    produce = one(play.bind_all(play.chunk(fetch, fetch.position + 1)), Produce)
    assert play.record.regiven == 13
    check = one(play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 13)), AskCheck)
    gone = CheckAnswer(check.question, 0, check.first, check.last, "unverifiable", "gone", 0, gone=((13, 14),))
    one(play.tell(gone), Halted)
    assert play.lane.phase is Phase.REBUILDING


def test_a_lane_whose_leader_has_not_answered_since_a_batch_was_given_up_does_not_leave_cleanly() -> None:
    """The broker is suspended, and reads the batch from its socket whenever it wakes up."""
    play = opened(*BEGUN)
    play.take(progress_at(10))
    fetch = one(play.ask_target(10, last=9), FetchFrom)
    effects = play.chunk(fetch, 10)
    produce, fetch = one(effects, Produce), one(effects, FetchFrom)
    play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 10))
    produce = one(play.chunk(fetch, 11), Produce)
    play.now = 9.0
    effects = play.tell(ProduceAnswer(produce.round, produce.batches[0], 13, -1))
    while play.now < 40:
        if wakes := [each for each in effects if isinstance(each, Wake)]:
            play.now = max(play.now, wakes[0].at)
            effects = play.tell(Woken(wakes[0].question))
        else:
            play.now += 8
            effects = play.tell(EndAnswer(one(effects, AskEnd).question, 13, -1, -1))
    assert play.now > play.lane.late_writes.until
    assert not one(play.tell(Drain()), Drained).clean
    progress = progress_of(play.lane, 1, 1)
    assert progress is not None
    assert progress.state != "drained"


def test_the_second_look_waits_again_after_a_late_first_answer() -> None:
    """A former holder's batch may be in the socket of a broker that was suspended when the holder's time ran out."""
    play = opened(*BEGUN)
    play.take(progress_at(11, state="copying"), barrier_s=14.0, cleanly=False)
    effects = play.ask_target(11, last=10)
    fetch, wake = one(effects, FetchFrom), one(effects, Wake)
    produce = one(play.chunk(fetch, 11), Produce)
    check = one(play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 11)), AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 11, 11, "equal", "", 0, equal_until=12)))
    play.now = max(wake.at, 14.0)
    asked = one(play.tell(Woken(wake.question)), AskEnd)
    play.now += 8.0
    wake = one(play.tell(EndAnswer(asked.question, 13, -1, -1)), Wake)
    play.now = wake.at
    asked = one(play.tell(Woken(wake.question)), AskEnd)
    play.now += 7.0
    wake = one(play.tell(EndAnswer(asked.question, 0, 1, 12)), Wake)
    assert wake.at >= play.now + play.lane.limits.request_timeout_s
    assert play.lane.comparison.later_pending
    # It asks again then, and the second answer comes at once.
    play.now = wake.at
    asked = one(play.tell(Woken(wake.question)), AskEnd)
    one(play.tell(EndAnswer(asked.question, 0, 1, 12)), AskCheck)


def differing_compacted() -> tuple[Faulty, Effects]:
    """Ordinals 10 to 15 differ. Then an election removes 5 to 9, others write there, and 10 to 15 arrive again."""
    play = opened(*BEGUN)
    play.take(progress_at(10, state="copying"))
    scan = one(play.ask_target(16), AskScan)
    own = (OwnBatch(8, 2, 8, 0, 1), OwnBatch(10, 3, 10, 0, 1), OwnBatch(13, 3, 13, 0, 1))
    check = one(play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own, (), True)), AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 10, 15, "different", "ordinal 12 differs in its value")))
    shared = one(play.ask_target(16, epoch=2), AskShared)
    log = (OwnBatch(0, 5, 0, 0, 1), OwnBatch(10, 3, 10, 0, 2), OwnBatch(13, 3, 13, 0, 2))
    return play, play.read(play.tell(SharedAnswer(shared.question, 0, 1, 5)), log, ((5, 10),))


@pytest.mark.parametrize(("again", "first"), [(((5, 9),), 5), (((7, 7),), 7), ((), 10)])
def test_records_that_a_compacted_copy_lost_below_a_difference_belong_to_it(
    again: tuple[tuple[int, int], ...], first: int
) -> None:
    play, effects = differing_compacted()
    asked = one(effects, AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(5, 9)]
    rebuild = one(play.tell(SupersededAnswer(asked.question, 0, again)), AskRebuild)
    assert rebuild.first == first


@pytest.mark.parametrize(("again", "first"), [((), 8), (((2, 3),), 2)])
def test_records_that_a_cleaner_removed_are_not_a_difference(again: tuple[tuple[int, int], ...], first: int) -> None:
    """An election has truncated the target log to offset 8. A late batch with ordinals 8 and 9, which were a hole, is
    then appended there. Ordinals 2 and 3 are missing from the log as well."""
    play = opened(*BEGUN, TargetRun(LANE, 1, 10, 8, 1))
    play.fold(HoleFound(LANE, 1, 8, 9, 16, 18), SourceRun(LANE, 1, (Run(16, 8), Run(18, 16))))
    play.take(msgspec.structs.replace(progress_at(18, state="copying", epoch=3), target_offset=16))
    log = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(4, 4, 4, 0, 1), OwnBatch(8, 2, 8, 0, 4))
    effects = play.read(play.ask_target(10, epoch=4), log)
    if shared := [each for each in effects if isinstance(each, AskShared)]:
        effects = play.read(play.tell(SharedAnswer(shared[0].question, 0, 2, 8)), log)
    asked = one(effects, AskSuperseded)
    play.tell(SupersededAnswer(asked.question, 0, again))
    assert play.lane.comparison.differs is not None
    assert play.lane.comparison.differs.first == first


def test_a_stale_run_inside_a_batch_is_superseded() -> None:
    play = opened(*BEGUN, TargetRun(LANE, 1, 11, 9, 1))  # ordinal 11 was at 9, after a hole
    play.take(progress_at(10))
    own = [OwnBatch(at, 2, at, 0, 3) for at in (4, 6, 8, 10, 12)]  # the log went back to 4 and grew again
    for fact in walk(play.lane, own, 4, Log(4, 14, (), None)).facts:
        play.fold(fact)
    assert [play.record.target_runs.offset_of(ordinal) for ordinal in range(9, 14)] == [9, 10, 11, 12, 13]
