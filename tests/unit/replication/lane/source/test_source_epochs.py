"""Every fetch carries the leader epoch of the source batch before its position, if one is known."""

from msgspec.structs import replace

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL
from mirrord.ledger.facts.core import Progress, SourceRun, Verdict
from mirrord.model.names import LaneId
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskEnd,
    Bound,
    CheckAnswer,
    Chunk,
    Effects,
    EndAnswer,
    FetchFrom,
    Lost,
    OwnBatch,
    Produce,
    ProduceAnswer,
    ProducersAnswer,
    ScanAnswer,
    Start,
    VisibleAnswer,
    Wake,
)
from mirrord.replication.lane.source.epoch_cache import EpochCache
from mirrord.replication.lane.source.last_copied import copied_from
from mirrord.replication.lane.source.source_epochs import epochs_again, is_another, recall_copied
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from tests.sim import toy
from tests.unit.replication.lane.test_answers import Record, copying

LANE = LaneId("a.0.b")


def seen(*batches: tuple[int, int, int]) -> EpochCache:
    """Batches as (end of the previous batch, its own end, epoch)."""
    epochs = EpochCache()
    for start, end, epoch in batches:
        epochs.note(start, epoch)
        epochs.reach(end)
    return epochs


def test_the_epoch_before_a_position() -> None:
    epochs = seen((0, 10, 1), (10, 20, 3))
    assert [epochs.before(at) for at in (1, 10, 11, 20)] == [1, 1, 3, 3]
    assert epochs.before(21) == -1


def test_in_a_hole_the_epoch_after_it_counts() -> None:
    # If an epoch began in between, the previous one would look like a truncation.
    epochs = seen((0, 6, 1), (6, 101, 3))
    assert [epochs.before(at) for at in (6, 7, 100)] == [1, 3, 3]


def test_before_everything_the_first_epoch_counts() -> None:
    assert seen((50, 60, 4)).before(20) == 4


def test_epochs_of_skipped_offsets_are_not_known() -> None:
    epochs = seen((0, 10, 1))
    assert epochs.go_to(40) == -1
    epochs.note(40, 2)
    epochs.reach(50)
    assert [epochs.before(at) for at in (10, 11, 40, 41)] == [1, -1, -1, 2]
    assert epochs.go_to(5) == 1
    assert epochs.go_to(45) == 2


def test_an_epoch_that_is_gone_is_forgotten() -> None:
    epochs = seen((0, 10, 1), (10, 20, 3))
    epochs.diverge(10, 3)
    assert epochs.before(10) == 1
    assert epochs.before(11) == -1
    epochs.diverge(4, 1)
    assert epochs.before(4) == -1


def fetch_of(effects: Effects) -> FetchFrom:
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchFrom)]
    return fetch


def data(*batches: tuple[int, int, int, int]) -> bytearray:
    """Batches as (base, count, epoch, attributes)."""
    parts = [
        toy.encode(base, base + count - 1, [(base + at, at) for at in range(count)],
                   newest_ms=1, leader_epoch=epoch, attributes=attributes)
        for base, count, epoch, attributes in batches
    ]  # fmt: skip
    return bytearray(b"".join(parts))


def chunk(fetch: FetchFrom, found: bytearray, **fields: int) -> Chunk:
    return replace(Chunk(fetch.question, 0, 99, 99, 0, (), found, 0, len(found)), **fields)


def test_a_control_batch_in_front_counts() -> None:
    lane, fetch = copying()
    assert fetch.last_epoch == -1  # the first fetch begins at the start
    found = data((0, 2, 1, 0), (2, 1, 2, CONTROL | TRANSACTIONAL))
    fetch = fetch_of(step(lane, 0.0, chunk(fetch, found)))
    assert (fetch.position, fetch.last_epoch) == (3, 2)


def test_a_jump_back_and_forth() -> None:
    lane, fetch = copying()
    # A batch in epoch 1, a hole in which epoch 2 may have begun, one in epoch 3.
    fetch = fetch_of(step(lane, 0.0, chunk(fetch, data((0, 4, 1, 0), (8, 2, 3, 0)))))
    assert (fetch.position, fetch.last_epoch) == (10, 3)
    lane.plan.extend((Run(7, 2), Run(9, 6)))
    fetch = fetch_of(step(lane, 0.0, chunk(fetch, data((10, 1, 3, 0)))))
    assert (fetch.position, fetch.last_epoch) == (2, 1)
    fetch = fetch_of(step(lane, 0.0, chunk(fetch, data((2, 2, 1, 0)))))
    assert (fetch.position, fetch.last_epoch) == (6, 3)


def test_an_epoch_of_what_was_not_copied_is_not_asked_for_twice() -> None:
    lane, fetch = copying()
    fetch = fetch_of(step(lane, 0.0, chunk(fetch, data((0, 2, 1, 0), (2, 2, 3, 0)))))
    assert (fetch.position, fetch.last_epoch) == (4, 3)
    lane.position = 2  # as after a resume that dropped the second batch
    fetch = fetch_of(step(lane, 0.0, chunk(fetch, bytearray(), diverging_end=2)))
    assert (fetch.position, fetch.last_epoch) == (2, 1)
    assert lane.phase is Phase.COPYING


def taken_over(source_epoch: int = 5, source_end: int = -1, runs: tuple[Run, ...] = (Run(0, 0),)) -> Effects:
    """A takeover finds 4 records more than the resume position, which is at ordinal 10."""
    record = Record(grant=1, source_runs=Runs(runs), target_runs=Runs((Run(0, 0),)))
    lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    progress = Progress(LANE, 1, 1, 10, 10, 1, 10, 20, 1, 1, True, "copying", source_epoch=4)
    (append,) = step(lane, 0.0, Start(record, progress, "another", 0.0, True))
    assert isinstance(append, Append)
    record.grant, record.replicator = 2, "another"
    step(lane, 0.0, Bound(append.tag, (True,), record))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 14))
    step(lane, 0.0, ProducersAnswer(lane.asked, 0, None))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 14))
    step(lane, 0.0, VisibleAnswer(lane.asked, 0, 14, 0))
    effects = step(
        lane, 0.0, ScanAnswer(lane.asked, 0, "resume", 9, 14, (OwnBatch(8, 2, 8, 0), OwnBatch(10, 4, 10, 0)))
    )
    (check,) = [effect for effect in effects if isinstance(effect, AskCheck)]
    assert check.position == runs[-1].offset + 14 - runs[-1].ordinal
    asked = (check.question, 0, check.first, check.last)
    effects = step(lane, 0.0, CheckAnswer(*asked, "equal", "", source_epoch, source_end, equal_until=check.last + 1))
    assert (lane.phase is Phase.HALTED) == (source_end >= 0)
    return effects


def test_after_the_resume_position_the_comparison_gives_the_epoch() -> None:
    fetch = fetch_of(taken_over())
    assert (fetch.position, fetch.last_epoch) == (14, 5)


def test_a_run_that_begins_after_a_control_batch() -> None:
    fetch = fetch_of(taken_over(runs=(Run(0, 0), Run(14, 16))))
    assert (fetch.position, fetch.last_epoch) == (16, 5)


def test_a_comparison_that_knows_no_epoch() -> None:
    assert fetch_of(taken_over(source_epoch=-1)).last_epoch == -1


def test_a_source_that_ends_before_the_position_is_truncated() -> None:
    (halted,) = [each.facts[0] for each in taken_over(source_end=12) if isinstance(each, Append)][-1:]
    assert (halted.reason, halted.start, halted.end) == ("truncated", 12, 14)  # type: ignore[union-attr]


def test_a_progress_record_holds_the_epoch_at_its_own_position() -> None:
    epochs = EpochCache()
    epochs.begin(14, 5)
    assert [epochs.before(at) for at in (3, 14, 15)] == [5, 5, -1]


def idle() -> tuple[Lane, Record, FetchFrom]:
    """A lane that has copied 4 records of epoch 1 and 2 of epoch 3, and asks for more."""
    lane, fetch = copying()
    effects = step(lane, 0.0, chunk(fetch, data((0, 4, 1, 0), (4, 2, 3, 0))))
    # Both batches wait until their epochs are recorded.
    (append,) = [each for each in effects if isinstance(each, Append)]
    assert append.facts == (SourceRun(LANE, 1, (Run(0, 0), Run(4, 4)), (), ((0, 1), (4, 3))),)
    fetch = fetch_of(effects)
    record = lane.record
    assert isinstance(record, Record)
    record.epochs = ((0, 1), (4, 3))
    (ask,) = step(lane, 0.0, Bound(append.tag, (True,), record))
    assert isinstance(ask, AskEnd)
    (produce,) = [each for each in step(lane, 0.0, EndAnswer(ask.question, 0, 1, 0)) if isinstance(each, Produce)]
    effects = step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 0, 0))
    (produce,) = [each for each in effects if isinstance(each, Produce)]
    step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 0, 4))
    assert lane.acked == 6
    return lane, record, fetch


def test_a_truncated_source_is_reported_and_its_new_records_are_copied() -> None:
    lane, _, fetch = idle()
    lost, append, fetch = step(lane, 0.0, chunk(fetch, bytearray(), diverging_epoch=3, diverging_end=5))
    assert isinstance(lost, Lost)
    assert isinstance(append, Append)
    assert append.facts == (SourceRun(LANE, 1, (Run(6, 5),), (Verdict(5, 6, "truncated"),), ((6, 3),)),)
    assert isinstance(fetch, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (5, 3)


def test_a_log_that_parts_lacks_all_higher_epochs() -> None:
    # Its epoch 1 continues to offset 5, where the lane had read epoch 3 from offset 4 on.
    lane, _, fetch = idle()
    _, append, fetch = step(lane, 0.0, chunk(fetch, bytearray(), diverging_epoch=1, diverging_end=5))
    assert isinstance(append, Append)
    assert append.facts == (SourceRun(LANE, 1, (Run(6, 4),), (Verdict(4, 6, "truncated"),), ((6, 1),)),)
    assert isinstance(fetch, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (4, 1)


def test_a_marker_before_what_is_lost_is_not_lost() -> None:
    # Ordinals 0 to 3 are offsets 0 to 3 of epoch 1, then a marker of the same epoch, then two records of epoch 3.
    record = Record(grant=1, source_runs=Runs((Run(0, 0), Run(4, 5))), target_runs=Runs((Run(0, 0),)))
    record.epochs = ((0, 1), (4, 3))
    lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    progress = Progress(LANE, 1, 1, 6, 6, 1, 7, 20, 1, 1, True, "drained", source_epoch=3, epochs_told=True)
    (append,) = step(lane, 0.0, Start(record, progress, "another", 0.0, True))
    assert isinstance(append, Append)
    record.grant, record.replicator = 2, "another"
    step(lane, 0.0, Bound(append.tag, (True,), record))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 6))
    step(lane, 0.0, ProducersAnswer(lane.asked, 0, None))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 6))
    fetch = fetch_of(step(lane, 0.0, VisibleAnswer(lane.asked, 0, 6, 0)))
    assert (fetch.position, fetch.last_epoch) == (7, 3)
    effects = step(lane, 0.0, chunk(fetch, bytearray(), diverging_epoch=1, diverging_end=5))
    (recorded,) = [each for each in effects if isinstance(each, Append)]
    assert recorded.facts == (SourceRun(LANE, 2, (Run(6, 4),), (Verdict(5, 7, "truncated"),), ((6, 1),)),)
    assert fetch_of(effects).position == 4


def test_after_a_truncation_the_epoch_is_of_what_was_copied_before_it() -> None:
    """Ordinals 0 to 3 are offsets 0 to 3 of epoch 1; offsets 4 and 5 of epoch 3 were skipped. The source lost what was
    copied from offset 6 on, and its present record there is to follow as ordinal 6."""
    record = Record(grant=1, source_runs=Runs((Run(0, 0), Run(4, 6))), target_runs=Runs((Run(0, 0),)))
    record.source_runs.add(6, 6)
    record.truncations, record.epochs = ((6, 6),), ((0, 1), (4, 3), (6, 3))
    lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
    progress = Progress(LANE, 1, 1, 6, 6, 1, 6, 20, 1, 1, True, "copying")
    step(lane, 0.0, Start(record, progress, "another", 0.0, True))
    record.grant, record.replicator = 2, "another"
    step(lane, 0.0, Bound(lane.facts_tag, (True,), record))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 6))
    step(lane, 0.0, ProducersAnswer(lane.asked, 0, None))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, 6))
    fetch = fetch_of(step(lane, 0.0, VisibleAnswer(lane.asked, 0, 6, 0)))
    assert (fetch.position, fetch.last_epoch) == (6, 3)


def test_the_offsets_copied_from_an_offset_on() -> None:
    record = Record(source_runs=Runs((Run(0, 0), Run(4, 6), Run(8, 3), Run(10, 20))), truncations=((8, 3),))
    assert [copied_from(record, at, 11) for at in (0, 2, 3, 5, 6, 21, 22)] == [0, 2, 3, 20, 20, 21, None]


def test_a_truncation_waits_for_what_is_on_its_way() -> None:
    lane, _, fetch = idle()
    effects = step(lane, 0.0, chunk(fetch, data((6, 2, 3, 0))))
    assert [each for each in effects if isinstance(each, Produce)]
    effects = step(lane, 0.0, chunk(fetch_of(effects), bytearray(), diverging_epoch=3, diverging_end=5))
    assert (effects, lane.phase) == ([], Phase.SETTLING)


def test_nobody_else_may_be_writing_when_ordinals_get_another_meaning() -> None:
    lane, _, fetch = idle()
    lane.late_writes.former_holder_until = 9.0
    effects = step(lane, 1.0, chunk(fetch, bytearray(), diverging_epoch=3, diverging_end=5))
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    assert (wake.at, lane.phase) == (9.0, Phase.WAITING)


def test_epochs_that_were_recorded_again_count_before_they_are_bound() -> None:
    lane, _ = copying()
    lane.record = Record(source_runs=Runs([Run(0, 0), Run(6, 4), Run(8, 14)]), epochs=((0, 0), (8, 1)))
    lane.resume_ordinal = 6
    # What follows from ordinal 6 on is copied again, without the record of that ordinal.
    assert epochs_again(lane, [(6, 7, 1), (7, 8, 1)]) == ((6, 0), (7, 1))
    lane.next_ordinal = 7
    assert is_another(lane, 0)
    assert not is_another(lane, 1)
    recall_copied(lane, 14)
    assert (lane.history.recorded_epoch, lane.history.recorded_epoch_since) == (1, 7)
    # The next fact moves up what the last one recorded.
    assert epochs_again(lane, [(6, 7, 1)]) == ((6, 1),)
