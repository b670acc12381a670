"""The source epochs of left-out records in the folded state, in snapshots, and for programs of other versions."""

import msgspec
import pytest

from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.decided_verdicts import LEFT_OUT_EPOCHS_KEPT, epochs_after_verdicts
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.base import Fact
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, SourceRun, Verdict, VerdictGiven
from mirrord.ledger.fold import fold
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.model.names import LaneId, TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

LANE = lane_id(0)
GIVEN = VerdictGiven(LANE, 1, (Verdict(10, 16, "compacted"),), "", ((10, 13, 2), (13, 16, 3)))


def folded(*facts: AnyFact) -> FlowState:
    """Offsets 10 to 15 are left out; ordinal 10 is offset 16."""
    state = FlowState()
    fold(state, entry(FLOW, epoch=0), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "r1")), 1)
    fold(state, entry(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1), (10, 2), (13, 3)))), 2)
    fold(state, entry(GIVEN, SourceRun(LANE, 1, (Run(10, 16),), (), ((10, 3),))), 3)
    fold(state, entry(*facts), 4)
    return state


@pytest.mark.parametrize(
    ("fact", "left"),
    [
        (SourceRun(LANE, 1, ()), ((10, 13, 2), (13, 16, 3))),
        (SourceRun(LANE, 1, (Run(12, 20),)), ((10, 13, 2), (13, 16, 3))),
        (SourceRun(LANE, 1, (Run(10, 14),)), ((10, 13, 2), (13, 14, 3))),
        (SourceRun(LANE, 1, (Run(10, 16),), (Verdict(12, 16, "truncated"),)), ((10, 12, 2),)),
        (SourceRun(LANE, 1, (Run(9, 9), Run(11, 16))), ((11, 13, 2), (13, 16, 3))),
        (SourceRun(LANE, 1, (Run(5, 5),)), ()),
        (
            VerdictGiven(LANE, 1, (), "", ((20, 22, 3), (12, 14, 4))),
            ((10, 12, 2), (12, 14, 4), (14, 16, 3), (20, 22, 3)),
        ),
        (VerdictGiven(LANE, 1, (), "", ((16, 18, 3),)), ((10, 13, 2), (13, 18, 3))),
    ],
)
def test_epochs_apply_until_their_records_are_copied_again_or_lost(
    fact: AnyFact, left: tuple[tuple[int, int, int], ...]
) -> None:
    assert folded(fact).lanes[LANE].left_out_epochs == left


def test_only_the_highest_ranges_are_kept() -> None:
    known = tuple((10 * at, 10 * at + 5, at) for at in range(LEFT_OUT_EPOCHS_KEPT + 2))
    assert epochs_after_verdicts(known[:3], known[3:]) == known[2:]


def test_epochs_are_part_of_a_snapshot() -> None:
    state = folded()
    records = snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0)).records
    read = {state_key(each): decode_state(state_key(each), encode_state(each)) for each in records}
    assert restore(StateTopicContents(read)).lanes[LANE].left_out_epochs == GIVEN.epochs


class Older(Fact, frozen=True, tag="verdict_given"):
    """`VerdictGiven` of an older version."""

    lane: LaneId
    grant: int
    verdicts: tuple[Verdict, ...]
    note: str = ""


def test_another_version_reads_what_it_knows() -> None:
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(GIVEN), type=Older)
    assert older == Older(LANE, 1, GIVEN.verdicts)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=VerdictGiven).epochs == ()


@pytest.mark.parametrize("epochs", [((5, 4, 1),), ((-1, 4, 1),), ((1, 4, -1),), ((1, 1 << 63, 0),)])
def test_impossible_epochs_are_refused(epochs: tuple[tuple[int, int, int], ...]) -> None:
    data = encode_entry(entry(msgspec.structs.replace(GIVEN, epochs=epochs)))
    with pytest.raises(LedgerCorrupt):
        decode_entry(data)
