"""Which pairs of offsets are written: at the beginnings of runs, the last record at rest, nothing unacknowledged."""

from mirrord.ledger.facts.core import HoleFound, LaneHalted
from mirrord.ledger.mm2_offset_pairs import MOST, PublishedPairs, due_syncs
from mirrord.ledger.state import LaneState
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.runs import Run, Runs


def lane(source: list[tuple[int, int]], target: list[tuple[int, int]]) -> LaneState:
    made = LaneState(LaneKey(TopicId("s"), 3, TopicId("t")), "orders", "eu.orders", 1, 0, "read_committed", "sequence")
    made.source_runs = Runs(Run(*each) for each in source)
    made.target_runs = Runs(Run(*each) for each in target)
    return made


def published_to(known: LaneState, next_ordinal: int, last: int) -> PublishedPairs:
    """The records up to here were written."""
    upstream, downstream = known.source_runs.offset_of(last), known.target_runs.offset_of(last)
    assert upstream is not None
    assert downstream is not None
    return PublishedPairs(next_ordinal, last, upstream, downstream)


def pairs(
    known: LaneState, next_ordinal: int, published: PublishedPairs | None, lag_max: int = 100
) -> tuple[list[tuple[int, int]], int]:
    """The pairs that are written, and up to which ordinal."""
    syncs, after = due_syncs(known, next_ordinal, published, lag_max)
    assert all((each.topic, each.partition) == ("orders", 3) for each in syncs)
    assert after.considered_below == next_ordinal
    return [(each.upstream, each.downstream) for each in syncs], after.last


def test_nothing_is_published_of_a_lane_without_acknowledged_records() -> None:
    known = lane([(0, 10)], [])
    assert pairs(known, 0, None) == ([], -1)
    assert pairs(known, 0, PublishedPairs(0)) == ([], -1)


def test_a_lane_that_is_seen_again_publishes_its_last_record() -> None:
    known = lane([(0, 10), (5, 20)], [(0, 0)])
    assert pairs(known, 8, None) == ([(22, 7)], 7)


def test_the_beginnings_of_runs_are_published_on_both_sides() -> None:
    known = lane([(0, 10), (5, 20)], [(0, 0), (7, 100)])
    assert pairs(known, 8, published_to(known, 1, 0)) == ([(20, 5), (22, 100)], 7)


def test_only_what_is_below_the_resume_position_is_published() -> None:
    known = lane([(0, 10), (5, 20)], [(0, 0), (7, 100)])
    assert pairs(known, 5, published_to(known, 1, 0)) == ([], 0)
    assert pairs(known, 6, published_to(known, 5, 0)) == ([(20, 5)], 5)


def test_the_last_record_is_published_after_the_lag_and_at_rest() -> None:
    known = lane([(0, 10)], [(0, 0)])
    assert pairs(known, 101, published_to(known, 1, 0)) == ([], 0)
    assert pairs(known, 102, published_to(known, 1, 0)) == ([(111, 101)], 101)
    assert pairs(known, 50, published_to(known, 50, 0)) == ([(59, 49)], 49), "at rest"
    assert pairs(known, 50, published_to(known, 50, 49)) == ([], 49)
    assert pairs(known, 3, published_to(known, 2, 1), lag_max=0) == ([(12, 2)], 2)


def test_of_many_runs_the_latest_are_published() -> None:
    known = lane([(ordinal, 10 + 2 * ordinal) for ordinal in range(0, 100, 2)], [(0, 0)])
    written, last = pairs(known, 99, published_to(known, 1, 0))
    assert len(written) == MOST
    assert written[-1] == (10 + 2 * 98, 98)
    assert last == 98


def test_a_resume_position_that_went_back_begins_again() -> None:
    known = lane([(0, 10)], [(0, 0)])
    assert pairs(known, 5, published_to(known, 9, 8)) == ([(14, 4)], 4)


def test_records_whose_runs_were_pruned_are_left_out() -> None:
    known = lane([(0, 10)], [(20, 100)])
    assert pairs(known, 5, None)[0] == []


def test_records_out_of_order_are_not_published() -> None:
    """Ordinals 5 to 9 were refused; their records follow those of 10 to 19, under 20 to 24."""
    known = lane([(0, 0), (20, 5), (25, 20)], [(0, 0), (10, 5)])
    known.holes = (HoleFound(known.key.id, 1, 5, 9, 20, 25),)
    assert pairs(known, 25, published_to(known, 1, 0)) == ([], 0)
    assert pairs(known, 25, None) == ([], -1)
    assert pairs(known, 25, published_to(known, 25, 0)) == ([], 0), "nor at rest"
    assert pairs(known, 30, published_to(known, 25, 0)) == ([(20, 20)], 25)


def test_a_pair_that_was_published_and_is_elsewhere_now_is_withdrawn() -> None:
    """A pair below the last one makes MirrorMaker 2 forget those that it has."""
    known = lane([(0, 10)], [(0, 0), (40, 30)])
    assert pairs(known, 60, PublishedPairs(50, 49, 59, 49)) == ([(58, 38), (69, 49)], 59)


def test_pairs_only_ascend() -> None:
    known = lane([(0, 10), (5, 3)], [(0, 0)])
    assert pairs(known, 9, published_to(known, 5, 4)) == ([], 4)


def test_nothing_is_published_of_a_halted_lane() -> None:
    known = lane([(0, 10)], [(0, 0)])
    known.halted = LaneHalted(known.key.id, 1, "different", "both sides differ", 0, 1)
    assert pairs(known, 5, None) == ([], -1)
