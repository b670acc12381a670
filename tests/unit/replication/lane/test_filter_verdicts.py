"""What a lane records of records that a policy skips, when it asks the policy again."""

from collections.abc import Collection

from mirrord.ledger.facts.core import SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import (
    Append,
    AskEnd,
    Bound,
    Chunk,
    Effects,
    EndAnswer,
    FetchFrom,
    ProducersAnswer,
    VisibleAnswer,
    Woken,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from tests.sim import toy
from tests.unit.replication.lane.test_answers import Record, copying


def fetched(lane: Lane, effects: Effects, kept: Collection[int]) -> SourceRun:
    """The lane is given the offsets 0 to 9, of which the policy keeps some. Returns the fact it writes."""
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchFrom)]
    lane.rebuild = lambda request: toy.rebuild(request, lambda offset: offset in kept)
    data = toy.encode(0, 9, [(at, at) for at in range(10)], newest_ms=1)
    (append,) = [
        effect
        for effect in step(lane, 9.0, Chunk(fetch.question, 0, 10, 10, 0, (), data, 0, len(data)))
        if isinstance(effect, Append)
    ]
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    return fact


def resumed(lane: Lane) -> Effects:
    """The target did not answer before the first batch was sent: the lane asks again for its end."""
    step(lane, 9.0, EndAnswer(lane.asked, 6, 1, 0))
    (asked,) = step(lane, 9.5, Woken(lane.asked))
    assert isinstance(asked, AskEnd)
    step(lane, 9.5, EndAnswer(lane.asked, 0, 1, 0))
    step(lane, 9.5, ProducersAnswer(lane.asked, 0, None))
    step(lane, 9.5, EndAnswer(lane.asked, 0, 1, 0))
    return step(lane, 9.5, VisibleAnswer(lane.asked, 0, 0, 0))


def test_an_answer_of_an_earlier_round_is_not_recorded_again() -> None:
    lane, fetch = copying()
    lane.has_policies = True
    fact = fetched(lane, [fetch], {4, 7})
    assert (fact.runs, fact.verdicts) == (
        (Run(0, 4), Run(1, 7)),
        (Verdict(0, 4, "filtered"), Verdict(5, 7, "filtered")),
    )
    assert isinstance(lane.record, Record)
    for run in fact.runs:
        lane.record.source_runs.add(run.ordinal, run.offset)
    # Ordinal 1 was recorded with another epoch, so ordinals 0 and 1 are recorded again.
    lane.record.epochs = ((1, 1),)
    lane.record.newest_verdicts = fact.verdicts
    step(lane, 9.0, Bound(lane.intents[0][0], (True,), lane.record))
    effects = resumed(lane)
    assert any(isinstance(effect, Append) for effect in effects)  # the new facts are not bound yet
    fact = fetched(lane, effects, {8})
    assert (fact.runs, fact.verdicts) == ((Run(0, 4), Run(1, 8)), (Verdict(5, 8, "filtered"),))
