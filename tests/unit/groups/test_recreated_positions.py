"""Positions of groups, and pairs for MirrorMaker 2, of a topic that was recreated."""

from types import SimpleNamespace
from typing import Any

from mirrord.config.flow_features import Mm2RecordsConfig
from mirrord.config.schema import FlowConfig
from mirrord.groups.group_position_translation import Atlas, Lanes, SourcePosition
from mirrord.kafka.protocol.mm2_records import OffsetSync
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import FlowState, LaneState
from mirrord.mm2.offset_syncs import OffsetSyncs
from mirrord.model.names import LaneKey, TopicId
from tests.fixtures.fake_pipe import as_any

FORMER, NOW, COPY = TopicId("A" * 22), TopicId("B" * 21 + "A"), TopicId("C" * 21 + "A")
HERE = ("orders", 0)


def lane(state: FlowState, source: TopicId, first: int, copied: int) -> LaneState:
    """A lane whose source offset o is at `first` + o."""
    key = LaneKey(source, 0, COPY)
    made = LaneState(key, "orders", "eu.orders", 1, 0, "", "sequence", grant=1, opened_at=len(state.lanes))
    made.source_runs.add(0, 0)
    made.target_runs.add(0, first)
    state.lanes[key.id] = made
    progress = Progress(key.id, 1, 1, copied, first + copied, 0, copied, copied, 0, 0, True, "copying")
    state.accept_progress(progress)
    return made


def recreated() -> tuple[FlowState, LaneState, LaneState]:
    """The target topic has 500 records of the former topic, and then 200 of the new one."""
    state = FlowState()
    return state, lane(state, FORMER, 0, 500), lane(state, NOW, 500, 200)


def test_a_position_in_the_former_topic_is_not_one_in_the_new_one() -> None:
    state, _, _ = recreated()
    atlas = Atlas(Lanes().of(state), state.progress)
    mapped = atlas.mapped(HERE, SourcePosition(100, FORMER))
    assert mapped.offset is None
    assert "a different topic orders" in mapped.why
    assert atlas.mapped(HERE, SourcePosition(100, NOW)).offset == 600
    assert atlas.mapped(HERE, SourcePosition(0)).offset == 500, "never a place among the former topic's records"


def test_a_later_report_on_the_former_topic_does_not_make_it_the_present_one() -> None:
    state, former, _ = recreated()
    former.changed_at = 99  # a verdict on what was skipped, or an audit
    assert Atlas(Lanes().of(state), state.progress).mapped(HERE, SourcePosition(0)).offset == 500


def test_a_position_among_the_copies_of_the_former_topic_skips_nothing_of_the_new_one() -> None:
    state, _, _ = recreated()
    atlas = Atlas(Lanes().of(state), state.progress)
    assert atlas.back(HERE, 450).offset == 0
    assert atlas.back(HERE, 650).offset == 150


async def test_pairs_are_of_the_new_lane_alone_and_begin_with_its_first_record() -> None:
    state, former, now = recreated()
    flow = FlowConfig("f", "eu", "us", ("orders",), mm2_records=Mm2RecordsConfig(offset_syncs="target"))
    syncs = OffsetSyncs(flow, {"eu": as_any(None), "us": as_any(None)}, 1.0)
    written: list[Any] = []

    async def write(records: list[tuple[bytes, bytes]]) -> None:
        written.extend(OffsetSync.decode(*record) for record in records)

    topic = as_any(SimpleNamespace(write=write))
    syncs.see([former.key.id])
    await syncs._write(topic, state)
    assert [each.downstream for each in written][-1] < 500
    written.clear()
    syncs.see([now.key.id])
    await syncs._write(topic, state)
    # It is below the last pair of the former lane: that makes OffsetSyncStore forget the former ones.
    assert (written[0].upstream, written[0].downstream) == (0, 500)
    assert all(each.downstream >= 500 for each in written)
