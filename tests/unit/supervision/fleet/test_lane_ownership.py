"""What the next holder of a lane learns about the previous one."""

from types import SimpleNamespace

import pytest

from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.replication.lane.assignment import NOT_LEFT, FlowSetup, LaneAssignment, Parting
from mirrord.supervision.fleet.lane_ownership import Custody
from tests.fixtures.fake_pipe import as_any

KEY = LaneKey(TopicId("S" * 22), 0, TopicId("T" * 22))
LANE = KEY.id
CLUSTER = ClusterConfig(("here:9092",), Security())
SETUP = FlowSetup(
    flow=FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",)),
    source=CLUSTER,
    target=CLUSTER,
    runtime=RuntimeConfig(),
    lease_epoch=1,
    source_cluster_id=ClusterId("a"),
    target_cluster_id=ClusterId("b"),
)
LATER = SETUP.barrier_s("unknown", (0, 0)) + 1


def word(grant: int) -> Progress:
    return Progress(LANE, 1, grant, 10, 10, 1, 10, 20, 1, 1, True, "drained", epochs_told=True)


class Lane:
    """A lane that one replicator after the other gets; each takes it in the ledger, unless a test says otherwise."""

    def __init__(self) -> None:
        self.ledger = FlowState()
        self.custody = Custody(SETUP, lambda: self.ledger, former_ended=False)

    def give(self, name: str, now: float = 0.0, *, takes: bool = True) -> LaneAssignment:
        self.custody.give(LANE, name, now)
        assignment = self.custody.assignment(
            as_any(SimpleNamespace(lane=LANE, key=KEY, source_topic="t", target_topic="t"))
        )
        if takes:
            self.take(name)
        return assignment

    def take(self, name: str) -> None:
        known = self.ledger.lanes.get(LANE)
        grant = 1 if known is None else known.grant + 1
        self.ledger.lanes[LANE] = as_any(SimpleNamespace(grant=grant, replicator=f"{name}/1", times=(0, 0)))


def test_the_next_holder_gets_the_handoff_checkpoint_and_nobody_after_it() -> None:
    lane = Lane()
    assert lane.give("a").word is None
    lane.custody.left(LANE, "a", Parting(clean=True, word=word(1)))
    assignment = lane.give("b")
    assert (assignment.former, assignment.word, assignment.grant) == ("left", word(1), 1)
    lane.custody.ended("b")
    assignment = lane.give("c", LATER)
    assert (assignment.former, assignment.word) == ("dead", None)


def test_what_the_supervisor_has_read_of_the_ledger_does_not_matter() -> None:
    lane = Lane()
    lane.give("a")
    lane.custody.left(LANE, "a", Parting(clean=True, word=word(4)))
    assignment = lane.give("b")
    assert (assignment.former_under(4), assignment.former_under(1)) == ("left", "unknown")


@pytest.mark.parametrize("parting", [NOT_LEFT, Parting(clean=True)])
def test_without_a_word(parting: Parting) -> None:
    lane = Lane()
    lane.give("a")
    lane.custody.left(LANE, "a", parting)
    assert lane.give("b", LATER).word is None


def test_a_handoff_checkpoint_does_not_count_for_an_earlier_holder() -> None:
    lane = Lane()
    lane.give("a")
    lane.give("b")  # whether the first one still writes is not known
    lane.custody.left(LANE, "b", Parting(clean=True, word=word(2)))
    assignment = lane.give("c", 1.0)
    assert (assignment.former, assignment.word) == ("unknown", None)
    lane.custody.left(LANE, "c", Parting(clean=True, word=word(3)))
    assert lane.give("d", 2 * LATER).word == word(3)


def test_another_replicators_handoff_checkpoint_does_not_count() -> None:
    lane = Lane()
    lane.give("a")
    lane.custody.left(LANE, "another", Parting(clean=True, word=word(1)))
    assert lane.give("b", LATER).word is None


def test_a_replicator_that_ended_before_it_took_the_lane_says_nothing_about_the_one_before_it() -> None:
    """DOUBLED. The supervisor cannot reach the first replicator. That one continues to copy until it reads that another
    one has taken the lane."""
    lane = Lane()
    lane.give("a")
    lane.give("b", takes=False)
    lane.custody.ended("b")
    assert lane.give("c", LATER).former == "unknown"


@pytest.mark.parametrize("left", [True, False])
def test_a_replicator_that_ended_before_it_took_the_lane_from_one_that_no_longer_writes(*, left: bool) -> None:
    lane = Lane()
    lane.give("a")
    if left:
        lane.custody.left(LANE, "a", Parting(clean=True, word=word(1)))
    else:
        lane.custody.ended("a")
    lane.give("b", takes=False)
    lane.custody.ended("b")
    assert lane.give("c", LATER).former == "dead"


def test_a_lane_that_another_replicator_has_taken_back() -> None:
    """DOUBLED. The call that assigns the lane to the first replicator arrives late."""
    lane = Lane()
    lane.give("a")
    lane.give("b")
    lane.take("a")
    lane.custody.ended("b")
    assert lane.give("c", LATER).former == "unknown"
