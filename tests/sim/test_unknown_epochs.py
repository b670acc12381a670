"""What the simulation takes a holder to know about the leader epochs in which its records were appended."""

from types import SimpleNamespace
from typing import cast

import pytest

from mirrord.ledger.facts.core import LaneOpened, LaneTaken, Verdict, VerdictGiven
from tests.sim import toy
from tests.sim.host import LANE, Request
from tests.sim.known import Lookup
from tests.sim.newer_records import is_superseded
from tests.sim.partition import false_verdicts
from tests.sim.target import FakeTarget, Stored
from tests.sim.test_truth import overwritten
from tests.sim.unknown_epochs import UnknownEpochs
from tests.sim.world import World
from tests.unit.replication.lane.test_second_faults import progress_at

RECORD = 5
ORDINAL = 8
KNOWN, ACTUAL, NEXT = 2, 4, 6
"""The holder resumed in the leader epoch KNOWN. RECORD was appended in ACTUAL, and NEXT began without it."""


def request(resumed_in: int, number: int) -> Request:
    lane = SimpleNamespace(resumed_at=SimpleNamespace(leader_epoch=resumed_in))
    host = SimpleNamespace(name="r1", lane=lane)
    return cast("Request", SimpleNamespace(host=host, batch=SimpleNamespace(first=ORDINAL), data=number))


def own(leader_epoch: int, ordinal: int) -> Stored:
    return Stored(30, 1, 7, 0, ordinal, 0, (4,), leader_epoch)


@pytest.fixture(autouse=True)
def _one_record_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toy, "records", lambda number: [(0, number)])


def taken(target: FakeTarget, resumed_in: int = KNOWN, number: int = RECORD) -> UnknownEpochs:
    """Let a holder that resumed in this epoch get an acknowledgement of the record."""
    target.epoch = ACTUAL
    target.brokers[0].append(Stored(28, 1, 7, 0, ORDINAL, 0, (number,), ACTUAL))
    epochs = UnknownEpochs()
    epochs.took(request(resumed_in, number), target)
    return epochs


@pytest.mark.parametrize(
    ("leader_epoch", "lost_in", "is_hidden"),
    [(KNOWN, NEXT, False), (3, NEXT, True), (ACTUAL, NEXT, True), (5, NEXT, False), (ACTUAL, 0, False), (4, 4, False)],
    ids=["known", "between", "the same", "later", "not lost", "lost before"],
)
def test_records_from_the_known_epoch_to_the_actual_one_look_newer(
    leader_epoch: int, lost_in: int, *, is_hidden: bool
) -> None:
    assert taken(FakeTarget()).hides(RECORD, leader_epoch, lost_in) is is_hidden


@pytest.mark.parametrize("resumed_in", [-1, ACTUAL])
def test_nothing_looks_newer_if_the_holder_knew_the_epoch_or_none(resumed_in: int) -> None:
    assert not taken(FakeTarget(), resumed_in).hides(RECORD, ACTUAL, NEXT)


def test_the_last_acknowledgement_counts() -> None:
    target = FakeTarget()
    epochs = taken(target)
    epochs.took(request(ACTUAL, RECORD), target)
    assert not epochs.hides(RECORD, ACTUAL, NEXT)


@pytest.mark.parametrize(
    ("holder", "stored", "is_hidden"),
    [
        ("r1", own(ACTUAL, ORDINAL - 1), False),
        ("r1", own(3, ORDINAL - 1), True),
        ("r1", own(ACTUAL, ORDINAL), True),
        ("r1", own(5, ORDINAL - 1), True),
        ("r1", Stored(8, 1, -1, -1, -1, 0, (-1,), ACTUAL), True),
        ("r2", own(ACTUAL, ORDINAL - 1), True),
    ],
    ids=["earlier batch", "of an epoch between", "not earlier", "appended since", "foreign", "another holder"],
)
def test_an_earlier_batch_shows_the_epoch_to_the_same_holder(holder: str, stored: Stored, *, is_hidden: bool) -> None:
    epochs = taken(FakeTarget())
    epochs.look_up(holder, [RECORD], [stored])
    assert epochs.hides(RECORD, ACTUAL, NEXT) is is_hidden


def test_a_later_resume_position_shows_the_epoch_of_what_it_covers_to_its_holder() -> None:
    epochs = taken(FakeTarget())
    epochs.resumed("r2", [4])
    epochs.look_up("r2", [RECORD], [])
    assert epochs.hides(RECORD, ACTUAL, NEXT)
    epochs.resumed("r2", [RECORD])
    epochs.look_up("r3", [RECORD], [])
    assert epochs.hides(RECORD, ACTUAL, NEXT), "the position was not saved"
    epochs.look_up("r2", [RECORD], [])
    assert not epochs.hides(RECORD, ACTUAL, NEXT)


@pytest.mark.parametrize(
    ("ordinal", "leader_epoch", "is_hidden"),
    [(ORDINAL, ACTUAL, True), (ORDINAL + 1, ACTUAL - 1, True), (ORDINAL + 1, ACTUAL, False)],
    ids=["below the record", "in an earlier epoch", "above the record"],
)
def test_a_saved_position_shows_the_epoch_to_every_holder(ordinal: int, leader_epoch: int, *, is_hidden: bool) -> None:
    epochs = taken(FakeTarget())
    epochs.saved(progress_at(ordinal, epoch=leader_epoch))
    assert epochs.hides(RECORD, ACTUAL, NEXT) is is_hidden


def left_out(leader_epoch: int, seen: int = 1, resumed_in: int = KNOWN) -> World:
    """A foreign record was written in this leader epoch, then the copied record of its key. An election removed the
    copied one. A plan left it out after a lookup that saw so many foreign records."""
    world = overwritten()
    number, known = min(world.source.offset_of), world.known
    world.target.lost[number] = NEXT
    world.target.foreign_numbers, known.first_appended[number] = 1, 1
    world.target.brokers[0].append(Stored(8, 1, -1, -1, -1, 0, (-1,), leader_epoch))
    known.epochs = taken(world.target, resumed_in, number)
    world.target.brokers[0].truncate(28)
    known.looked_up[number] = [Lookup("r1", seen, NEXT)]
    known.leave_out([number])
    return world


@pytest.mark.parametrize(
    ("leader_epoch", "seen", "resumed_in", "may_be_missing"),
    [(ACTUAL, 1, KNOWN, True), (KNOWN, 1, KNOWN, False), (ACTUAL, 0, KNOWN, False), (ACTUAL, 1, ACTUAL, False)],
    ids=["of the unknown epoch", "of the known epoch", "not seen by the lookup", "no unknown epoch"],
)
def test_a_lost_record_may_be_missing_because_of_an_older_foreign_one_of_an_unknown_epoch(
    leader_epoch: int, seen: int, resumed_in: int, *, may_be_missing: bool
) -> None:
    assert is_superseded(left_out(leader_epoch, seen, resumed_in), 0) is may_be_missing


def test_a_lost_record_may_not_be_missing_if_no_plan_left_it_out() -> None:
    world = left_out(ACTUAL)
    world.known.left_out.clear()
    assert not is_superseded(world, 0)


def test_a_lost_record_may_not_be_missing_once_the_foreign_one_is_gone() -> None:
    world = left_out(ACTUAL)
    world.target.brokers[0].truncate(0)
    assert not is_superseded(world, 0)


@pytest.mark.parametrize("leader_epoch", [KNOWN, ACTUAL])
def test_the_verdict_on_a_record_that_was_left_out_is_true_as_far_as_a_holder_can_know(leader_epoch: int) -> None:
    world = left_out(leader_epoch)
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"),), 1)
    world.write((LaneTaken(LANE, 1, "r1", (0, 0)),), 1)
    world.write((VerdictGiven(LANE, 1, (Verdict(0, 1, "compacted"),)),), 1)
    world.start_host(former_dead=True)
    assert bool(false_verdicts(world)) is (leader_epoch == KNOWN)
