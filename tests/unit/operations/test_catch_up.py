"""The proof of a migration: sums of a lane, and which partitions have reached their end."""

import msgspec
import pytest

from mirrord.cli.catch_up_proof_lines import proof_lines
from mirrord.config.schema import Config, RuntimeConfig
from mirrord.ledger.completeness import Account, account, uncopied
from mirrord.ledger.facts.core import Progress, Verdict
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, LaneKey, TopicId, TopicPartition
from mirrord.model.runs import Run, Runs
from mirrord.model.status import ClusterStatus, FlowStatus, LaneStatus, Totals
from mirrord.model.status import LanePhase as Phase
from mirrord.operations.catch_up import HALTED_S, CatchUp, FlowProof, behind, missing

KEY = LaneKey(TopicId("s"), 0, TopicId("t"))


def lane(runs: list[Run], verdicts: list[Verdict] | None = None) -> LaneState:
    state = LaneState(KEY, "orders", "eu.orders", 4, 0, "all", "sequence", source_runs=Runs(runs))
    state.verdicts.add(verdicts or [])
    return state


def mark(ordinal: int, source_offset: int, target_offset: int) -> Progress:
    return Progress(
        LaneId(KEY.id), 1, 1, ordinal, target_offset, 0, source_offset, source_offset, 0, 0, True, "drained"
    )


def test_what_agrees() -> None:
    plain = account(lane([Run(0, 0)]), mark(100, 100, 100), 100, 100)
    assert plain == Account(100, 100, counted=True, differences=())
    verdicts = [Verdict(5, 8, "aborted"), Verdict(10, 11, "control")]
    explained = account(lane([Run(0, 8), Run(2, 11)], verdicts), mark(4, 13, 4), 13, 9)
    assert explained == Account(4, 13, counted=True, differences=())


@pytest.mark.parametrize(
    ("progress", "source_end", "target_end", "part"),
    [
        (mark(90, 90, 90), 100, 90, "copied up to source offset 90, but the source ended at 100"),
        (mark(100, 100, 100), 100, 99, "the target ends at 99, but 100 was acknowledged"),
        (mark(100, 100, 100), 100, None, "its target partition does not exist"),
        (mark(99, 100, 99), 100, 99, "99 records copied and 0 offsets explained, but 100 offsets passed since 0"),
        (None, 3, 0, "nothing is known about it"),
    ],
)
def test_what_does_not_agree(progress: Progress | None, source_end: int, target_end: int | None, part: str) -> None:
    (line,) = account(lane([Run(0, 0)]), progress, source_end, target_end).differences
    assert part in line


def test_what_cannot_be_counted_is_not_assumed() -> None:
    pruned = account(lane([Run(50, 60)]), mark(100, 110, 100), 110, 100)
    assert (pruned.counted, pruned.differences) == (False, ())
    assert account(lane([]), None, 0, 0).differences == ()


def status(partition: int, offset: int | None, state: Phase = "copying") -> LaneStatus:
    return LaneStatus(topic="orders", partition=partition, target_topic="eu.orders", state=state, source_offset=offset)


def test_only_lanes_that_copy_are_known_to_have_reached_their_end() -> None:
    ends = {TopicPartition("orders", number): 10 for number in range(5)}
    lanes = [status(0, 10), status(1, 9), status(2, None), status(3, 10, "waiting")]
    assert [partition.partition for partition in behind(lanes, ends)] == [1, 2, 3]
    assert missing(lanes, ends) == [TopicPartition("orders", 4)]


def test_acknowledged_records_that_are_not_confirmed_yet_are_waited_for() -> None:
    """A halted lane was taken over: what it copies is compared with the source until late batches are ruled out."""
    ends = {TopicPartition("orders", 0): 10}
    lane = msgspec.structs.replace(status(0, 10), unconfirmed_records=3)
    assert behind([lane], ends) == [TopicPartition("orders", 0)]
    assert behind([status(0, 10)], ends) == []


def test_a_proof_in_words() -> None:
    fine = FlowProof("eu-us", 3, 1_000, {"control": 1, "filtered": 1}, 3, 0, ())
    assert list(proof_lines(fine)) == [
        "flow eu-us: caught up: 3 partitions, 1,000 records copied, 2 source offsets explained that were not copied",
        "  not copied, but no loss: 1 control, 1 filtered",
    ]
    odd = FlowProof("eu-us", 3, 1_000, {}, 2, 7, ("orders-0: gone",))
    first, *others = proof_lines(odd)
    assert "NOT everything is explained" in first
    assert others[0] == "  orders-0: gone"
    assert others[1].startswith("  1 partition not counted")
    assert others[2].startswith("  7 newer source offsets")


def test_losses_are_distinguished_from_what_is_left_out_on_purpose() -> None:
    lossy = FlowProof("eu-us", 3, 1_000, {"expired": 50, "filtered": 30, "rejected": 1}, 3, 0, ())
    assert lossy.losses == {"expired": 50, "rejected": 1}
    assert list(proof_lines(lossy)) == [
        "flow eu-us: caught up, with LOSSES: 3 partitions, 1,000 records copied, 30 source offsets explained that "
        "were not copied",
        "  source offsets LOST: 50 expired, 1 rejected; `mirrord gaps` lists the ranges",
        "  not copied, but no loss: 30 filtered",
    ]


def test_what_former_topics_lost_counts_for_a_migration() -> None:
    """What they skipped without a loss does not: the present topic has its own offsets."""
    state = FlowState()
    former = LaneState(KEY, "orders", "eu.orders", 4, 0, "all", "sequence", opened_at=1)
    former.verdicts.add([Verdict(0, 5, "filtered"), Verdict(10, 20, "recreated")])
    present = LaneState(
        LaneKey(TopicId("s2"), 0, TopicId("t")), "orders", "eu.orders", 5, 0, "all", "sequence", opened_at=2
    )
    present.verdicts.add([Verdict(0, 2, "control")])
    state.lanes = {each.key.id: each for each in (former, present)}
    assert uncopied(state, {"orders"}) == {"control": 2, "recreated": 10}
    assert uncopied(state, {"payments"}) == {}


async def test_a_lane_that_is_halted_for_an_instant_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A former run left it halted; this one tries again, and its policy skips the record."""
    now = 100.0
    config = Config(clusters={}, flows=(), runtime=RuntimeConfig())
    migration = CatchUp(config, ClusterAccess(config))
    monkeypatch.setattr(migration, "_now", lambda: now)
    ends = {TopicPartition("orders", 0): 10}
    migration.reached_by(flow_of(status(0, 8, "halted")), ends)
    now += HALTED_S
    assert not migration.reached_by(flow_of(status(0, 8, "halted")), ends)
    assert not migration.reached_by(flow_of(status(0, 9)), ends)
    now += 1
    assert not migration.reached_by(flow_of(status(0, 9, "halted")), ends)
    assert migration.reached_by(flow_of(status(0, 10)), ends)
    now += 1
    migration.reached_by(flow_of(status(0, 9, "halted")), ends)
    now += HALTED_S + 1
    with pytest.raises(EnvironmentFault, match="flow eu-us: orders-0 is halted: "):
        migration.reached_by(flow_of(status(0, 9, "halted")), ends)


def flow_of(lane: LaneStatus) -> FlowStatus:
    clusters = (ClusterStatus("eu", None, True), ClusterStatus("us", None, True))
    return FlowStatus(
        name="eu-us", source=clusters[0], target=clusters[1], state="running", lease=None, totals=Totals.of([lane]),
        lanes=(lane,),
    )  # fmt: skip
