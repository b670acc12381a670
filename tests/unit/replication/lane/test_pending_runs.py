"""Facts about the target log that wait to take effect change the runs with which the lane compares what it learns."""

import pytest

from mirrord.ledger.facts.core import SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane import in_flight
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, Batch, OwnBatch, ProduceAnswer
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target import target_scan
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.fixture
def play() -> Play:
    """The lane has copied 10 records to offsets 2 to 11, according to the ledger."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 2, 1))
    play.begin("second")
    play.lane.resume_position = ResumePosition(10, 12, 1)
    return play


@pytest.mark.parametrize("waits", [True, False])
def test_the_first_acknowledgement_is_recorded_while_facts_wait(play: Play, *, waits: bool) -> None:
    lane = play.lane
    batch = Batch(10, 1, 10, 11, bytearray(10), 0, 10, 1, None)
    lane.phase, lane.pipelined, lane.expected, lane.acked = Phase.COPYING, False, 12, 10
    lane.in_flight.append(batch)
    if waits:  # for example `TargetRun(LANE, 2, 0, 0, 2)`, after which ordinal 10 would count as at offset 10
        lane.notes.add(77)
    effects = in_flight.batch_answered(lane, 0.0, ProduceAnswer(lane.round, batch, 0, 12))
    facts = [fact for each in effects if isinstance(each, Append) for fact in each.facts]
    recorded = [(fact.ordinal, fact.offset) for fact in facts if isinstance(fact, TargetRun)]
    assert recorded == ([(10, 12)] if waits else [])


@pytest.mark.parametrize("waits", [True, False])
def test_fetched_records_are_recorded_while_facts_are_pending(play: Play, *, waits: bool) -> None:
    if waits:
        play.lane.notes.add(77)
    own = (OwnBatch(2, 4, 0, 0, 2), OwnBatch(6, 6, 4, 0, 2))
    found = target_scan.walk(play.lane, own, 0)
    facts = [(fact.ordinal, fact.offset) for fact in found.facts if isinstance(fact, TargetRun)]
    assert facts == ([(0, 2)] if waits else [])
