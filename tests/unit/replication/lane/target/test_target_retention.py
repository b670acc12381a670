"""The target has deleted its oldest records, also those above the resume position of a lane."""

import msgspec
import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskEnd,
    AskProducers,
    AskRebuild,
    AskScan,
    CheckAnswer,
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
    VisibleAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


def resumed(
    last_sequence: int,
    log_start: int,
    end: int,
    *own: OwnBatch,
    others: tuple[tuple[int, int], ...] = (),
    ordinal: int = 10,
    compacts: bool = False,
    placed: tuple[tuple[int, int], ...] = (),
) -> tuple[Faulty, Effects]:
    """The next holder begins with a resume position after ordinal 9, at target offset 10. Return the effects of its
    scan of a log that begins at `log_start`. The broker remembers the last sequence. The former holder had recorded
    that it appended the ordinals and those that follow at the target offsets `placed`."""
    play = opened(*BEGUN)
    for placed_ordinal, target_offset in placed:
        play.fold(TargetRun(play.lane.id, 1, placed_ordinal, target_offset, 1))
    retake(play, ordinal, ordinal, ordinal, epoch=1)
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(last_sequence, 1000)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    scan = one(play.tell(VisibleAnswer(play.lane.asked, 0, end, log_start)), AskScan)
    return play, play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own, others, compacts))


def checked(play: Faulty, effects: Effects, first: int, last: int) -> Effects:
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (first, last)
    return [*effects, *play.tell(CheckAnswer(check.question, 0, first, last, "unverifiable"))]


@pytest.mark.parametrize(("log_start", "end"), [(17, 17), (20, 20), (18, 20)])
def test_records_that_retention_has_deleted_are_not_missed(log_start: int, end: int) -> None:
    """NEEDLESS HALT. The lane appended ordinals 10 to 16. Then an operator empties the topic with DeleteRecords, or
    retention does; other clients may have written as well."""
    play, effects = resumed(16, log_start, end)
    play.bind_all(checked(play, effects, 10, 16))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 17)
    assert play.record.target_runs.offset_of(17) == end, "the ledger shows that nothing is missing before this record"


def test_records_that_were_never_appended_are_copied_again() -> None:
    """LOSS. Ordinals 10 to 18 do not fit into offsets 10 to 13: the target refused some of them and accepted later
    ones. Retention has deleted what would show which."""
    play, effects = resumed(20, 14, 16, OwnBatch(14, 2, 19, 0, 1))
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 18)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 21, 10)


def test_other_clients_records_that_are_left_were_not_deleted() -> None:
    """LOSS. Ordinals 10 to 14 do not fit into offsets 10 and 11, which retention has deleted. Offsets 12 to 19 still
    hold records of other clients."""
    play, effects = resumed(20, 12, 26, OwnBatch(20, 6, 15, 0, 1), others=((12, 20),))
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 14)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 21, 10)


@pytest.mark.parametrize("own", [(), (OwnBatch(30, 1, 21, 0, 1),)])
def test_recorded_places_show_where_records_do_not_fit(own: tuple[OwnBatch, ...]) -> None:
    """LOSS. Ordinal 12 was at offset 25, so ordinals 12 to 20 do not fit into the deleted offsets 25 to 29, although
    all ordinals together fit into the deleted offsets 10 to 29. Ordinals 10 and 11 fit."""
    play, effects = resumed(21 if own else 20, 30, 31, *own, others=() if own else ((30, 31),), placed=((12, 25),))
    play.bind_all(checked(play, effects, 10, 21 if own else 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(12, 20)]


def test_offsets_above_the_log_start_have_not_been_deleted() -> None:
    """LOSS. Ordinal 15 was at offset 30, but the log has lost it: offsets 12 to 39 hold records of other clients.
    Ordinals 10 to 14 do not fit into the deleted offsets 10 and 11, although they fit into offsets 10 to 29."""
    play, effects = resumed(20, 12, 41, OwnBatch(40, 1, 20, 0, 1), others=((12, 40),), placed=((15, 30),))
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 19)]


def test_records_that_were_never_appended_are_copied_again_if_none_is_left() -> None:
    """LOSS. As before, but retention has deleted all records of the lane."""
    play, effects = resumed(20, 16, 16)
    play.bind_all(checked(play, effects, 10, 20))
    assert [(hole.first, hole.last) for hole in play.record.holes] == [(10, 20)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 21, 10)


def test_records_that_a_log_lacks_at_its_end_are_missed() -> None:
    """Retention deletes only the oldest records, so it did not delete ordinals 14 to 16."""
    _, effects = resumed(16, 12, 20, OwnBatch(12, 2, 12, 0, 1), others=((14, 20),))
    assert "remembers ordinal 16" in one(effects, Halted).line


def test_a_log_that_begins_at_0_has_deleted_nothing() -> None:
    _, effects = resumed(16, 0, 20, others=((0, 20),), ordinal=0)
    assert "remembers ordinal 16" in one(effects, Halted).line


def repeated(leader_epoch: int) -> Effects:
    """The broker had forgotten the producer and has appended ordinal 7 a second time. Nothing else is left of the
    lane's records. The leader of epoch 1 had ordinals 0 to 9 when the resume position was saved."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    scan = one(sandwich(play, 7, 11, 10, leader_epoch=leader_epoch), AskScan)
    own = (OwnBatch(10, 1, 7, 0, leader_epoch),)
    return play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, own, (), False))


def test_late_bytes_of_deleted_records_do_not_show_a_loss() -> None:
    """DOUBLED."""
    line = one(repeated(leader_epoch=1), Halted).line
    assert "target offset 10 holds the records of source offsets [7, 8) a second time" in line


def test_another_leader_may_have_lost_what_a_resume_position_shows() -> None:
    assert not [each for each in repeated(leader_epoch=2) if isinstance(each, Halted)]


@pytest.mark.parametrize(("last", "ordinal"), [(1, 2), (6, 7), (9, 9)])
def test_a_lane_continues_with_the_ordinal_that_the_leader_expects(last: int, ordinal: int) -> None:
    """NEEDLESS HALT. The log had lost all of the lane's records. A former holder began to copy them again, after
    records of other clients, and retention has deleted everything. According to the ledger, the log ends with ordinal
    8, but the leader has not appended it."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    effects = sandwich(play, last, 9, 9, leader_epoch=2)
    while asked := [each for each in effects if isinstance(each, AskScan)]:
        effects = play.tell(ScanAnswer(asked[0].question, 0, asked[0].purpose, 9, 9, (), (), False))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, ordinal)


def test_a_position_in_a_hole_is_moved_behind_it() -> None:
    """LOSS. A former holder found a hole that begins below the position, and began to copy its records again.
    Retention has deleted everything, and the broker has forgotten the producer. The ordinals of the hole were used, so
    that the next holder found nothing missing if the log had lost their records."""
    play = opened(*BEGUN, HoleFound(LANE, 1, 8, 12, 15, 20), SourceRun(LANE, 1, (Run(15, 8), Run(20, 15))))
    retake(play, 10, 10, 10, epoch=1)
    play.tell(EndAnswer(play.lane.asked, 0, 1, 30))
    play.now = play.lane.late_writes.until
    play.tell(ProducersAnswer(play.lane.asked, 0, None))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 30))
    scan = one(play.tell(VisibleAnswer(play.lane.asked, 0, 30, 30)), AskScan)
    effects = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), (), False))
    check = one(effects, AskCheck)
    effects = play.tell(CheckAnswer(check.question, 0, check.first, check.last, "unverifiable"))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 13, 13)
    assert [run.ordinal for run in play.lane.plan] == [15, 20]


def sandwich(
    play: Play, last_sequence: int, end: int, log_start: int, age_ms: int = 1000, leader_epoch: int = 1
) -> Effects:
    play.tell(EndAnswer(play.lane.asked, 0, leader_epoch, end))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(last_sequence, age_ms)))
    play.tell(EndAnswer(play.lane.asked, 0, leader_epoch, end))
    return play.tell(VisibleAnswer(play.lane.asked, 0, end, log_start))


def test_a_batch_is_appended_and_deleted_after_the_broker_was_asked_for_the_producer() -> None:
    """DOUBLE. The lane took ordinals 0 to 6 for the last ones in the log, which already had 7 to 9. The ledger then
    said that ordinal 7 is at offset 10, and the next holder copied ordinals 7 to 9 again."""
    play = opened(*BEGUN)
    play.take(None)
    play.tell(EndAnswer(play.lane.asked, 0, 1, 7))
    play.tell(ProducersAnswer(play.lane.asked, 0, ProducerEntry(6, 1000)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, 10))
    effects = play.tell(VisibleAnswer(play.lane.asked, 0, 10, 10))
    wake = one(effects, Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    scan = one(sandwich(play, 9, 10, 10), AskScan)
    effects = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), (), False))
    play.bind_all(effects)
    assert play.record.target_runs.offset_of(10) == 10


def test_ordinals_of_deleted_records_that_nothing_identifies_are_not_used_again() -> None:
    """LOSS. Ordinals 10 to 16 were given to other records after a former holder may have sent them. Retention has
    deleted whichever the target had, so all of them follow, and the rebuilt map does not say that it had them."""
    play, effects = resumed(16, 17, 17)
    play.bind_all(effects)
    play.record.regiven = 10
    check = one(effects, AskCheck)
    answer = CheckAnswer(check.question, 0, 10, 16, "unverifiable", "deleted", deleted_until=17)
    wake = one(play.tell(answer), Wake)
    assert play.lane.log.must_read_log, "only a scan shows whether the target is compacted"
    play.now = wake.at
    play.tell(Woken(wake.question))
    scan = one(sandwich(play, 16, 17, 17), AskScan)
    effects = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), (), False))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(msgspec.structs.replace(answer, question=check.question)))
    rebuild = one(sandwich(play, 16, 17, 17), AskRebuild)
    located = Located((), (), ((10, 17),), 17, ())
    play.bind_all(play.tell(RebuildAnswer(rebuild.question, 0, (), located)))
    assert HoleFound(LANE, play.lane.grant, 10, 16, 17, 24) in play.record.holes
    scan = one(sandwich(play, 16, 17, 17), AskScan)
    play.bind_all(play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), (), False)))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 17, 10)


def test_what_an_expiring_producer_had_appended_above_the_position_is_looked_for_in_the_log() -> None:
    """The broker remembers records above the resume position although the log ends there. It may soon forget them."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    old_ms = play.lane.limits.producer_expiry_ms - 1
    assert one(sandwich(play, 16, 10, 10, old_ms), AskScan)


def at_least_once(error: int, base_offset: int, end: int = 13) -> tuple[Faulty, Effects]:
    """A lane that does not rely on what the broker remembers begins above ordinal 9. Retention has deleted ordinals 10
    to 12, and the broker recognizes the first one that the lane sends, or refuses it. Other clients' records follow, up
    to offset `end`. Return the effects of the next attempt."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    play.lane.mode = "at-least-once"
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    effects = play.tell(VisibleAnswer(play.lane.asked, 0, end, 13))
    for wake in [each for each in effects if isinstance(each, Wake)]:
        play.now = wake.at
        play.tell(Woken(wake.question))
        play.tell(EndAnswer(play.lane.asked, 0, 1, end))
        play.tell(EndAnswer(play.lane.asked, 0, 1, end))
        effects = play.tell(VisibleAnswer(play.lane.asked, 0, end, 13))
    asked = one(play.chunk(one(_scanned(play, effects), FetchFrom), 10), AskEnd)
    (batch,) = one(play.tell(EndAnswer(asked.question, 0, 1, end)), Produce).batches
    effects = play.tell(ProduceAnswer(play.lane.round, batch, error, base_offset))
    for wake in [each for each in effects if isinstance(each, Wake)]:
        play.now = wake.at
        play.tell(Woken(wake.question))
    return play, play.tell(EndAnswer(play.lane.asked, 0, 1, end))


def _scanned(play: Faulty, effects: Effects) -> Effects:
    """The log has only other clients' records."""
    while scans := [each for each in effects if isinstance(each, AskScan)]:
        (scan,) = scans
        others = ((scan.start, scan.end),) if scan.start < scan.end else ()
        effects = play.tell(ScanAnswer(scan.question, 0, scan.purpose, scan.start, scan.end, (), others, False))
    return effects


@pytest.mark.parametrize("end", [13, 15])
@pytest.mark.parametrize(("error", "base_offset"), [(0, 10), (45, -1)])
def test_deleted_records_that_the_broker_remembers_follow_under_later_ordinals(
    error: int, base_offset: int, end: int
) -> None:
    """LIVELOCK, or NEEDLESS HALT. The lane sent the same records again and again. They may not be those that the broker
    remembers under these ordinals. If other clients have written records after the deleted ones, the lane has noted its
    position after these."""
    play, effects = at_least_once(error, base_offset, end)
    asked = one(effects, AskProducers)
    play.tell(ProducersAnswer(asked.question, 0, ProducerEntry(12, 1000)))
    play.tell(EndAnswer(play.lane.asked, 0, 1, end))
    effects = _scanned(play, play.tell(VisibleAnswer(play.lane.asked, 0, end, 13)))
    play.bind_all(checked(play, effects, 10, 12))
    assert [(hole.first, hole.last) for hole in play.record.holes if hole.first <= hole.last] == [(10, 12)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 13, 10)
    assert not play.lane.protected


def test_a_broker_that_cannot_say_what_it_remembers_is_asked_no_further() -> None:
    """Some brokers do not support the question. The lane halts after many attempts."""
    play, effects = at_least_once(45, -1)
    asked = one(effects, AskProducers)
    assert one(play.tell(ProducersAnswer(asked.question, 35, None)), AskEnd)
    assert play.lane.phase is Phase.RESUMING


@pytest.mark.parametrize("log_start", [10, 14])
def test_the_cleaner_may_have_removed_records_that_retention_cannot_have_deleted(log_start: int) -> None:
    """LOSS. Other clients have written newer records with the same keys at offsets 20 to 29, so the cleaner has removed
    ordinals 10 to 16, of which DeleteRecords had deleted four at most. Copies of the records would replace the newer
    ones, unless they are looked up."""
    _, effects = resumed(16, log_start, 30, others=((20, 30),), compacts=True)
    look_up = one(effects, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in look_up.missing] == [("between", 10, 16)]
