"""A gap between the batches of the source: compaction, or damage of a log that is not compacted."""

import pytest

from mirrord.ledger.facts.core import Reason, SourceRun, Verdict
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, Effects, FetchFrom, Halted, Lost, Wake, Woken
from mirrord.replication.lane.source.cleanup_policy import AskCleanup, CleanupAnswer
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from tests.sim import toy
from tests.unit.replication.lane.source.test_source_epochs import chunk, data, fetch_of
from tests.unit.replication.lane.test_answers import Record, copying


def holed() -> bytearray:
    """No record at the offsets 2 to 4. A lane patches it."""
    return data((0, 2, 0, 0), (5, 2, 0, 0))


def at_the_hole() -> tuple[Lane, AskCleanup]:
    """The source has no batch for the offsets 2 to 4."""
    lane, fetch = copying(compacts=False)
    effects = step(lane, 0.0, chunk(fetch, holed()))
    assert [each.first for each in lane.ready] == [0], "what precedes it is copied meanwhile"
    assert not any(isinstance(each, FetchFrom) for each in effects), "nothing is fetched until that is known"
    (asked,) = [each for each in effects if isinstance(each, AskCleanup)]
    return lane, asked


def after(lane: Lane, effects: Effects) -> list[Verdict]:
    """The verdicts that follow when the source answers again."""
    effects_after = step(lane, 0.0, chunk(fetch_of(effects), holed()))
    return [
        verdict
        for effect in effects_after
        if isinstance(effect, Append)
        for fact in effect.facts
        if isinstance(fact, SourceRun)
        for verdict in fact.verdicts
    ]


@pytest.mark.parametrize(("compacts", "reason"), [(True, "compacted"), (False, "unexplained"), (None, "compacted")])
def test_the_policy_of_the_topic_decides(compacts: bool | None, reason: Reason) -> None:
    """If it may not be read, nothing can be claimed."""
    lane, asked = at_the_hole()
    effects = step(lane, 0.0, CleanupAnswer(asked.question, compacts))
    lost = [each.line for each in effects if isinstance(each, Lost)]
    assert bool(lost) == (reason == "unexplained")
    assert all("[2, 5)" in line and "not compacted" in line for line in lost)
    assert after(lane, effects) == [Verdict(2, 5, reason)]


def test_a_lane_that_halts_at_losses_halts_before_a_hole() -> None:
    lane, asked = at_the_hole()
    lane.on_loss = "halt"
    effects = step(lane, 0.0, CleanupAnswer(asked.question, False))
    assert lane.phase is Phase.HALTED
    assert any(isinstance(each, Halted) and "[2, 5)" in each.line for each in effects)
    assert not any(isinstance(each, FetchFrom) for each in effects)


def test_a_policy_that_cannot_be_read_now_is_asked_for_again() -> None:
    lane, asked = at_the_hole()
    (wake,) = step(lane, 0.0, CleanupAnswer(asked.question, None, "no answer"))
    assert isinstance(wake, Wake)
    assert "no answer" in lane.origin.line
    (again,) = step(lane, 1.0, Woken(wake.question))
    assert isinstance(again, AskCleanup)
    assert step(lane, 1.0, CleanupAnswer(asked.question, False)) == [], "an answer to the former question"
    assert after(lane, step(lane, 1.0, CleanupAnswer(again.question, False))) == [Verdict(2, 5, "unexplained")]
    assert not lane.origin.line


@pytest.mark.parametrize("reason", ["compacted", "unexplained"])
def test_a_verdict_of_the_ledger_is_not_asked_about_again(reason: Reason) -> None:
    """The topic's policy may have changed since."""
    lane, fetch = copying(compacts=False)
    record = lane.record
    assert isinstance(record, Record)
    record.newest_verdicts = (Verdict(2, 5, reason),)
    effects = step(lane, 0.0, chunk(fetch, holed()))
    assert not any(isinstance(each, AskCleanup) for each in effects)
    (append,) = [each for each in effects if isinstance(each, Append)]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    assert fact.verdicts == (Verdict(2, 5, reason),)


def test_a_batch_without_some_of_its_records_is_evidence_of_compaction() -> None:
    lane, fetch = copying(compacts=False)
    found = data((0, 2, 0, 0)) + toy.encode(2, 4, [(2, 1), (4, 2)], newest_ms=1, leader_epoch=0)
    effects = step(lane, 0.0, chunk(fetch, found + data((8, 1, 0, 0))))
    assert not any(isinstance(each, AskCleanup) for each in effects)
    assert lane.gap.compacts
