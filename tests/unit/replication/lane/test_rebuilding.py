"""After a difference the ledger first records it, then the correct map, and the lane continues with what is missing."""

from dataclasses import dataclass, field

import msgspec
import pytest

from mirrord.ledger.facts.core import (
    AnyFact,
    Entry,
    HoleFound,
    LaneHalted,
    LaneOpened,
    LaneResumed,
    LaneTaken,
    LeaseTaken,
    MapRebuilt,
    Progress,
    SourceRun,
    TakeoverChecked,
    TargetRun,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.runs import Run
from mirrord.replication.lane import difference
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskCheck,
    AskDivergence,
    AskRebuild,
    Bound,
    CheckAnswer,
    Chunk,
    DivergenceAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Halted,
    Input,
    Located,
    Lost,
    OwnBatch,
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
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target.scan_result import Log
from mirrord.replication.lane.target.target_scan import walk
from tests.fixtures.ledger import FLOW, HOLDER, lane_id
from tests.sim import toy

LANE = lane_id(0)


@dataclass
class Play:
    """A lane that was taken over at ordinal 10, with the real ledger."""

    state: FlowState = field(default_factory=FlowState)
    lane: Lane = field(default_factory=lambda: Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild))
    now: float = 0.0

    @staticmethod
    def opened() -> "Play":
        """A lane that has been opened."""
        play = Play()
        play.fold(FLOW)
        play.fold(LeaseTaken(1, HOLDER, 6000))
        play.fold(LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "first"))
        return play

    def fold(self, *facts: AnyFact) -> tuple[bool, ...]:
        return fold(self.state, Entry(1, 0, facts), self.state.next_offset)

    @property
    def record(self) -> LaneState:
        return self.state.lanes[LANE]

    def tell(self, signal: Input) -> Effects:
        return step(self.lane, self.now, signal)

    def bind(self, effects: Effects) -> Effects:
        """The ledger takes the only append among the effects."""
        (append,) = [effect for effect in effects if isinstance(effect, Append)]
        return self.tell(Bound(append.tag, self.fold(*append.facts), self.record))

    def begin(self, replicator: str) -> Effects:
        progress = Progress(LANE, 1, 1, 10, 10, 1, 10, 20, 1, 1, True, "copying", source_epoch=4)
        self.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
        return self.bind(self.tell(Start(self.record, progress, replicator, 0.0, True)))

    def sandwich(self, end: int) -> Effects:
        self.tell(EndAnswer(self.lane.asked, 0, 1, end))
        self.tell(ProducersAnswer(self.lane.asked, 0, None))
        self.tell(EndAnswer(self.lane.asked, 0, 1, end))
        return self.tell(VisibleAnswer(self.lane.asked, 0, end, 0))

    def differ(self) -> Effects:
        """It finds 6 records more than the resume position, and they are not what the map says."""
        self.begin("second")
        self.sandwich(16)
        own = (OwnBatch(8, 2, 8, 0), OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 13, 0))
        (check,) = self.tell(ScanAnswer(self.lane.asked, 0, "resume", 9, 16, own))
        assert isinstance(check, AskCheck)
        return self.tell(CheckAnswer(check.question, 0, 10, 15, "different", "ordinal 12 differs in its value"))

    def relocated(self, trouble: str = "") -> RebuildAnswer:
        """Ordinals 10 to 12 are offsets 10, 11, 14, then 14 to 16: 12 and 13 are missing, 14 is there twice."""
        own = (OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 13, 0))
        runs = (Run(10, 10), Run(12, 14), Run(13, 14))
        located = None if trouble else Located(runs, ((14, 15),), ((12, 14),), 17)
        return RebuildAnswer(self.lane.asked, 0, own, located, trouble)


@pytest.fixture
def play() -> Play:
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    return play


def test_the_difference_is_recorded_before_anything_is_read(play: Play) -> None:
    effects = play.differ()
    assert play.lane.phase is Phase.REBUILDING
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    assert [type(fact) for fact in append.facts] == [TakeoverChecked, LaneHalted]
    assert any(isinstance(effect, Halted) for effect in effects)
    play.bind(effects)
    assert play.record.halted is not None
    (ask,) = play.sandwich(16)
    assert ask == AskRebuild(play.lane.asked, 7, 10, 10, 16, last=15, acknowledged=((10, 1),))


def test_the_map_is_corrected_and_what_is_missing_follows(play: Play) -> None:
    play.bind(play.differ())
    play.sandwich(16)
    effects = play.tell(play.relocated())
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    assert append.facts == (
        SourceRun(LANE, 2, (Run(10, 10), Run(12, 14), Run(13, 14), Run(16, 12), Run(18, 17))),
        MapRebuilt(LANE, 2, 10, 15, 18, withdraws_verdicts=True, leader_epoch=1, found_epochs=((10, -1), (16, 1))),
        VerdictGiven(
            LANE,
            2,
            (Verdict(14, 15, "doubled"),),
            "ordinals 10 to 15 were written from a different view of the source: 1 records are stored twice, 2 follow",
        ),
        LaneResumed(LANE, 2),
    )
    play.bind(effects)
    assert play.record.halted is None
    assert play.record.last_check is None
    assert play.record.verdicts.counts == {"doubled": 1}
    effects = play.sandwich(16)
    assert play.lane.phase is Phase.COPYING
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchFrom)]
    assert (fetch.position, list(play.lane.plan)) == (12, [Run(18, 17)])


def test_later_ordinals_in_doubt_are_marked_and_nothing_else_changes(play: Play) -> None:
    known = Play.opened()
    known.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    for each in (known, play):
        each.bind(each.differ())
        each.sandwich(16)
        each.lane.comparison.first_ack_pending = each is play
        each.bind(each.tell(each.relocated()))
    assert (known.record.regiven, play.record.regiven, play.record.regiven_until) == (-1, 16, -1)
    assert play.record.source_runs == known.record.source_runs
    assert play.record.target_runs == known.record.target_runs
    assert (play.record.holes, play.record.verdicts.counts) == (known.record.holes, known.record.verdicts.counts)
    play.sandwich(16)
    assert (play.lane.phase, list(play.lane.plan)) == (Phase.COPYING, [Run(18, 17)])


def test_a_map_rebuilt_without_records_in_the_target_names_no_range(play: Play) -> None:
    """Offsets 10 and 11 were to be copied again as ordinals 10 and 11, and the source has lost offset 10."""
    play.begin("second")
    play.sandwich(10)
    (halted,) = [each for each in difference.vanished(play.lane, 0.0) if isinstance(each, Halted)]
    wanted = "records from ordinal 10 on were to be copied again, and the source no longer has all of them"
    assert halted.line == f"orders-0: {wanted}"
    play.bind(play.tell(Woken(-1)))
    play.sandwich(10)
    located = Located((), (), (), 11)
    (append,) = [
        each for each in play.tell(RebuildAnswer(play.lane.asked, 0, (), located)) if isinstance(each, Append)
    ]  # fmt: skip
    (given,) = [fact for fact in append.facts if isinstance(fact, VerdictGiven)]
    assert given.note == "the target has no records from ordinal 10 on: 0 follow"


def test_a_search_knows_which_ordinals_were_confirmed_in_this_log(play: Play) -> None:
    """NEEDLESS HALT. A comparison had confirmed the map. When records that were to be copied again vanished, the whole
    map since the takeover was rebuilt, and the place of a record that the source had lost since was not known."""
    play.begin("second")
    play.sandwich(16)
    (check,) = play.tell(ScanAnswer(play.lane.asked, 0, "resume", 9, 16, (OwnBatch(9, 7, 9, 0),)))
    play.lane.comparison.later_from = play.lane.resume_position
    assert isinstance(check, AskCheck)
    play.tell(CheckAnswer(check.question, 0, 10, 15, "equal", equal_until=16))
    play.fold(HoleFound(LANE, 2, 12, 12, 16, 17))
    difference.vanished(play.lane, 0.0)
    play.bind(play.tell(Woken(-1)))
    (asked,) = play.sandwich(16)
    assert isinstance(asked, AskRebuild)
    assert (asked.first, asked.confirmed) == (10, ((10, 12), (13, 16)))
    assert play.lane.comparison.confirmed(2) == (), "another leader may have another log"


@pytest.mark.parametrize("is_lacking", [False, True])
def test_offsets_after_a_found_record_keep_their_verdicts(play: Play, *, is_lacking: bool) -> None:
    """LIE. The target lacks the records from ordinal 12 on, or they are unknown. The run of the record before them
    included their ordinals. Offsets 12 and 13, which a filter had excluded, then counted as copied."""
    play.fold(SourceRun(LANE, 1, (Run(12, 14),), (Verdict(12, 14, "filtered"),)))
    play.bind(play.differ())
    play.sandwich(16)
    later = OwnBatch(15, 1, 15, 0) if is_lacking else OwnBatch(12, 4, 12, 0)
    located = Located((Run(10, 10), Run(15, 17)), (), ((14, 17),), 18) if is_lacking else None
    located = located or Located((Run(10, 10),), (), (), 18, open=((12, 16),))
    effects = play.tell(RebuildAnswer(play.lane.asked, 0, (OwnBatch(10, 2, 10, 0), later), located))
    play.bind([each for each in effects if isinstance(each, Append)])
    assert play.record.verdicts.counts["filtered"] == 2
    behind = [14, 15, 16] if is_lacking else [18]
    mapped = [play.record.source_runs.offset_of(ordinal) for ordinal in range(10, 16 + len(behind))]
    assert mapped == [10, 11, 14, 15, 16, 17, *behind]


def test_records_in_neither_log_are_expired(play: Play) -> None:
    # Ordinals 13 and 14, for the map offsets 13 and 14, were jumped over; the source has deleted what precedes 14. The
    # map's offsets 10 to 12 were never appended.
    play.bind(play.differ())
    play.sandwich(16)
    own = (OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 15, 0))
    located = Located((Run(10, 16),), (), ((14, 16),), 22, source_start=14)
    (append,) = [
        each for each in play.tell(RebuildAnswer(play.lane.asked, 0, own, located)) if isinstance(each, Append)
    ]  # fmt: skip
    (given,) = [fact for fact in append.facts if isinstance(fact, VerdictGiven)]
    assert [each for each in given.verdicts if each.reason == "expired"] == [Verdict(10, 14, "expired")]


def test_records_to_be_copied_again_that_the_source_deleted_are_expired(play: Play) -> None:
    # Offsets 2 and 3 were to follow as ordinals 16 and 17.
    play.fold(SourceRun(LANE, 1, (Run(16, 2), Run(18, 16))), HoleFound(LANE, 1, 2, 3, 16, 18))
    play.bind(play.differ())
    play.sandwich(16)
    own = (OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 13, 0))
    located = Located((Run(10, 10),), (), (), 16, source_start=4)
    (append,) = [
        each for each in play.tell(RebuildAnswer(play.lane.asked, 0, own, located)) if isinstance(each, Append)
    ]  # fmt: skip
    (given,) = [fact for fact in append.facts if isinstance(fact, VerdictGiven)]
    assert [each for each in given.verdicts if each.reason == "expired"] == [Verdict(2, 4, "expired")]


@pytest.mark.parametrize("has_policies", [False, True])
def test_records_may_have_been_removed_since_the_comparison(play: Play, *, has_policies: bool) -> None:
    """NEEDLESS HALT. The log cleaner or an election has removed all of them. Their keys were looked up, and those with
    the offsets 10 and 11 are not superseded. With a filter, it is not known which records they were."""
    play.bind(play.differ())
    play.lane.has_policies = has_policies
    play.sandwich(16)
    located = Located((), (), ((10, 12),), 16)
    effects = play.tell(RebuildAnswer(play.lane.asked, 0, (), located, compacts=True))
    lines = [each.line for each in effects if isinstance(each, Halted)]
    if has_policies:
        assert "it is not known whether" in lines[0]
        return
    assert lines == []
    play.bind(effects)
    assert [play.record.source_runs.offset_of(ordinal) for ordinal in range(10, 14)] == [10, 11, 16, 17]


@pytest.mark.parametrize("compacts", [False, True])
def test_ordinals_that_the_broker_remembers_are_not_assigned_again(play: Play, *, compacts: bool) -> None:
    """LOST. Retention has deleted all records. The broker would take the next ones for repeats of the deleted ones."""
    play.bind(play.differ())
    play.tell(EndAnswer(play.lane.asked, 0, 1, 18))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(17, 0)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 18))
    (ask,) = play.tell(VisibleAnswer(play.lane.asked, 0, 18, 18))
    assert isinstance(ask, AskRebuild)
    assert ask.last == 17
    play.bind(play.tell(RebuildAnswer(ask.question, 0, (), Located((), (), ((10, 18),), 18), compacts=compacts)))
    assert play.record.halted is None
    assert (10, 17) in [(hole.first, hole.last) for hole in play.record.holes]
    assert [play.record.source_runs.offset_of(ordinal) for ordinal in (18, 25, 26)] == [10, 17, 18]


def test_the_lane_stays_halted_if_the_broker_remembers_more_than_the_log_has(play: Play) -> None:
    play.bind(play.differ())
    play.tell(EndAnswer(play.lane.asked, 0, 1, 18))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(17, 0)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 18))
    play.tell(VisibleAnswer(play.lane.asked, 0, 18, 0))
    effects = play.tell(msgspec.structs.replace(play.relocated(), compacts=True))
    assert any("ordinals 16 to 17 have since been removed" in each.line for each in effects if isinstance(each, Halted))


def test_the_epochs_of_reassigned_ordinals(play: Play) -> None:
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3),)))
    play.bind(play.differ())
    play.sandwich(16)
    answer = play.relocated()
    assert answer.located is not None
    located = msgspec.structs.replace(answer.located, epochs=((0, 3), (13, 4), (15, 5)))
    play.bind(play.tell(msgspec.structs.replace(answer, located=located)))
    # Offset 12 follows as ordinal 16, and is of the old epoch.
    assert play.record.epochs == ((0, 3), (10, 3), (12, 4), (14, 5), (16, 3), (17, 4), (18, 5))
    # The source is asked first about what was copied after it.
    (ask,) = [effect for effect in play.sandwich(16) if isinstance(effect, AskDivergence)]
    assert (ask.position, ask.epoch) == (17, 5)
    (fetch,) = [effect for effect in play.tell(DivergenceAnswer(ask.question, 0)) if isinstance(effect, FetchFrom)]
    assert (fetch.position, fetch.last_epoch) == (12, 3)


def begun_again(play: Play) -> AskDivergence:
    """Offsets 12 and 13 are about to follow as ordinals 16 and 17, after what was copied up to offset 16."""
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3),)))
    play.bind(play.differ())
    play.sandwich(16)
    answer = play.relocated()
    assert answer.located is not None
    located = msgspec.structs.replace(answer.located, epochs=((0, 3), (13, 4), (15, 5)))
    play.bind(play.tell(msgspec.structs.replace(answer, located=located)))
    (ask,) = [effect for effect in play.sandwich(16) if isinstance(effect, AskDivergence)]
    return ask


def test_records_that_the_source_has_lost_are_not_copied_again(play: Play) -> None:
    ask = begun_again(play)
    effects = play.tell(
        DivergenceAnswer(ask.question, 0, 3, 13)
    )  # the source continues after offset 12, in another history
    assert any(isinstance(effect, Lost) for effect in effects)
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    runs, verdicts = (Run(16, 12), Run(17, 13)), (Verdict(13, 17, "truncated"),)
    assert append.facts == (SourceRun(LANE, 2, runs, verdicts, ((16, 3), (17, 3))),)
    effects = play.bind(effects)
    assert (play.record.truncations, play.record.holes[0].until) == (((16, 13),), 17)
    assert (play.lane.position, list(play.lane.plan)) == (12, [])  # what is there instead follows it
    assert LaneMap(play.record, CopiedPosition(16, 16, 12)).to_target(14).kind == "at_end"


def test_a_history_that_diverges_after_what_is_copied_again_takes_nothing_of_it(play: Play) -> None:
    ask = begun_again(play)
    effects = play.tell(DivergenceAnswer(ask.question, 0, 5, 17))
    assert not any(isinstance(effect, Lost | Append) for effect in effects)
    assert any(isinstance(effect, FetchFrom) for effect in effects)


def test_another_record_in_the_place_of_one_that_is_copied_again(play: Play) -> None:
    ask = begun_again(play)
    (fetch,) = [effect for effect in play.tell(DivergenceAnswer(ask.question, 0)) if isinstance(effect, FetchFrom)]
    data = toy.encode(12, 13, [(12, 1), (13, 2)], newest_ms=0, leader_epoch=7)
    chunk = Chunk(fetch.question, 0, 17, 17, 0, [], data, 0, len(data), None, -1, -1)
    (asked,) = play.tell(chunk)
    assert isinstance(asked, AskDivergence)
    (fetch,) = [effect for effect in play.tell(DivergenceAnswer(asked.question, 0)) if isinstance(effect, FetchFrom)]
    # The source does not report a loss, and yet has another record there: the map cannot be right.
    effects = play.tell(msgspec.structs.replace(chunk, question=fetch.question))
    assert any(isinstance(effect, Halted) for effect in effects)


def test_the_source_is_asked_again_about_records_that_never_arrive(play: Play) -> None:
    ask = begun_again(play)
    (wake,) = [effect for effect in play.tell(DivergenceAnswer(ask.question, 0)) if isinstance(effect, Wake)]
    (ask,) = play.tell(Woken(wake.question))
    assert isinstance(ask, AskDivergence)
    assert any(isinstance(effect, Lost) for effect in play.tell(DivergenceAnswer(ask.question, 0, 3, 13)))


def test_records_that_cannot_be_placed_keep_the_lane_halted(play: Play) -> None:
    play.bind(play.differ())
    play.sandwich(16)
    effects = play.tell(play.relocated("the source no longer holds it"))
    assert play.lane.phase is Phase.HALTED
    assert "cannot be rebuilt: the source no longer holds it" in play.lane.halt.line
    play.bind(effects)
    # The next holder begins where this one had to end, whatever its resume position says.
    play.begin("third")
    assert play.lane.phase is Phase.REBUILDING
    assert play.record.halted is not None
    assert play.sandwich(16) == [AskRebuild(play.lane.asked, 7, 10, 10, 16, last=15, acknowledged=((10, 1),))]


def test_a_difference_outlives_a_failed_append(play: Play) -> None:
    (append,) = [effect for effect in play.differ() if isinstance(effect, Append)]
    play.tell(AppendFailed(append.tag, play.record))
    effects = play.bind(play.tell(Woken(play.lane.asked)))
    assert play.lane.phase is Phase.REBUILDING
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    assert [type(fact) for fact in append.facts] == [TakeoverChecked, LaneHalted]
    play.bind(effects)
    assert play.record.halted is not None


def test_the_lane_waits_for_records_that_may_still_arrive(play: Play) -> None:
    """It asks the leader again and again meanwhile, and does not rebuild the map from what it finds."""
    play.lane.late_writes.until = 0.0
    effects = play.differ()
    play.lane.late_writes.until = 20.0
    play.bind(effects)
    while play.now < 20.0:
        (wake,) = play.tell(EndAnswer(play.lane.asked, 0, 1, 16))
        assert isinstance(wake, Wake)
        assert play.now < wake.at <= play.now + 1.0
        play.now = wake.at
        play.tell(Woken(wake.question))
    assert [type(effect) for effect in play.sandwich(16)] == [AskRebuild]


def test_a_side_that_cannot_be_read_is_asked_again(play: Play) -> None:
    play.bind(play.differ())
    (ask,) = play.sandwich(16)
    assert isinstance(ask, AskRebuild)
    effects = play.tell(RebuildAnswer(ask.question, 7, (), None))
    assert play.lane.phase is Phase.REBUILDING
    assert any(isinstance(effect, Wake) for effect in effects)


def test_an_ordinal_that_stands_twice_is_not_guessed_about(play: Play) -> None:
    play.bind(play.differ())
    play.sandwich(16)
    answer = play.relocated()
    own = (OwnBatch(10, 3, 10, 0), OwnBatch(13, 3, 11, 0))
    play.tell(RebuildAnswer(answer.question, 0, own, answer.located))
    assert play.lane.phase is Phase.HALTED
    assert "ordinal 11 is in the target a second time, at offset 13" in play.lane.halt.line


@pytest.mark.parametrize(("jumps", "equal_until", "last_epoch"), [(False, 13, 5), (True, 13, 3), (False, 12, 3)])
def test_a_comparison_records_no_epoch_of_what_it_did_not_compare(
    play: Play, *, jumps: bool, equal_until: int, last_epoch: int
) -> None:
    """Ordinals 10 to 12 are equal, or a cleaner has removed the last of them. What precedes the position is of epoch 5,
    but of epoch 3 according to the ledger."""
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3),)))
    if jumps:
        play.fold(SourceRun(LANE, 1, (Run(13, 15),), (Verdict(13, 15, "filtered"),)))
    play.begin("second")
    play.sandwich(13)
    (check,) = play.tell(
        ScanAnswer(play.lane.asked, 0, "resume", 9, 13, (OwnBatch(8, 2, 8, 0), OwnBatch(10, 3, 10, 0)))
    )
    assert isinstance(check, AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, 10, 12, "equal", "", 5, equal_until=equal_until))
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, fetch.last_epoch) == (15 if jumps else 13, last_epoch)


@pytest.mark.parametrize("compacts", [False, True])
def test_a_log_that_holds_only_records_of_a_hole_is_doubted_from_the_first_lost_ordinal(
    play: Play, compacts: bool
) -> None:
    """An unclean election removed ordinals 0 and 1 as well, and a late batch of the hole is all that the log has."""
    play.begin("second")
    reading = walk(play.lane, [OwnBatch(0, 4, 53, 0, 5)], 0, Log(0, 4, (), compacts=compacts))
    found = msgspec.structs.replace(reading, void=2)
    difference.filled(play.lane, 0.0, found)
    assert play.lane.comparison.differs is not None
    assert (play.lane.comparison.differs.first, play.lane.comparison.differs.last) == (0, 56)
