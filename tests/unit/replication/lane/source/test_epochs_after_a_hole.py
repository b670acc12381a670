"""The source epochs at a resume: after a hole, their order is that of source offsets, not that of ordinals."""

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import (
    Append,
    AskDivergence,
    Chunk,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    Lost,
    ProduceAnswer,
)
from mirrord.replication.lane.source import source_epochs
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import retake
from tests.unit.replication.lane.test_rebuilding import LANE, Play
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened


def resumed(epochs: tuple[tuple[int, int], ...], runs: tuple[Run, ...], hole: HoleFound, ordinal: int, at: int) -> Play:
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, runs, (), epochs), hole)
    play.begin("second")
    play.lane.resume_ordinal, play.lane.position = ordinal, at
    source_epochs.recall(play.lane)
    return play


def test_records_that_were_copied_again_do_not_move_the_beginning_of_a_later_epoch() -> None:
    """Ordinals 0 to 3 are a hole, and were copied again as 10 to 13. Offsets 0 to 6 are of epoch 0, 7 to 9 of epoch 1,
    and those from 10 on of epoch 3."""
    hole = HoleFound(LANE, 1, 0, 3, 10, 14)
    runs, epochs = (Run(0, 0), Run(10, 0), Run(14, 10)), ((0, 0), (7, 1), (10, 0), (14, 3))
    seen = resumed(epochs, runs, hole, 18, 14).lane.seen
    assert [seen.before(at) for at in (4, 7, 8, 10, 11)] == [0, 0, 1, 1, 3]
    assert (seen.divergence(0, 7), seen.divergence(1, 12)) == (7, 10)


def test_in_a_gap_the_epoch_of_the_next_record_applies() -> None:
    hole = HoleFound(LANE, 1, 11, 11, 12, 12)
    runs, epochs = (Run(0, 0), Run(2, 3), Run(12, 14)), ((0, 0), (12, 1))
    assert resumed(epochs, runs, hole, 12, 14).lane.epoch == 1


def test_an_epoch_of_which_nothing_was_copied_is_not_assumed() -> None:
    hole = HoleFound(LANE, 1, 11, 11, 12, 12)
    runs, epochs = (Run(0, 0), Run(12, 12)), ((0, 0), (12, 1))
    assert resumed(epochs, runs, hole, 12, 12).lane.epoch == 0


@pytest.mark.parametrize(("start", "epoch"), [(13, 1), (9, 0)])
def test_after_records_that_are_not_copied_again_the_epoch_in_the_gap_applies(start: int, epoch: int) -> None:
    """FALSE TRUNCATION. Ordinals 6 to 8 are lost, and other writers have newer records of their keys. Ordinal 9 is
    source offset 13, after a marker and records of an aborted transaction. The source's epoch 1 began at the marker, so
    epoch 0 ends before offset 13. If there is no gap (`start` is 9), ordinal 9 may be a record that the source lost."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)), TargetRun(LANE, 1, 0, 1, 1))
    verdicts = (Verdict(9, 10, "control"), Verdict(10, 13, "aborted")) if start == 13 else ()
    play.fold(SourceRun(LANE, 1, (Run(9, start),), verdicts, ((9, 1),)))
    retake(play, 9, 10, start, epoch=1)
    asked = one(read(play, play.ask_target(11, epoch=3), (1, 7), own=(), others=((7, 11),)), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 6, 8)]
    effects = play.tell(judged(asked, dict.fromkeys((6, 7, 8), b"key"), (7, b"key", 3, -1)))
    fetch = one(play.bind_all(effects), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (start, epoch)


def all_left_out() -> tuple[Faulty, Effects]:
    """Ordinals 0 to 9 are lost, and other clients have written newer records with the same keys. The lane continues at
    offset 10."""
    play = opened(*BEGUN)
    retake(play, 10, 10, 10, epoch=1)
    asked = one(read(play, play.ask_target(12, epoch=3), (1, 0), own=(), others=((0, 12),)), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 0, 9)]
    effects = play.tell(judged(asked, dict.fromkeys(range(10), b"key"), (11, b"key", 3, -1)))
    return play, play.bind_all(effects)


def test_records_that_replaced_all_lost_ones_are_copied() -> None:
    """LOSS. After the look-up, the source loses its records from offset 3 on, and grows past offset 10 again. The lane
    has not copied any record below offset 10 that the target still has, and fetched without an epoch."""
    play, effects = all_left_out()
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (10, 0)
    effects = play.tell(Chunk(fetch.question, 0, 20, 20, 0, (), bytearray(), 0, 0, None, 0, 3))
    assert "[3, 10)" in one(effects, Lost).line
    assert one(effects, FetchFrom).position == 3


def test_the_next_holder_notices_that_all_lost_records_were_replaced() -> None:
    play, _ = all_left_out()
    play.take(None, cleanly=False)
    effects = read(play, play.ask_target(12, epoch=3), (3, 12), own=(), others=((0, 12),))
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (10, 0)


def behind_a_hole() -> tuple[Faulty, FetchFrom]:
    """Ordinals 2 and 3 were a hole, and the lane has just copied them again, as ordinals 10 and 11. The source offsets
    up to 5 are of epoch 1, 6 and 7 are of epoch 2, and 8 and 9 of epoch 3."""
    epochs = ((0, 1), (6, 2), (8, 3), (10, 1), (12, 3))
    play = opened(
        SourceRun(LANE, 1, (Run(0, 0), Run(10, 2), Run(12, 10)), (), epochs),
        TargetRun(LANE, 1, 0, 0, 1),
        TargetRun(LANE, 1, 4, 2, 1),
        HoleFound(LANE, 1, 2, 3, 10, 12),
    )
    retake(play, 10, 8, 2)
    effects = play.ask_target(8, last=9)
    asked = one(play.bind_all(effects) or effects, AskDivergence)
    assert (asked.position, asked.epoch) == (10, 3)
    fetch = one(play.tell(DivergenceAnswer(asked.question, 0)), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (2, 1)
    fetch = one(play.tell(chunk(fetch, data((2, 2, 1, 0)))), FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (10, 3)
    for each in list(play.lane.in_flight):
        play.tell(ProduceAnswer(play.lane.round, each, 0, 8))
    return play, fetch


def lost(play: Faulty, fetch: FetchFrom, epoch: int, end: int) -> tuple[FetchFrom, SourceRun]:
    """The source log has this epoch up to this offset, and then a later one than that of the fetch. Return the next
    fetch, and the fact about the loss."""
    effects = play.tell(chunk(fetch, bytearray(), diverging_epoch=epoch, diverging_end=end))
    fact = next(fact for fact in one(effects, Append).facts if isinstance(fact, SourceRun))
    play.bind_all(effects)
    return one(effects, FetchFrom), fact


def test_the_epochs_of_records_over_which_a_plan_jumps_are_those_in_the_ledger() -> None:
    """DOUBLE. The source lost epoch 3, and had more records of epoch 2 instead. The lane fetched them with epoch 1, as
    if this epoch lasted up to the offset to which it had jumped. It took the answer for a loss of epoch 2, and copied
    offsets 6 and 7 a second time."""
    play, fetch = behind_a_hole()
    fetch, fact = lost(play, fetch, 2, 12)
    assert (fact.runs, fact.verdicts) == ((Run(12, 8),), (Verdict(8, 10, "truncated"),))
    assert (fetch.position, fetch.last_epoch) == (8, 2)


def test_the_epoch_of_lost_records_is_forgotten_although_the_ledger_still_has_it() -> None:
    """DOUBLE. When the source lost epoch 5 as well, the lane still had epoch 3 for offset 8, as in the ledger before
    the first loss. It went back to this offset, and copied the records of epoch 2 a second time."""
    play, fetch = behind_a_hole()
    fetch, _ = lost(play, fetch, 2, 12)
    effects = play.tell(chunk(fetch, data((8, 4, 2, 0), (12, 2, 5, 0))))
    fetch = one(effects, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (14, 5)
    play.bind_all(effects)
    while play.lane.in_flight:
        play.tell(ProduceAnswer(play.lane.round, play.lane.in_flight[0], 0, play.lane.expected))
    fetch, fact = lost(play, fetch, 2, 15)
    assert (fact.runs, fact.verdicts) == ((Run(18, 12),), (Verdict(12, 14, "truncated"),))
    assert (fetch.position, fetch.last_epoch) == (12, 2)
