"""Displaced ordinals in the folded state, in snapshots, and for programs of other versions."""

import msgspec
import pytest

from mirrord.ledger import displaced
from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.displaced import DISPLACED_KEPT
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.base import Fact
from mirrord.ledger.facts.core import AnyFact, Displaced, LaneTaken, LeaseTaken, SourceRun, TargetRun
from mirrord.ledger.fold import fold
from mirrord.ledger.prune import prune
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.model.names import LaneId, TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
TWO_TO_FOUR = Displaced(2, 4, 4, 1)


def folded(*facts: AnyFact) -> FlowState:
    """Ordinals 2 to 4 are displaced by ordinal 5."""
    state = FlowState()
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "r1")), 1)
    fold(state, entry(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 1, 1)), 2)
    fold(state, entry(TargetRun(LANE, 1, 5, 4, 3, (TWO_TO_FOUR,))), 3)
    fold(state, entry(*facts), 4)
    return state


@pytest.mark.parametrize(
    ("fact", "left"),
    [
        (TargetRun(LANE, 1, 20, 30, 3), (TWO_TO_FOUR,)),
        (TargetRun(LANE, 1, 5, 9, 5), (TWO_TO_FOUR,)),
        (TargetRun(LANE, 1, 4, 3, 5), (Displaced(2, 3, 4, 1),)),
        (TargetRun(LANE, 1, 2, 3, 5), ()),
        (SourceRun(LANE, 1, (Run(7, 8),)), (TWO_TO_FOUR,)),
        (SourceRun(LANE, 1, (Run(3, 8),)), (Displaced(2, 2, 4, 1),)),
        (SourceRun(LANE, 1, ()), (TWO_TO_FOUR,)),
        (TargetRun(LANE, 1, 9, 6, 5, (Displaced(7, 8, 6, 4),)), (TWO_TO_FOUR, Displaced(7, 8, 6, 4))),
        (
            TargetRun(LANE, 1, 9, 6, 5, (Displaced(3, 3, 6, 4),)),
            (Displaced(2, 2, 4, 1), Displaced(3, 3, 6, 4), Displaced(4, 4, 4, 1)),
        ),
    ],
)
def test_ordinals_are_displaced_until_they_are_stored_or_assigned_again(
    fact: AnyFact, left: tuple[Displaced, ...]
) -> None:
    assert folded(fact).lanes[LANE].displaced == left


def test_only_the_last_ones_are_kept() -> None:
    many = tuple(Displaced(2 * at, 2 * at, at, 1) for at in range(DISPLACED_KEPT + 5))
    kept = displaced.after_run((), TargetRun(LANE, 1, 1000, 900, 3, many))
    assert kept == many[5:]


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [(0, 1, ()), (0, 2, (2,)), (4, 4, (2,)), (5, 6, ()), (4, 7, (2, 7)), (7, 7, (7,)), (9, 9, ()), (3, 20, (2, 7))],
)
def test_those_that_overlap_a_range_are_found(first: int, last: int, found: tuple[int, ...]) -> None:
    known = (TWO_TO_FOUR, Displaced(7, 8, 4, 1))
    assert tuple(each.first for each in displaced.within(known, first, last)) == found


def test_a_full_snapshot_is_one_record_of_limited_size() -> None:
    large = 1 << 40
    many = tuple(Displaced(large + 2 * at, large + 2 * at, large, 1_000) for at in range(DISPLACED_KEPT))
    state = folded(TargetRun(LANE, 1, large + 10 * DISPLACED_KEPT, large, 3, many))
    assert len(state.lanes[LANE].displaced) == DISPLACED_KEPT
    records = snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0)).records
    assert max(len(encode_state(each)) for each in records) < 200_000


def test_snapshots_contain_them() -> None:
    state = folded()
    records = snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0)).records
    read = {state_key(each): decode_state(state_key(each), encode_state(each)) for each in records}
    assert restore(StateTopicContents(read)).lanes[LANE].displaced == (TWO_TO_FOUR,)


def test_they_are_dropped_with_the_runs_before_them() -> None:
    state = folded()
    prune(state, LANE, 2, 3)
    assert state.lanes[LANE].displaced == (TWO_TO_FOUR,)
    prune(state, LANE, 9, 8)
    assert state.lanes[LANE].displaced == ()


def test_those_below_the_first_run_are_dropped() -> None:
    state = folded(SourceRun(LANE, 1, (Run(0, 0), Run(3, 4))), TargetRun(LANE, 1, 5, 4, 3, (TWO_TO_FOUR,)))
    prune(state, LANE, 4, 4)
    assert state.lanes[LANE].displaced == (Displaced(3, 4, 4, 1),)


def test_those_of_the_first_run_are_kept_while_nothing_is_pruned() -> None:
    state = folded(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 5, 4, 3, (TWO_TO_FOUR,)))
    prune(state, LANE, 0, 0)
    assert state.lanes[LANE].displaced == (TWO_TO_FOUR,)


class OlderTargetRun(Fact, frozen=True, tag="target_run"):
    """The fact as earlier versions know it."""

    lane: LaneId
    grant: int
    ordinal: int
    offset: int
    leader_epoch: int


def test_an_older_program_reads_the_fact_and_an_older_fact_is_read() -> None:
    fact = TargetRun(LANE, 1, 5, 4, 3, (TWO_TO_FOUR,))
    older = OlderTargetRun(LANE, 1, 5, 4, 3)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(fact), type=OlderTargetRun) == older
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=TargetRun)
    assert read == TargetRun(LANE, 1, 5, 4, 3)


@pytest.mark.parametrize("wrong", [Displaced(4, 3, 4, 1), Displaced(-1, 3, 4, 1), Displaced(2, 5, 4, 1)])
def test_impossible_ones_are_refused(wrong: Displaced) -> None:
    with pytest.raises(LedgerCorrupt, match="impossible"):
        decode_entry(encode_entry(entry(TargetRun(LANE, 1, 5, 4, 3, (wrong,)))))
