"""How many bytes a run takes in memory and in snapshots: counted, no clock is looked at."""

import gc
import random
import tracemalloc

import pytest

from mirrord.ledger.codec import encode_state
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.ledger.state_topic_rows import Kept
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.runs import Runs

IN_MEMORY_BYTES = 24
IN_SNAPSHOTS_BYTES = 4
"""The most bytes of a run, with all that its lane needs for it."""


def committed(seed: int, partitions: int, commits: int) -> FlowState:
    """A transactional source: a run on the source's side with each commit; a marker takes one offset."""
    chance, state = random.Random(seed), FlowState(flow="eu-us", lease_epoch=1)
    for partition in range(partitions):
        key = LaneKey(TopicId("A" * 22), partition, TopicId("B" * 22))
        runs, ordinal = Runs(), 0
        for number in range(commits):
            runs.add(ordinal, ordinal + number)
            ordinal += chance.randrange(1, 200)
        lane = LaneState(key, "orders", "eu.orders", 7, 0, "read_committed", "sequence", source_runs=runs)
        state.lanes[key.id] = lane
    return state


@pytest.mark.parametrize(("partitions", "commits"), [(20, 6_000), (1, 200_000)])
def test_a_run_of_a_transaction(seed: int, partitions: int, commits: int) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        state = committed(seed, partitions, commits)
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    runs = sum(len(lane.source_runs) for lane in state.lanes.values())
    assert runs == partitions * commits
    assert (taken - before) / runs <= IN_MEMORY_BYTES
    cut = snapshots(state, Kept(), LedgerEnd(TopicId("C" * 22), 0, 0))
    assert sum(len(encode_state(record)) for record in cut.records) / runs <= IN_SNAPSHOTS_BYTES
