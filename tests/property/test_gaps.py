"""A ledger's gaps against a map of single offsets."""

import random

from hypothesis import given
from hypothesis import strategies as st

from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, Reason, SourceRun, Verdict, VerdictGiven
from mirrord.ledger.fold import fold
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state import FlowState
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

REASONS: tuple[Reason, ...] = ("control", "aborted", "compacted", "expired", "doubled")
Range = tuple[int, int, Reason, int]
RANGES = st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from(REASONS), st.integers(0, 1))


@given(st.lists(RANGES, max_size=30), st.randoms(use_true_random=False))
def test_the_newest_verdict_on_each_offset_counts(ranges: list[Range], chance: random.Random) -> None:
    gaps, single = Gaps(FlowState()), dict[tuple[str, int], tuple[Reason, int]]()
    for at_ms, (start, length, reason, number) in enumerate(ranges):
        lane, verdicts = lane_id(number), (Verdict(start, start + length, reason),)
        if chance.random() < 0.5:
            gaps.take(SourceRun(lane, 1, (Run(0, start + length),), verdicts), at_ms)
        else:
            gaps.take(VerdictGiven(lane, 1, verdicts, ""), at_ms)
        single |= {(lane, offset): (reason, at_ms) for offset in range(start, start + length)}
    listed = [((gap.lane, offset), (gap.reason, gap.at_ms)) for gap in gaps for offset in range(gap.start, gap.end)]
    assert len(listed) == len(dict(listed))
    assert dict(listed) == single
    for lane in {gap.lane for gap in gaps}:
        starts = [gap.start for gap in gaps if gap.lane == lane]
        assert starts == sorted(starts)


def test_what_was_truncated_is_listed_next_to_what_replaced_it() -> None:
    gaps, lane = Gaps(FlowState()), lane_id(0)
    gaps.take(VerdictGiven(lane, 1, (Verdict(0, 7, "filtered"),), ""), 0)
    for at_ms in (1, 2):
        gaps.take(VerdictGiven(lane, 1, (Verdict(3, 9, "truncated"),), ""), at_ms)
    gaps.take(VerdictGiven(lane, 1, (Verdict(4, 5, "control"),), ""), 3)
    listed = [(gap.start, gap.end, gap.reason, gap.at_ms) for gap in gaps]
    assert listed == [(0, 3, "filtered", 0), (4, 5, "control", 3), (3, 9, "truncated", 2)]


@given(st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=8), st.data())
def test_the_records_of_a_filter_that_is_asked_again_are_recorded_once(
    answers: list[list[bool]], data: st.DataObject
) -> None:
    """Each holder goes back to an offset that was recorded already, asks again about what follows and writes runs and
    answers in one fact or in several; some facts of the previous holder come after the first one it writes."""
    state, lane = FlowState(), lane_id(0)
    gaps = Gaps(state)
    facts: list[SourceRun] = []
    kept: dict[int, bool] = {}
    for holder in answers:
        offset = data.draw(st.integers(0, len(kept)))
        for at in range(offset, len(kept)):
            del kept[at]
        ordinal = sum(kept.values())
        for keeps in holder:
            kept[offset] = keeps
            if keeps:
                start = offset
                while start and not kept[start - 1]:
                    start -= 1
                verdicts = (Verdict(start, offset, "filtered"),) if start < offset else ()
                facts.append(SourceRun(lane, 1, (Run(ordinal, offset),), verdicts))
                ordinal += 1
            offset += 1
    entries = [(FLOW,), (LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(lane, 1, "r1")), *((fact,) for fact in facts)]
    for at, entry_facts in enumerate(entries):
        fold(state, entry(*entry_facts, epoch=min(at, 1)), at)
        for fact in entry_facts:
            gaps.take(fact, at)
    last = max((offset for offset, keeps in kept.items() if keeps), default=-1)
    left_out = {offset for gap in gaps for offset in range(gap.start, gap.end)}
    wanted = {offset for offset, keeps in kept.items() if not keeps and offset < last}
    assert {offset for offset in left_out if offset <= last} == wanted
    assert state.lanes[lane].verdicts.counts.get("filtered", 0) == len(left_out)
