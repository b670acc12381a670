"""A ledger's gaps against a map of single offsets."""

import random

from hypothesis import given
from hypothesis import strategies as st

from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state import FlowState
from mirrord.model.facts import Reason, SourceRun, Verdict, VerdictGiven
from mirrord.model.runs import Run
from tests.fixtures.ledger import lane_id

REASONS: tuple[Reason, ...] = ("control", "aborted", "compacted", "expired", "doubled")
Range = tuple[int, int, Reason, int]
RANGES = st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from(REASONS), st.integers(0, 1))


@given(st.lists(RANGES, max_size=30), st.randoms(use_true_random=False))
def test_the_newest_word_on_each_offset_counts(ranges: list[Range], chance: random.Random) -> None:
    gaps, single = Gaps(FlowState()), dict[tuple[str, int], tuple[Reason, int]]()
    for at_ms, (start, length, reason, number) in enumerate(ranges):
        lane, verdicts = lane_id(number), (Verdict(start, start + length, reason),)
        if chance.random() < 0.5:
            gaps.take(SourceRun(lane, 1, (Run(0, start + length),), verdicts), at_ms)
        else:
            gaps.take(VerdictGiven(lane, 1, verdicts, ""), at_ms)
        single |= {(lane, offset): (reason, at_ms) for offset in range(start, start + length)}
    told = [((gap.lane, offset), (gap.reason, gap.at_ms)) for gap in gaps for offset in range(gap.start, gap.end)]
    assert len(told) == len(dict(told))
    assert dict(told) == single
    for lane in {gap.lane for gap in gaps}:
        starts = [gap.start for gap in gaps if gap.lane == lane]
        assert starts == sorted(starts)


def test_what_was_truncated_stands_beside_what_came_in_its_place() -> None:
    gaps, lane = Gaps(FlowState()), lane_id(0)
    for at_ms in (1, 2):
        gaps.take(VerdictGiven(lane, 1, (Verdict(3, 9, "truncated"),), ""), at_ms)
    gaps.take(VerdictGiven(lane, 1, (Verdict(4, 5, "control"),), ""), 3)
    told = [(gap.start, gap.end, gap.reason, gap.at_ms) for gap in gaps]
    assert told == [(4, 5, "control", 3), (3, 9, "truncated", 2)]
