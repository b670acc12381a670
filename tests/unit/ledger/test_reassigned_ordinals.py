"""Ordinals that were assigned again, in the folded state, in snapshots, and for programs of other versions."""

import msgspec
import pytest

from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.core import (
    AnyFact,
    Displaced,
    LaneTaken,
    LeaseTaken,
    MapRebuilt,
    SourceRun,
    TakeoverChecked,
    TargetRun,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened
from tests.unit.ledger.test_displaced import OlderTargetRun as OldestTargetRun

LANE = lane_id(0)
BEGUN = SourceRun(LANE, 1, (Run(0, 0),))
AGAIN = SourceRun(LANE, 1, (Run(4, 20),), regiven=True)
ACKNOWLEDGED = TargetRun(LANE, 1, 5, 5, 1, in_doubt_below=6)


def folded(*facts: AnyFact) -> FlowState:
    state = FlowState()
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "r1")), 1)
    fold(state, entry(*facts), 2)
    return state


@pytest.mark.parametrize(
    ("facts", "first", "end"),
    [
        ((BEGUN, ACKNOWLEDGED), -1, -1),
        ((BEGUN, AGAIN, TargetRun(LANE, 1, 3, 3, 1, in_doubt_below=4)), 4, -1),
        ((BEGUN, AGAIN, ACKNOWLEDGED), 4, 6),
        ((BEGUN, AGAIN, ACKNOWLEDGED, TakeoverChecked(LANE, 1, 0, 3, "equal")), 4, 6),
        ((BEGUN, AGAIN, ACKNOWLEDGED, TargetRun(LANE, 1, 9, 12, 1)), 4, 6),
        ((BEGUN, AGAIN, ACKNOWLEDGED, SourceRun(LANE, 1, (Run(8, 30),))), 4, 6),
        ((BEGUN, AGAIN, ACKNOWLEDGED, SourceRun(LANE, 1, (Run(8, 30),), regiven=True)), 4, -1),
        ((BEGUN, AGAIN, ACKNOWLEDGED, TakeoverChecked(LANE, 1, 4, 5, "equal")), -1, -1),
        ((BEGUN, AGAIN, ACKNOWLEDGED, TakeoverChecked(LANE, 1, 4, 4, "equal", more=True)), 5, 6),
        ((BEGUN, AGAIN, ACKNOWLEDGED, TakeoverChecked(LANE, 1, 4, 5, "equal", more=True)), 6, -1),
        ((BEGUN, AGAIN, ACKNOWLEDGED, MapRebuilt(LANE, 1, 4, 9, 10)), -1, -1),
    ],
)
def test_which_ordinals_are_in_doubt(facts: tuple[AnyFact, ...], first: int, end: int) -> None:
    lane = folded(*facts).lanes[LANE]
    assert (lane.regiven, lane.regiven_until) == (first, end)


def test_snapshots_contain_them() -> None:
    state = folded(BEGUN, AGAIN, ACKNOWLEDGED)
    records = snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0)).records
    read = {state_key(each): decode_state(state_key(each), encode_state(each)) for each in records}
    lane = restore(StateTopicContents(read)).lanes[LANE]
    assert (lane.regiven, lane.regiven_until) == (4, 6)


class OlderTargetRun(OldestTargetRun, frozen=True, tag="target_run"):
    """The fact as the version before this one knows it."""

    displaced: tuple[Displaced, ...] = ()


def test_an_older_program_reads_the_fact_and_an_older_fact_is_read() -> None:
    older = OlderTargetRun(LANE, 1, 5, 5, 1)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ACKNOWLEDGED), type=OlderTargetRun) == older
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=TargetRun) == TargetRun(LANE, 1, 5, 5, 1)


@pytest.mark.parametrize("end", [-2, 0, 5, 1 << 63])
def test_an_impossible_end_is_refused(end: int) -> None:
    with pytest.raises(LedgerCorrupt, match="impossible"):
        decode_entry(encode_entry(entry(msgspec.structs.replace(ACKNOWLEDGED, in_doubt_below=end))))


def test_an_end_is_read() -> None:
    written = entry(ACKNOWLEDGED)
    assert decode_entry(encode_entry(written)).facts == written.facts
