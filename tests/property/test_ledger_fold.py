"""Whatever the writers do: every reader of the ledger, from whatever offset, sees the same."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.ledger.codec import decode_state, encode_state
from mirrord.ledger.facts.core import CopyForgotten, LaneOpened, LaneTaken, LeaseTaken
from mirrord.ledger.fold import fold
from mirrord.ledger.prune import prune
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, RunsPiece, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents, StateTopicRows
from mirrord.ledger.store.log_interface import StateRow
from mirrord.model.names import LaneId, TopicId
from mirrord.model.run_memory import PIECE_RUNS
from tests.fixtures.attic import no_room, scarce
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened, plain, wild_entries

SEEDS = st.integers(0, 2**32)
MARK = LedgerEnd(TopicId("ledger"), 0, 0)


@given(SEEDS)
def test_fold_is_deterministic_and_ignores_what_it_has_seen(seed: int) -> None:
    entries = wild_entries(random.Random(seed), 60)
    once, again = FlowState(), FlowState()
    chance = random.Random(seed)
    for offset, one in enumerate(entries):
        bound = fold(once, one, offset)
        assert len(bound) == len(one.facts)
        assert fold(again, one, offset) == bound
        earlier = chance.randrange(offset + 1)
        assert not any(fold(again, entries[earlier], earlier))
    assert plain(once) == plain(again)
    assert once.next_offset == len(entries)


@given(SEEDS)
def test_leases_lanes_and_grants_are_taken_once_and_in_turn(seed: int) -> None:
    state, epochs, opened = FlowState(), [], list[LaneId]()
    grants: dict[str, list[int]] = {}
    for offset, one in enumerate(wild_entries(random.Random(seed), 120)):
        for fact, bound in zip(one.facts, fold(state, one, offset), strict=True):
            if bound and isinstance(fact, LeaseTaken):
                epochs.append(fact.epoch)
            if bound and isinstance(fact, LaneTaken):
                grants.setdefault(fact.lane, []).append(fact.grant)
            if bound and isinstance(fact, LaneOpened):
                opened.append(fact.lane)
            if bound and isinstance(fact, CopyForgotten) and fact.target_topic_id == "target-topic":
                opened, grants = list[LaneId](), {}  # all lanes are of the same two topics
            assert not bound or one.lease_epoch == state.lease_epoch
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(opened) == len(set(opened)) == len(state.lanes)
    for taken in grants.values():
        assert taken == list(range(1, len(taken) + 1))


@given(SEEDS, st.data())
def test_snapshots_and_the_tail_give_what_the_whole_ledger_gives(seed: int, data: st.DataObject) -> None:
    entries = wild_entries(random.Random(seed), 80)
    state, kept, topic = FlowState(), Kept(), dict[str, bytes]()
    cuts = data.draw(st.sets(st.integers(1, len(entries)), min_size=1, max_size=4), label="cuts")
    for offset, one in enumerate(entries):
        fold(state, one, offset)
        if offset + 1 not in cuts:
            continue
        cut = snapshots(state, kept, MARK)
        # The last one is left half written.
        written = len(cut.records) if offset + 1 < max(cuts) else data.draw(st.integers(0, len(cut.records)))
        for record in cut.records[:written]:
            topic[state_key(record)] = encode_state(record)
            kept.note(state_key(record), record)
        if written == len(cut.records):
            for stale in set(topic) - cut.keys:
                del topic[stale]
                kept.note(stale, None)
            assert kept.keys == set(topic) == cut.keys
    restored = restore(StateTopicContents({key: decode_state(key, value) for key, value in topic.items()}))
    for offset, one in enumerate(entries):
        fold(restored, one, offset)
    assert plain(restored) == plain(state)


@given(SEEDS)
def test_only_changed_lanes_are_written_again(seed: int) -> None:
    entries = wild_entries(random.Random(seed), 60)
    state, kept = FlowState(), Kept()
    for offset, one in enumerate(entries[:40]):
        fold(state, one, offset)
    for record in snapshots(state, kept, MARK).records:
        kept.note(state_key(record), record)
    assert len(snapshots(state, kept, MARK).records) == 1
    tenure = state.tenure
    before = {lane: lane_state.changed_at for lane, lane_state in state.lanes.items()}
    for offset, one in enumerate(entries[40:], 40):
        fold(state, one, offset)
    changed = {lane for lane, lane_state in state.lanes.items() if before.get(lane) != lane_state.changed_at}
    if tenure == state.tenure:
        # A compaction cuts pieces: the rest of one is written, too, and belongs to a lane that has changed.
        cut = snapshots(state, kept, MARK)
        assert {lane.lane for lane in cut.lanes} == changed
        assert {piece.lane for piece in cut.pieces} <= changed


@given(SEEDS, st.integers(0, 250), st.integers(0, 250))
def test_pruning_keeps_every_offset_that_is_still_readable(seed: int, source_start: int, target_start: int) -> None:
    state = FlowState()
    for offset, one in enumerate(wild_entries(random.Random(seed), 100, lanes=1)):
        fold(state, one, offset)
    lane = state.lanes.get(lane_id(0))
    if lane is None:
        return
    source, target = lane.source_runs.copy(), lane.target_runs.copy()
    prune(state, lane_id(0), source_start, target_start)
    for ordinal in range(200):
        at, to = source.offset_of(ordinal), target.offset_of(ordinal)
        if at is not None and to is not None and (at >= source_start or to >= target_start):
            assert lane.source_runs.offset_of(ordinal) == at
            assert lane.target_runs.offset_of(ordinal) == to


@scarce(fewest=8, most=64, block=128)
@given(SEEDS)
@settings(max_examples=50)
def test_pieces_of_long_runs_come_back(seed: int) -> None:
    chance = random.Random(seed)
    state, kept, topic = FlowState(memory=no_room()), Kept(), dict[str, bytes]()
    for offset, facts in enumerate(((FLOW,), (LeaseTaken(1, HOLDER, 6000),), (opened(),))):
        fold(state, entry(*facts, epoch=min(offset, 1)), offset)
    runs = state.lanes[lane_id(0)].source_runs
    for step in range(6):
        for _ in range(chance.randrange(60)):
            last = runs.last
            runs.add(*((last.ordinal + 2, last.offset + 3) if last else (0, 0)))
        if chance.random() < 0.4 and runs:
            runs.add(chance.randrange(runs.at(len(runs) - 1).ordinal + 1), 10**9)
        if chance.random() < 0.4:
            runs.forget_below(chance.randrange(200))
        state.lanes[lane_id(0)].changed_at += 1
        cut = snapshots(state, kept, MARK)
        for record in cut.records:
            topic[state_key(record)] = encode_state(record)
            kept.note(state_key(record), record)
        for stale in set(topic) - cut.keys:
            del topic[stale]
            kept.note(stale, None)
        memory = no_room()
        rows = StateTopicRows(memory)
        for key, value in topic.items():
            rows.take(StateRow(key, value))
        assert plain(restore(rows.read(), memory)) == plain(state), step


def test_pieces_that_stand_are_not_written_again() -> None:
    state, kept = FlowState(), Kept()
    for offset, facts in enumerate(((FLOW,), (LeaseTaken(1, HOLDER, 6000),), (opened(),))):
        fold(state, entry(*facts, epoch=min(offset, 1)), offset)
    lane = state.lanes[lane_id(0)]

    def pieces() -> list[int]:
        lane.changed_at += 1
        cut = snapshots(state, kept, MARK)
        for record in cut.records:
            kept.note(state_key(record), record)
        return [record.count for record in cut.records if isinstance(record, RunsPiece)]

    def grow(to: int) -> None:
        for _ in range(len(lane.source_runs), to):
            last = lane.source_runs.last
            lane.source_runs.add(*((last.ordinal + 2, last.offset + 3) if last else (0, 0)))

    grow(20_000)
    assert pieces() == [PIECE_RUNS]
    assert pieces() == []
    grow(50_000)
    assert pieces() == [PIECE_RUNS] * 4
    assert lane.source_runs.forget_below(PIECE_RUNS * 2 + 200) == PIECE_RUNS
    assert pieces() == []
    lane.source_runs.add(PIECE_RUNS * 2 * 2 + 100, 10**9)
    assert pieces() == []
    grow(30_000)
    assert pieces() == [PIECE_RUNS]
