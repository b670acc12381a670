"""Whatever the topics hold, the codec returns the record or raises LedgerCorrupt, and what it returns can be folded."""

import random
from contextlib import suppress

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirrord.ledger.codec import VERSION, decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.core import LeaseRenewed, Progress
from mirrord.ledger.fold import fold
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.model.names import TopicId
from tests.fixtures.ledger import lane_id, wild_entries

KEYS = st.sampled_from(
    ["flow/1", "lane/1/a.0.b", "runs/1/a.0.b/source/1-2-3", "progress/a.0.b", "lease", "ledger", "x"]
)
LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8) | st.binary(max_size=40)
KINDS = st.sampled_from(["source_run", "target_run", "lane_opened", "lane_taken", "lease_taken", "flow_opened", "x"])
TREES = st.recursive(
    LEAVES | KINDS, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(LEAVES, inner, max_size=3)
)


@given(st.integers(0, 2**32))
def test_entries_come_back(seed: int) -> None:
    for one in wild_entries(random.Random(seed), 20):
        assert decode_entry(encode_entry(one)) == one


def test_state_records_come_back() -> None:
    state = FlowState()
    for offset, one in enumerate(wild_entries(random.Random(7), 300)):
        fold(state, one, offset)
    assert len(state.lanes) == 3
    progress = Progress(lane_id(1), 1, 2, 3, 4, 5, 6, 7, 8, 9, protected=True, state="copying")
    cut = snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 5, 6))
    for record in (*cut.records, progress, LeaseRenewed(1, 2, 3), LedgerEnd(TopicId("ledger"), 5, 6)):
        assert decode_state(state_key(record), encode_state(record)) == record


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x02\x94", bytes([VERSION])])
def test_what_is_no_entry_is_named(data: bytes | None) -> None:
    with pytest.raises(LedgerCorrupt, match=r"ledger record"):
        decode_entry(data)


@given(st.binary(max_size=200))
@example(b"\x91" * 100_000)
@example(msgspec.msgpack.encode([1, 2, [["source_run", "a", 1, [[-1, 0]]]]]))
@example(msgspec.msgpack.encode([1, 2, [["target_run", "a", 1, 2**63, 0, 0]]]))
@example(msgspec.msgpack.encode([1, 2, [["verdict_given", "a", 1, [[2, 1, "control"]]]]]))
@example(b"\x93\x01\x02\x91\xa1\xff")
def test_any_bytes_give_an_entry_or_the_typed_error(data: bytes) -> None:
    for value in (data, bytes([VERSION]) + data):
        with suppress(LedgerCorrupt):
            fold(FlowState(), decode_entry(value), 0)


@given(KEYS, st.binary(max_size=200) | TREES.map(msgspec.msgpack.encode))
@settings(max_examples=60)
def test_any_state_bytes_give_a_record_or_the_typed_error(key: str, data: bytes) -> None:
    for value in (data, bytes([VERSION]) + data):
        with suppress(LedgerCorrupt):
            record = decode_state(key, value)
            Kept().note(key, record)
            restore(StateTopicContents({key: record}))


@given(st.lists(TREES, max_size=5))
@settings(max_examples=40)
def test_any_tree_gives_an_entry_or_the_typed_error(facts: list[object]) -> None:
    with suppress(LedgerCorrupt):
        fold(FlowState(), decode_entry(bytes([VERSION]) + msgspec.msgpack.encode([1, 2, facts])), 0)


@given(st.integers(0, 2**32))
def test_damaged_records_give_a_record_or_the_typed_error(seed: int) -> None:
    chance = random.Random(seed)
    state, records = FlowState(), dict[str, bytes]()
    for offset, one in enumerate(wild_entries(chance, 20)):
        data = bytearray(encode_entry(one))
        data[chance.randrange(len(data))] = chance.randrange(256)
        with suppress(LedgerCorrupt):
            fold(state, decode_entry(bytes(data)), offset)
    for record in snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0)).records:
        damaged = bytearray(encode_state(record))
        damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        records[state_key(record)] = bytes(damaged)
    with suppress(LedgerCorrupt):
        restore(StateTopicContents({key: decode_state(key, value) for key, value in records.items()}))
