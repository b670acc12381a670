"""The source's log cleaner removes records that were to be copied again, and the records go through policies."""

import pytest

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskDivergence,
    Chunk,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    OwnBatch,
    Produce,
    ProduceAnswer,
)
from mirrord.replication.lane.source.cleanup_policy import AskCleanup, CleanupAnswer
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


def taken() -> tuple[Faulty, FetchFrom]:
    """The lane is about to copy the records of the hole. Return its fetch request."""
    play = opened(*HOLE)
    retake(play, 8, 2, 0)
    play.lane.has_policies = True
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
