"""The ledger's record of the leader epochs of source records that a seek has skipped."""

import msgspec
import pytest

from mirrord.ledger.codec import decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.base import Fact, Origin
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, SourceRun, Verdict
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.fold import fold
from mirrord.ledger.seeks import Seek, cut, skipped_epochs
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import StateTopicContents, restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.model.names import LaneId, TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened
from tests.unit.ledger.test_left_out_epochs import Kept

LANE = lane_id(0)
ADA = Origin("ada@host", "broken", 0)
DONE = SeekDone(LANE, 1, 10, 20, 7, ((10, 2), (13, 4), (18, 5)))
SEEK = Seek(10, 20, 0, ADA, done=True, epoch=7, epochs=DONE.epochs)


def folded(*facts: AnyFact) -> FlowState:
    state = FlowState()
    given = [
        *((FLOW,), (LeaseTaken(1, HOLDER, 6000),), (opened(), LaneTaken(LANE, 1, "r"))),
        (LaneSought(LANE, 10, 20, 0, ADA),),
        (DONE, SourceRun(LANE, 1, (Run(10, 20),), (Verdict(10, 20, "skipped"),), ((10, -1),))),
        *((each,) for each in facts),
    ]
    for offset, there in enumerate(given):
        fold(state, entry(*there, epoch=1 if offset else 0), offset)
    return state


def test_the_epochs_are_kept_with_the_seek() -> None:
    assert folded().lanes[LANE].seeks == (SEEK,)
    assert list(skipped_epochs((SEEK,))) == [(10, 13, 2), (13, 18, 4), (18, 20, 5)]
    assert [SEEK.epoch_before(offset) for offset in (11, 13, 14, 18, 19, 20)] == [2, 2, 4, 4, 5, 5]
    # Of what is before the first pair, only the highest possible epoch is known.
    assert SEEK.epoch_before(10) == 7
    assert list(skipped_epochs((Seek(0, 9, 0, ADA), Seek(0, 9, 0, ADA, done=True, epoch=3)))) == []


@pytest.mark.parametrize(("lost", "end", "epochs"), [(14, 14, 2), (18, 18, 2), (11, 11, 1)])
def test_the_skipped_records_that_the_source_still_has_stay_skipped(lost: int, end: int, epochs: int) -> None:
    gone = SourceRun(LANE, 1, (Run(10, lost),), (Verdict(lost, 20, "truncated"),), ((10, -1),))
    (seek,) = folded(gone).lanes[LANE].seeks
    assert (seek.start, seek.end, seek.epochs, seek.done) == (10, end, DONE.epochs[:epochs], True)
    assert seek.epoch == DONE.epochs[epochs - 1][1]


def test_a_range_that_the_source_has_lost_is_not_skipped() -> None:
    assert cut((SEEK,), 10) == cut((SEEK,), 4) == ()
    assert cut((SEEK,), 20) == (SEEK,)
    # As before, a range without epochs is dropped as a whole, and so is a command.
    assert cut((msgspec.structs.replace(SEEK, epochs=()),), 14) == ()
    assert cut((msgspec.structs.replace(SEEK, done=False),), 14) == ()
    # The epochs are known only from offset 13 on.
    assert cut((msgspec.structs.replace(SEEK, epochs=DONE.epochs[1:]),), 12) == ()


def test_seeks_stay_in_the_order_of_their_ends() -> None:
    accepted = Seek(14, 30, 0, ADA, lost_from=14)
    before = Seek(2, 6, 0, ADA, done=True)
    assert [each.end for each in cut((before, SEEK, accepted), 14)] == [6, 14, 30]


def test_epochs_are_part_of_a_snapshot() -> None:
    records = snapshots(folded(), Kept(), LedgerEnd(TopicId("ledger"), 0, 0)).records
    read = {state_key(each): decode_state(state_key(each), encode_state(each)) for each in records}
    assert restore(StateTopicContents(read)).lanes[LANE].seeks == (SEEK,)


class Older(Fact, frozen=True, tag="seek_done"):
    """`SeekDone` of an older version."""

    lane: LaneId
    grant: int
    start: int
    end: int
    epoch: int = -1


def test_another_version_reads_what_it_knows() -> None:
    older = msgspec.msgpack.decode(msgspec.msgpack.encode(DONE), type=Older)
    assert older == Older(LANE, 1, 10, 20, 7)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(older), type=SeekDone).epochs == ()


@pytest.mark.parametrize(
    "epochs", [((9, 1),), ((20, 1),), ((12, -1),), ((12, 3), (12, 4)), ((12, 3), (14, 3)), ((12, 1 << 63),)]
)
def test_impossible_epochs_are_refused(epochs: tuple[tuple[int, int], ...]) -> None:
    data = encode_entry(entry(msgspec.structs.replace(DONE, epochs=epochs)))
    with pytest.raises(LedgerCorrupt):
        decode_entry(data)
