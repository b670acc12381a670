"""Which resume positions count after the target log went back and its ordinals were recorded again."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.facts.core import HoleFound, LaneTaken, Progress, Rewound, SourceRun, TargetRun
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from mirrord.replication.lane import intake
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskEnd,
    AskScan,
    Effects,
    EndAnswer,
    ProduceAnswer,
    ProducersAnswer,
    Start,
    VisibleAnswer,
)
from mirrord.replication.lane.source.copied_epochs import first_other
from mirrord.replication.lane.source.declared_runs import jumps, rest
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.step import step
from mirrord.replication.lane.target import missing_ordinals, position_rewind
from mirrord.replication.lane.target.evidence import known_until, note_saved, saved_until
from mirrord.replication.lane.target.superseded_records import SupersededAnswer
from mirrord.replication.lane.target.target_scan import ordinal_at, ordinal_before
from tests.sim import toy
from tests.unit.replication.lane.target.test_superseded_records import looked_up
from tests.unit.replication.lane.test_answers import in_flight
from tests.unit.replication.lane.test_rebuilding import LANE, Play

ANEW = Rewound(6, 6, 6, 3)


@pytest.fixture
def play() -> Play:
    """The lane has copied 10 records; the first leader epoch is 1."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    play.begin("second")
    return play


def progress_of(grant: int, ordinal: int, rewinds: int) -> Progress:
    return Progress(
        LANE, 1, grant, ordinal, ordinal, 1, ordinal, 20, 1, 1, True, "copying", source_epoch=4, rewinds=rewinds
    )


def test_an_older_resume_position_does_not_count_for_what_was_never_copied(play: Play) -> None:
    """An election removed ordinals 6 to 9; others wrote newer records of all four keys. The holder records that offset
    10 follows as ordinal 6, and ends before it saves its progress. Offsets 10 to 13 were never copied."""
    asked = looked_up(play, 6, 10, (), ((6, 10),))
    effects = play.tell(SupersededAnswer(asked.question, 0))
    (append,) = [effect for effect in effects if isinstance(effect, Append)]
    (run,) = [fact for fact in append.facts if isinstance(fact, SourceRun)]
    assert (run.runs, run.rewound) == ((Run(6, 10),), Rewound(6, 6, 10, 3, ((1, 6),)))
    play.bind(effects)
    play.begin("third")
    assert play.lane.resume_position == ResumePosition(6, 10, 3)
    assert known_until(play.lane) == 6
    assert play.lane.trusted == 6


@pytest.mark.parametrize(
    ("progress", "position", "reached"),
    [
        (progress_of(1, 10, 0), ResumePosition(6, 6, 3), 6),
        (progress_of(1, 5, 0), ResumePosition(5, 5, 1), 5),
        (progress_of(2, 10, 1), ResumePosition(10, 10, 1), 10),
        (progress_of(3, 10, 1), ResumePosition(10, 10, 1), 10),
        # A former holder reads the present ledger, while its progress record is older.
        (progress_of(1, 10, 1), ResumePosition(6, 6, 3), 6),
    ],
)
def test_which_resume_position_counts(play: Play, progress: Progress, position: ResumePosition, reached: int) -> None:
    play.fold(SourceRun(LANE, 2, (Run(6, 10),), rewound=ANEW))
    assert position_rewind.valid_position(progress, play.record) == (position, reached)


def test_the_lowest_of_several_rewinds_counts(play: Play) -> None:
    play.fold(SourceRun(LANE, 2, (Run(6, 10),), rewound=ANEW))
    play.fold(SourceRun(LANE, 2, (Run(8, 20),), rewound=Rewound(8, 7, 12, 4)))
    assert position_rewind.valid_position(progress_of(2, 10, 0), play.record) == (ResumePosition(6, 6, 3), 6)
    assert position_rewind.valid_position(progress_of(2, 10, 1), play.record) == (ResumePosition(7, 12, 4), 8)


def test_ordinals_that_keep_their_records_are_still_known(play: Play) -> None:
    """Ordinals 6 to 9 are recorded once more as they were, and 10 differently."""
    runs = (Run(6, 6),)
    assert position_rewind.rewound_by(play.lane, runs, ResumePosition(6, 6, 3)) is None
    assert known_until(play.lane) == 10
    assert position_rewind.rewound_by(play.lane, (Run(6, 6), Run(8, 12)), ResumePosition(6, 6, 3)) == Rewound(
        8, 6, 6, 3
    )
    play.lane.resume_position = ResumePosition(6, 6, 3)
    assert known_until(play.lane) == 8


def test_a_run_that_is_no_longer_recorded_changes_the_meaning_too(play: Play) -> None:
    play.fold(SourceRun(LANE, 2, (Run(9, 15),)))
    assert position_rewind.rewound_by(play.lane, (Run(6, 6),), ResumePosition(6, 6, 3)) == Rewound(9, 6, 6, 3)


def test_a_position_is_revoked_although_the_lane_no_longer_counts_its_records_as_acknowledged(play: Play) -> None:
    """They are to be copied again under the same ordinals. The next record is another one."""
    missing_ordinals.other_records_from(play.lane, 6)
    play.lane.resume_position = ResumePosition(6, 6, 3)
    assert (known_until(play.lane), saved_until(play.lane)) == (6, 10)
    rewound = position_rewind.rewound_by(play.lane, (Run(6, 10),), ResumePosition(6, 6, 3))
    assert rewound == Rewound(6, 6, 6, 3)
    # The fact with these runs may be lost, although the next fact takes effect.
    assert position_rewind.rewound_by(play.lane, (Run(6, 12),), ResumePosition(6, 6, 3)) == rewound
    play.fold(SourceRun(LANE, 2, (Run(6, 10),), rewound=rewound))
    play.lane.record = play.record
    assert saved_until(play.lane) == 6
    assert position_rewind.rewound_by(play.lane, (Run(6, 12),), ResumePosition(6, 6, 3)) is None


def test_later_acknowledgements_count_after_a_position_was_revoked(play: Play) -> None:
    play.fold(SourceRun(LANE, 2, (Run(6, 10),), rewound=ANEW))
    play.lane.record, play.lane.resume_position = play.record, ResumePosition(6, 6, 3)
    play.lane.acked = 8
    note_saved(play.lane)
    play.lane.acked = 6
    assert saved_until(play.lane) == 8


@pytest.mark.parametrize(
    ("cleanly", "leader_epoch", "until"), [(True, 2, 10), (False, 1, 10), (False, 2, NEVER)], ids=str
)
def test_a_former_holder_may_save_a_higher_position(
    play: Play, leader_epoch: int, until: int, *, cleanly: bool
) -> None:
    """What it has copied after the position that is known may only be lost if the leader has changed since."""
    progress = replace(progress_of(2, 10, 0), state="drained" if cleanly else "copying")
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    play.bind(play.tell(Start(play.record, progress, "third", 0.0, cleanly)))
    play.tell(EndAnswer(play.lane.asked, 0, leader_epoch, 10))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, leader_epoch, 10))
    play.tell(VisibleAnswer(play.lane.asked, 0, 10, 0))
    assert saved_until(play.lane) == until


def test_a_record_of_a_later_epoch_is_another_one(play: Play) -> None:
    """The ledger has the epoch of the acknowledged record, or only the saved position has it."""
    for epochs in ((0, 4),), ((0, 4), (8, -1)):
        play.fold(SourceRun(LANE, 2, (Run(0, 0),), (), epochs))
        play.lane.record, play.lane.history.saved_epoch = play.record, (10, 4)
        runs, position = (Run(8, 8),), ResumePosition(8, 8, 3)
        assert position_rewind.rewound_by(play.lane, runs, position, ((8, 4),)) is None
        assert first_other(play.lane, play.record, ((8, 5),), NEVER) == 8
        assert first_other(play.lane, play.record, ((10, 5),), NEVER) == (10 if len(epochs) == 1 else NEVER)
    assert position_rewind.rewound_by(play.lane, runs, position, ((8, 5),)) == Rewound(8, 8, 8, 3)


def test_the_facts_of_a_first_holder_revoke_no_resume_position() -> None:
    lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    assert position_rewind.rewound_by(lane, (Run(0, 0),), ResumePosition(0, 0)) is None


def test_no_ordinal_stands_in_a_hole(play: Play) -> None:
    """Ordinals 6 to 8 were never appended and follow as 9 to 11; foreign records have the offsets 6 to 10."""
    play.fold(HoleFound(LANE, 2, 6, 8, 9, 12), SourceRun(LANE, 2, (Run(9, 6),)))
    play.lane.resume_position = ResumePosition(9, 11, 1)
    assert [ordinal_before(play.lane, at) for at in (5, 6, 7, 8, 9, 11)] == [5, 6, 9, 9, 9, 9]
    assert [ordinal_at(play.lane, at) for at in (5, 6, 8)] == [5, 6, 9]


def test_another_leaders_log_is_read_whatever_is_at_the_resume_position(play: Play) -> None:
    """Others wrote two records before the resume position. The log went back, and the lane's own records may be there
    instead."""
    play.lane.resume_position, play.lane.acknowledged = ResumePosition(0, 2, 1), ()
    play.tell(EndAnswer(play.lane.asked, 0, 3, 2))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 3, 2))
    (scan,) = play.tell(VisibleAnswer(play.lane.asked, 0, 2, 0))
    assert isinstance(scan, AskScan)
    assert (scan.start, scan.end) == (0, 2)


def test_a_batch_that_is_acknowledged_before_the_resume_position_is_found() -> None:
    """It repeats an earlier batch, however far before, and the lane must not send it for ever."""
    lane, produce = in_flight()
    lane.resume_position, lane.expected = ResumePosition(0, 20_000, lane.log.end_epoch), 20_000
    effects: Effects = []
    for sent in produce.batches:
        effects = step(lane, 0.0, ProduceAnswer(lane.round, sent, 0, 0))
    assert any(isinstance(effect, AskEnd) for effect in effects)
    step(lane, 0.0, EndAnswer(lane.asked, 0, lane.log.end_epoch, 20_000))
    step(lane, 0.0, ProducersAnswer(lane.asked, 0, None))
    step(lane, 0.0, EndAnswer(lane.asked, 0, lane.log.end_epoch, 20_000))
    (scan,) = step(lane, 0.0, VisibleAnswer(lane.asked, 0, 20_000, 0))
    assert isinstance(scan, AskScan)
    assert (scan.start, scan.end) == (0, 20_000)


def test_a_snapshot_of_the_ledger_holds_the_reassigned_ordinals(play: Play) -> None:
    play.fold(SourceRun(LANE, 2, (Run(6, 10),), rewound=ANEW))
    cut = snapshots(play.state, Kept(), LedgerEnd(TopicId("ledger"), play.state.next_offset, 0))
    rows = {state_key(record): decode_state(state_key(record), encode_state(record)) for record in cut.records}
    assert restore(StateTopicContents(rows)).lanes[LANE].rewinds == ((2, ANEW),)


def test_skipping_a_record_of_a_plan_moves_the_later_ones(play: Play) -> None:
    """The log went back to ordinal 8. Offset 4 was to be copied again as that, and an operator decided to skip it."""
    play.fold(HoleFound(LANE, 2, 4, 5, 8, 10), SourceRun(LANE, 2, (Run(8, 4), Run(10, 8))))
    lane = play.lane
    lane.acknowledged, lane.resume_position, lane.acked = ((10, 1),), ResumePosition(8, 6, 3), 8
    lane.next_ordinal, lane.position, lane.comparison.later_pending = 8, 4, True
    lane.plan.append(Run(10, 8))
    lane.left_out = [LeftOut(4, 5, "skipped")]
    (append,) = intake.leave_out(lane)
    assert isinstance(append, Append)
    (run,) = append.facts
    assert isinstance(run, SourceRun)
    assert (run.runs, run.rewound, run.regiven) == ((Run(8, 5), Run(9, 8)), Rewound(8, 8, 6, 3), True)


@pytest.mark.parametrize(("state", "ordinal"), [("copying", 1_000), ("drained", 1_000), ("resuming", 6)])
def test_an_older_program_may_have_copied_since(play: Play, state: str, ordinal: int) -> None:
    """The older program did not know the new runs. It has since read the target log, which has deleted everything:
    everything after its resume position would be copied a second time."""
    play.fold(SourceRun(LANE, 2, (Run(6, 10),), rewound=ANEW), LaneTaken(LANE, 3, "older"))
    progress = replace(progress_of(3, 1_000, 0), state=state)
    play.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    play.bind(play.tell(Start(play.record, progress, "third", 0.0, True)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 1_000))
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 1_000))
    play.tell(VisibleAnswer(play.lane.asked, 0, 1_000, 1_000))
    assert play.lane.resume_position.ordinal == ordinal
    assert play.lane.phase is (Phase.COPYING if ordinal == 1_000 else Phase.RESUMING)


def test_a_skipped_record_is_no_longer_planned(play: Play) -> None:
    """Of what an earlier loss left to copy again as ordinals 8 and 9, offset 4 is skipped: ordinal 9 is the record
    after all that was acknowledged, and was never sent."""
    play.fold(HoleFound(LANE, 2, 7, 6, 8, 10), SourceRun(LANE, 2, (Run(8, 4), Run(10, 12))))
    play.fold(SourceRun(LANE, 2, (Run(8, 5), Run(9, 12))))
    play.lane.resume_position, play.lane.acknowledged = ResumePosition(9, 9, 1), ()
    assert missing_ordinals.lost_ordinals(play.lane, 8) == ((8, 8),)
    assert jumps(play.record, 8, rest(play.record, 8)) == [Run(9, 12)]
    play.fold(SourceRun(LANE, 2, (Run(10, 14),)))
    assert (
        jumps(play.record, 9, rest(play.record, 9)) == []
    )  # records between 12 and 14 may expire, as none was acknowledged
