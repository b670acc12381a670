"""The proof of a migration: sums of a lane, and which partitions have reached their end."""

import pytest

from mirrord.cli.proof_lines import proof_lines
from mirrord.ledger.account import account
from mirrord.ledger.state import LaneState
from mirrord.model.facts import Progress, Verdict
from mirrord.model.names import LaneId, LaneKey, TopicId, TopicPartition
from mirrord.model.runs import Run, Runs
from mirrord.model.status import LaneState as Phase
from mirrord.model.status import LaneStatus
from mirrord.shell.catch_up import FlowProof, behind, missing

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
    assert (plain.copied, plain.explained, plain.counted, plain.differences) == (100, 0, True, ())
    verdicts = [Verdict(5, 8, "aborted"), Verdict(10, 11, "control")]
    explained = account(lane([Run(0, 8), Run(2, 11)], verdicts), mark(4, 13, 4), 13, 9)
    assert (explained.copied, explained.explained, explained.counted, explained.differences) == (4, 4, True, ())


@pytest.mark.parametrize(
    ("progress", "source_end", "target_end", "part"),
    [
        (mark(90, 90, 90), 100, 90, "copied up to source offset 90, the source ended at 100"),
        (mark(100, 100, 100), 100, 99, "the target ends at 99, but 100 was acknowledged"),
        (mark(100, 100, 100), 100, None, "its target partition does not exist"),
        (mark(99, 100, 99), 100, 99, "99 records copied and 0 offsets explained, but 100 offsets passed since 0"),
        (None, 3, 0, "nothing is known of it"),
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


def test_a_proof_in_words() -> None:
    fine = FlowProof("eu-us", 3, 1_000, 2, 3, 0, ())
    assert list(proof_lines(fine)) == [
        "flow eu-us: caught up: 3 partitions, 1,000 records copied, 2 source offsets explained without a copy"
    ]
    odd = FlowProof("eu-us", 3, 1_000, 2, 2, 7, ("orders-0: gone",))
    first, *others = proof_lines(odd)
    assert "NOT everything is explained" in first
    assert others[0] == "  orders-0: gone"
    assert others[1].startswith("  1 partition not counted")
    assert others[2].startswith("  7 newer source offsets")
