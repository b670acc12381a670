"""The source no longer has some of the records that were to be copied again.

If the log cleaner has removed them, only lanes whose records go through policies leave them out; other lanes rebuild
the offset map. All lanes leave out records that retention has deleted.
"""

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun, Verdict
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.seeks import pending
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskDivergence,
    AskEnd,
    Chunk,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    Halted,
    Lost,
    OwnBatch,
    Produce,
    ProduceAnswer,
    Released,
    Wake,
)
from mirrord.replication.lane.source.cleanup_policy import AskCleanup, CleanupAnswer
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from tests.sim import toy
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened
from tests.unit.replication.lane.test_third_faults import plain

# Ordinals 0 to 5 are a hole, and are copied again as 8 to 13. The log begins with ordinal 6.
HOLE: tuple[LaneFact, ...] = (
    *BEGUN,
    TargetRun(LANE, 1, 6, 0, 1),
    HoleFound(LANE, 1, 0, 5, 8, 14),
    SourceRun(LANE, 1, (Run(8, 0), Run(14, 8))),
)


def taken(*, has_policies: bool = True) -> tuple[Faulty, FetchFrom]:
    """The lane is about to copy the records of the hole. Return its fetch request."""
    play = opened(*HOLE)
    retake(play, 8, 2, 0)
    play.lane.has_policies = has_policies
    play.now = play.lane.late_writes.until
    effects = plain(play, play.ask_target(2), (OwnBatch(0, 2, 6, 0, 1),))
    effects += play.bind_all(effects)
    play.lane.confirm_end = False
    return play, fetched(play, effects)


def fetched(play: Faulty, effects: Effects) -> FetchFrom:
    """Return the fetch request, once the source has confirmed that it has the copied records."""
    for asked in [each for each in effects if isinstance(each, AskDivergence)]:
        effects = [*effects, *play.tell(DivergenceAnswer(asked.question, 0, 0, 20))]
    return one(effects, FetchFrom)


def deleted(play: Faulty, fetch: FetchFrom, log_start: int) -> Effects:
    """The source has deleted all records below this offset."""
    return play.tell(Chunk(fetch.question, 1, 20, 20, log_start, (), bytearray(), 0, 0))


def chunk(fetch: FetchFrom, *batches: tuple[int, int, tuple[int, ...]]) -> Chunk:
    """Return source batches: (first offset, last offset, offsets of the records that are left)."""
    data = bytearray()
    for first, last, left in batches:
        data += toy.encode(first, last, [(offset, 100 + offset) for offset in left], newest_ms=1)
    return Chunk(fetch.question, 0, 20, 20, 0, (), data, 0, len(data))


def sent(play: Faulty, effects: Effects) -> list[tuple[int, int, int]]:
    """Bind all facts. Acknowledge all batches, and return (ordinal, count, source offset) for each of them."""
    found: list[tuple[int, int, int]] = []
    effects = [*effects, *play.bind_all(effects)]
    while produced := [each for each in effects if isinstance(each, Produce)]:
        effects = []
        for each in produced:
            for batch in each.batches:
                found.append((batch.first, batch.count, batch.offset))
                effects += play.tell(ProduceAnswer(each.round, batch, 0, play.lane.expected))
        effects += play.bind_all(effects)
    return found


def test_the_records_after_removed_ones_get_their_ordinals() -> None:
    """NEEDLESS HALT. Offsets 2 and 3 are removed from the middle of a batch."""
    play, fetch = taken()
    effects = play.tell(chunk(fetch, (0, 5, (0, 1, 4, 5)), (6, 7, (6, 7))))
    assert play.lane.phase is Phase.COPYING
    fetch = one(effects, FetchFrom)
    assert (fetch.position, play.lane.next_ordinal) == (0, 8), "no batch has been built from the offsets 0 and 1"
    play.bind_all(effects)
    assert offsets(play, 8, 13) == [0, 1, 4, 5, 8, 9]
    assert play.record.newest_verdicts == [Verdict(2, 4, "compacted")]
    effects = play.tell(chunk(fetch, (0, 5, (0, 1, 4, 5)), (6, 7, (6, 7))))
    fetch = one(effects, FetchFrom)
    assert sent(play, effects) == [(8, 2, 0)]
    effects = play.tell(chunk(fetch, (0, 5, (0, 1, 4, 5)), (6, 7, (6, 7))))
    assert sent(play, effects) == [(10, 2, 4)]
    assert (play.lane.position, list(play.lane.plan)) == (8, [])


def test_batches_before_removed_records_are_sent() -> None:
    play, fetch = taken()
    effects = play.tell(chunk(fetch, (0, 1, (0, 1)), (2, 5, (4, 5))))
    assert sent(play, effects) == [(8, 2, 0)]
    assert one(effects, FetchFrom).position == 4
    assert offsets(play, 8, 13) == [0, 1, 4, 5, 8, 9]


def test_removed_records_at_the_end_of_a_hole() -> None:
    """No record of the hole is left from offset 4 on. The next record, at offset 6, has been copied."""
    play, fetch = taken()
    effects = play.tell(chunk(fetch, (0, 3, (0, 1, 2, 3)), (6, 7, (6, 7))))
    assert sent(play, effects) == [(8, 4, 0)]
    assert one(effects, FetchFrom).position == 8
    assert (offsets(play, 8, 13), list(play.lane.plan)) == ([0, 1, 2, 3, 8, 9], [])
    assert play.record.newest_verdicts == [Verdict(4, 6, "compacted")]


def test_removed_records_at_the_end_of_a_batch() -> None:
    """The log cleaner keeps the last offset of a batch when it removes the last records. The next batch begins where
    the batch ended."""
    play, fetch = taken()
    play.lane.gap.compacts = False
    effects = play.tell(chunk(fetch, (0, 3, (0, 1)), (4, 5, (4, 5))))
    assert sent(play, effects) == [(8, 2, 0)]
    assert one(effects, FetchFrom).position == 4
    assert offsets(play, 8, 13) == [0, 1, 4, 5, 8, 9]
    assert play.record.newest_verdicts == [Verdict(2, 4, "compacted")]


def test_all_removed_records_of_a_chunk_are_recorded_at_once() -> None:
    """An entry for each of them would be slow if the cleaner has removed many."""
    play, fetch = taken()
    effects = play.tell(chunk(fetch, (0, 1, (1,)), (2, 3, (3,)), (5, 5, (5,))))
    play.bind_all(effects)
    assert one(effects, FetchFrom).position == 1
    assert offsets(play, 8, 12) == [1, 3, 5, 8, 9]
    gone = [(each.start, each.end) for each in play.record.newest_verdicts]
    assert gone == [(0, 1), (2, 3), (4, 5)]


def test_a_lane_waits_if_a_batch_with_the_ordinals_may_still_be_appended() -> None:
    """DOUBLE or LOSS."""
    play, fetch = taken()
    play.lane.late_writes.in_doubt_below = 20
    effects = play.tell(chunk(fetch, (2, 5, (4, 5))))
    assert play.lane.phase is not Phase.COPYING
    assert not play.bind_all(effects)
    assert offsets(play, 8, 13) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(("compacts", "reason"), [(True, "compacted"), (False, "unexplained")])
def test_the_topic_shows_why_records_are_missing(*, compacts: bool, reason: str) -> None:
    """FALSE VERDICT. A log that is not compacted has lost a segment if it has no batch for some offsets."""
    play, fetch = taken()
    play.lane.gap.compacts = False
    missing = (0, 1, (0, 1)), (4, 5, (4, 5))
    effects = play.tell(chunk(fetch, *missing))
    assert sent(play, effects) == [(8, 2, 0)]
    effects = play.tell(CleanupAnswer(one(effects, AskCleanup).question, compacts))
    effects = play.tell(chunk(fetched(play, effects), *missing))
    play.bind_all(effects)
    assert [(each.start, each.end, each.reason) for each in play.record.newest_verdicts] == [(2, 4, reason)]
    assert offsets(play, 10, 13) == [4, 5, 8, 9]


@pytest.mark.parametrize("has_policies", [True, False])
def test_a_lane_continues_with_the_records_of_a_hole_that_are_not_deleted(*, has_policies: bool) -> None:
    """NEEDLESS HALT, because `on_loss` is "continue"."""
    play, fetch = taken(has_policies=has_policies)
    effects = deleted(play, fetch, 4)
    assert "[0, 4) were deleted before they were copied" in one(effects, Lost).line
    play.bind_all(effects)
    assert one(effects, FetchFrom).position == 4
    assert offsets(play, 8, 11) == [4, 5, 8, 9]
    assert play.record.newest_verdicts == [Verdict(0, 4, "expired")]


def test_a_lane_continues_after_a_hole_that_is_deleted() -> None:
    """The source has also deleted records that the lane has not read yet."""
    play, fetch = taken()
    effects = deleted(play, fetch, 10)
    play.bind_all(effects)
    assert one(effects, FetchFrom).position == 10
    assert (offsets(play, 8, 9), list(play.lane.plan)) == ([10, 11], [])
    assert play.record.newest_verdicts == [Verdict(0, 6, "expired"), Verdict(8, 10, "expired")]


def test_a_seek_is_carried_out_when_the_last_records_of_a_hole_are_left_out() -> None:
    """The next record of the source may not arrive for a long time."""
    play, fetch = taken()
    play.fold(LaneSought(LANE, 0, 15, 0, Origin("ada@host", "", 0)))
    assert not play.bind_all(play.tell(Released(ahead=True)))
    effects = deleted(play, fetch, 20)
    effects += play.bind_all(effects)
    wakes = [each for each in effects if isinstance(each, AskEnd | Wake)]
    assert wakes, "the lane resumes"
    effects = plain(play, play.ask_target(2), (OwnBatch(0, 2, 6, 0, 1),))
    effects += play.bind_all(effects)
    effects = play.tell(DivergenceAnswer(one(effects, AskDivergence).question, 0, leader_epoch=0))
    play.bind_all(effects)
    assert not pending(play.record.seeks)


def test_removed_records_do_not_count_as_lost_once_their_offsets_are_deleted() -> None:
    """FALSE VERDICT. The chunk ends with a batch whose last records are removed. Then the source deletes the batch."""
    play, fetch = taken()
    effects = play.tell(chunk(fetch, (0, 3, (0, 1))))
    assert sent(play, effects) == [(8, 2, 0)]
    effects = deleted(play, one(effects, FetchFrom), 5)
    play.bind_all(effects)
    assert offsets(play, 10, 12) == [5, 8, 9]
    assert play.record.newest_verdicts == [Verdict(2, 4, "compacted"), Verdict(4, 5, "expired")]


@pytest.mark.parametrize("known", [3, 4])
def test_an_operator_decides_on_deleted_records_of_a_hole_if_the_lane_halts_at_losses(known: int) -> None:
    """The operator is shown up to which offset the source has deleted records. It may have deleted more since."""
    play, fetch = taken()
    play.lane.on_loss = "halt"
    effects = deleted(play, fetch, 4)
    assert "[0, 4) were deleted" in one(effects, Halted).line
    play.bind_all(effects)
    play.fold(LaneSought(LANE, 0, 4, known, Origin("ada@host", "", 0)))
    effects = play.tell(Released())
    effects = plain(play, [*effects, *play.bind_all(effects), *play.ask_target(2)], (OwnBatch(0, 2, 6, 0, 1),))
    fetch = fetched(play, [*effects, *play.bind_all(effects)])
    effects = deleted(play, fetch, 4)
    assert (play.lane.phase is Phase.HALTED) == (known < 4)
    play.bind_all(effects)
    assert offsets(play, 8, 9) == ([4, 5] if known == 4 else [0, 1])
    play.lane.confirm_end = False
    if known == 4:
        assert sent(play, play.tell(chunk(one(effects, FetchFrom), (4, 5, (4, 5))))) == [(8, 2, 4)]


def test_deleted_records_of_a_hole_are_not_left_out_while_their_batch_may_be_appended() -> None:
    """DOUBLE or LOSS."""
    play, fetch = taken(has_policies=False)
    play.lane.late_writes.in_doubt_below = 20
    play.bind_all(deleted(play, fetch, 4))
    assert play.lane.phase is not Phase.COPYING
    assert offsets(play, 8, 13) == [0, 1, 2, 3, 4, 5]


def test_only_records_that_were_not_copied_are_reported_as_lost() -> None:
    """LIE. Offsets 6 and 7 have been copied, but the report of the loss included them."""
    play, fetch = taken()
    line = one(deleted(play, fetch, 10), Lost).line
    assert line == "orders-0: source offsets [0, 6) and [8, 10) were deleted before they were copied"


def test_a_lane_that_halts_at_losses_names_only_records_that_were_not_copied() -> None:
    """LIE. The line of the halt included offsets 6 and 7 as well."""
    play, fetch = taken()
    play.lane.on_loss = "halt"
    line = one(deleted(play, fetch, 10), Halted).line
    assert line == "orders-0: source offsets [0, 6) and [8, 10) were deleted before they were copied"


def test_a_halt_does_not_name_records_that_are_skipped() -> None:
    play, fetch = taken()
    play.lane.on_loss = "halt"
    play.lane.left_out = [LeftOut(1, 2, "rejected"), LeftOut(4, 9, "skipped")]
    line = one(deleted(play, fetch, 10), Halted).line
    assert line == "orders-0: source offsets [0, 1) and [2, 4) and [9, 10) were deleted before they were copied"


@pytest.mark.parametrize("log_start", [6, 8, 10])
def test_the_source_is_asked_about_copied_records_after_all_of_a_hole_is_deleted(log_start: int) -> None:
    """LOSS. The source confirmed that it had the copied records. It then lost offset 7, has had other records from
    there on since, and deleted the first ones. All records of the hole are gone, and the lane did not ask again."""
    play, fetch = taken()
    effects = deleted(play, fetch, log_start)
    effects += play.bind_all(effects)
    while fetches := [each for each in effects if isinstance(each, FetchFrom)]:
        assert fetches[0].last_epoch == -1
        data = toy.encode(12, 12, [(12, 112)], newest_ms=1, leader_epoch=4)
        effects = play.tell(Chunk(fetches[0].question, 0, 20, 20, 0, (), bytearray(data), 0, len(data)))
    asked = one(effects, AskDivergence)
    assert (asked.position, asked.epoch) == (8, 0)
    effects = play.tell(DivergenceAnswer(asked.question, 0, 0, 7))
    play.bind_all(effects)
    assert play.lane.position == 7
    assert Verdict(7, 8, "truncated") in play.record.newest_verdicts
