"""What the state of a flow keeps of lanes that do not change any more, such as those of deleted topics."""

import gc
import random
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import cast

import pytest

from mirrord.ledger import hole_list, verdict_tally
from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.facts.core import (
    AnyFact,
    HoleFound,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    Progress,
    SourceRun,
    TargetRun,
    TopicCreated,
    Verdict,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.hole_list import HoleList
from mirrord.ledger.prune import REST_ENTRIES, Resting
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicRows
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.verdict_tally import VerdictTally
from mirrord.model import runs as runs_module
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.model.runs import Run, Runs
from tests.fixtures.ledger import FLOW, HOLDER, entry, plain, wild_entries

LANES = 100
_SEQUENCES = (list, tuple, array)
MOST_CONTAINERS = 5
"""The state itself, the runs of both sides, the tally, and the holes."""


def take(state: FlowState, *facts: AnyFact) -> None:
    """Fold an entry that was read from a log, so that it shares no object with the facts of others."""
    epoch = 0 if FLOW in facts else 1
    fold(state, decode_entry(encode_entry(entry(*facts, epoch=epoch))), state.next_offset)


def copied(topics: int) -> FlowState:
    """Topics with two partitions each, which were copied without gaps."""
    state = FlowState()
    take(state, FLOW)
    take(state, LeaseTaken(1, HOLDER, 6_000))
    for number in range(topics):
        source, target = TopicId(f"source-{number:04}"), TopicId(f"target-{number:04}")
        name = f"orders-{number}"
        take(state, TopicCreated(name, source, f"eu.{name}", target, 2))
        for partition in range(2):
            lane, replicator = LaneKey(source, partition, target).id, f"replicator/{number}"
            take(state, LaneOpened(lane, name, f"eu.{name}", partition, number, 0, "read_committed"))
            take(state, LaneTaken(lane, 1, replicator))
            take(state, SourceRun(lane, 1, (Run(0, 0),)), TargetRun(lane, 1, 0, 0, 0))
            for ordinal in (500, 1_000):
                progress = Progress(
                    lane, 1, 1, ordinal, ordinal, 0, ordinal, ordinal, 0, 0, protected=True, state="drained",
                    replicator=replicator,
                )  # fmt: skip
                state.accept_progress(decode_record(progress))
    return state


def decode_record(progress: Progress) -> Progress:
    record = decode_state(state_key(progress), encode_state(progress))
    assert isinstance(record, Progress)
    return record


def containers(state: FlowState) -> Counter[str]:
    """Count the objects that the garbage collector tracks below the lanes, without those that lanes share."""
    gc.collect()  # which stops tracking tuples of numbers
    seen: set[int] = set()
    found: Counter[str] = Counter()
    waiting: list[object] = list(state.lanes.values())
    shared = {id(state.memory), *map(id, gc.get_referents(state.memory)), id(runs_module._NO_PIECES)}  # pyright: ignore[reportPrivateUsage]
    while waiting:
        each = waiting.pop()
        if id(each) in seen or id(each) in shared or isinstance(each, type) or not gc.is_tracked(each):
            continue
        seen.add(id(each))
        found[type(each).__name__] += 1
        waiting += gc.get_referents(each)
    return found


def test_a_lane_without_gaps_is_a_handful_of_objects() -> None:
    state = copied(LANES // 2)
    found = containers(state)
    assert found["LaneState"] == LANES
    assert not found.keys() & {"array", "deque", "PackedRuns", "list"}, "they are created when they are needed"
    assert sum(found.values()) <= MOST_CONTAINERS * LANES, found


def test_restored_lanes_are_as_small() -> None:
    state = copied(LANES // 2)
    rows = StateTopicRows()
    for record in snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), state.next_offset, 0)).records:
        rows.take(StateRow(state_key(record), encode_state(record)))
    restored = restore(rows.read())
    assert plain(restored)["lanes"] == plain(state)["lanes"]
    found = containers(restored)
    assert not found.keys() & {"array", "deque", "PackedRuns", "list"}
    assert sum(found.values()) <= MOST_CONTAINERS * LANES, found


def test_texts_of_a_copy_are_shared() -> None:
    state = copied(1)
    one, other = state.lanes.values()
    (topic,) = state.topics.values()
    for lane in (one, other):
        assert lane.source_topic is topic.source_topic
        assert lane.target_topic is topic.topic
        assert lane.key.source_topic_id is topic.source_topic_id
        assert lane.key.target_topic_id is topic.topic_id
    assert one.policy is other.policy
    first, second = state.progress.values()
    assert first.state is second.state
    for key, progress in state.progress.items():
        assert progress.lane is key, "a newer record uses the id of the older one"
        assert progress.replicator is state.lanes[LaneId(key)].replicator


def test_a_lane_that_is_opened_under_other_names_keeps_them() -> None:
    state = copied(1)
    (topic,) = state.topics.values()
    lane = LaneKey(TopicId("another source"), 5, topic.topic_id)
    take(state, LaneOpened(lane.id, "payments", "eu.payments", 5, 1, 0, "all"))
    opened = state.lanes[lane.id]
    assert (opened.key, opened.source_topic, opened.target_topic) == (lane, "payments", "eu.payments")
    same = LaneKey(TopicId("source-0000"), 6, topic.topic_id)
    take(state, LaneOpened(same.id, "renamed", "eu.renamed", 6, 1, 0, "all"))
    opened = state.lanes[same.id]
    assert (opened.key, opened.source_topic, opened.target_topic) == (same, "renamed", "eu.renamed")


@pytest.mark.parametrize("number", range(20))
def test_a_lane_at_rest_is_as_it_was_and_goes_on_as_if_it_had_not_rested(
    number: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((runs_module, "REST_RUNS"), (verdict_tally, "REST_VERDICTS"), (hole_list, "REST_HOLES")):
        monkeypatch.setattr(module, name, 1)
    chance = random.Random(seed + number)
    one, other = FlowState(), FlowState()
    for offset, each in enumerate(wild_entries(chance, 150)):
        assert fold(one, each, offset) == fold(other, each, offset)
        for lane in other.lanes.values():
            if chance.random() < 0.3:
                lane.rest()
        if chance.random() < 0.1:
            assert plain(one) == plain(other)
    assert plain(one) == plain(other)
    assert one.lanes == other.lanes


def test_the_lanes_that_no_entry_mentions_rest() -> None:
    state, resting = copied(2), Resting()
    old, *_, young = state.lanes
    runs = tuple(Run(2 * number, 5 * number) for number in range(1, 200))
    verdicts = tuple(Verdict(5 * number, 5 * number + 3, "control") for number in range(1, 50))
    for lane in (old, young):
        take(state, SourceRun(lane, 1, runs, verdicts))
        take(state, *(HoleFound(lane, 1, at, at + 1, at + 9, at + 11) for at in (1, 2, 3)))
    resting.look(state)
    assert not is_at_rest(state, old)
    for _ in range(REST_ENTRIES):
        take(state, SourceRun(young, 1, (Run(1_000, 4_000),)))
    before = plain(state)
    resting.look(state)
    assert is_at_rest(state, old)
    assert not is_at_rest(state, young)
    assert plain(state) == before
    take(state, SourceRun(old, 1, (Run(1_000, 4_000),), (Verdict(3_000, 4_000, "control"),)))
    assert not is_at_rest(state, old)


def is_at_rest(state: FlowState, lane: LaneId) -> bool:
    known = state.lanes[lane]
    return not any(map(unpacked, (known.source_runs, known.verdicts, known.hole_list)))


def unpacked(holder: Runs | VerdictTally | HoleList) -> list[object]:
    """Return the sequences with several values to which an object refers."""
    sequences = (cast(Sequence[object], each) for each in gc.get_referents(holder) if isinstance(each, _SEQUENCES))
    return [each for each in sequences if len(each) > 1]
