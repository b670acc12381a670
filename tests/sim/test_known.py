"""What the simulation takes a holder of the lane to know about a compacted target."""

from types import SimpleNamespace
from typing import cast

import pytest

from mirrord.ledger.facts.core import Displaced, HoleFound, TargetRun
from tests.sim import toy
from tests.sim.host import Request
from tests.sim.known import Known
from tests.sim.target import Stored
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, opened, progress_at

FOREIGN = 1
"""The number of the only record of another writer."""


def request(holder: str, ordinal: int, number: int) -> Request:
    """Return the parts of a request that `Known` reads. The batch has one record."""
    parts = SimpleNamespace(host=SimpleNamespace(name=holder), batch=SimpleNamespace(first=ordinal), data=number)
    return cast("Request", parts)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Record 5 was acknowledged to r1 as ordinal 8. Then a foreign record was written, and r2 looked records up."""
    monkeypatch.setattr(toy, "records", lambda number: [(0, number)])
    known = Known()
    known.taken[5], known.takers[5] = 0, ("r1", 8)
    known.looked_up["r2"] = FOREIGN
    return known


def appends(known: Known) -> bool:
    """Let a batch of r2 with record 5 arrive at a log that an election has cut. Return whether r2 could know that the
    foreign record is newer."""
    known.arrived(request("r2", 12, 5), FOREIGN, is_cut=True)
    return known.is_over(5, [FOREIGN])


@pytest.mark.parametrize(("reached", "could_know"), [(5, False), (9, True)])
@pytest.mark.parametrize("reached_by_the_next", [None, 5, 9])
def test_a_batch_is_judged_by_what_its_sender_knew(
    known: Known, reached: int, reached_by_the_next: int | None, *, could_know: bool
) -> None:
    """Another holder may begin while the batch is under way, with a position that is higher or lower."""
    known.begin("r2", reached, -1)
    if reached_by_the_next is not None:
        known.begin("r3", reached_by_the_next, -1)
    assert appends(known) is could_know


def test_a_holder_knows_a_record_only_from_the_append_that_its_position_covers(known: Known) -> None:
    """An election removed the record before r2 could know it. What r2 appended was not acknowledged, but read in the
    log, and the position that r2 saved covers only that append. It followed the foreign record."""
    known.begin("r2", 5, -1)
    known.arrived(request("r2", 8, 5), FOREIGN, is_cut=True)
    known.begin("r3", 9, -1)
    known.looked_up["r3"] = FOREIGN + 1
    known.arrived(request("r3", 8, 5), FOREIGN + 1, is_cut=True)
    assert not known.is_over(5, [FOREIGN])
    assert known.is_over(5, [FOREIGN + 1])


def test_a_late_batch_of_a_holder_that_could_not_know_a_record_hides_nothing_from_the_next_ones(known: Known) -> None:
    """The position of r3 covers the first append, and so does that of r4, although r2 appended the record again."""
    known.begin("r2", 5, -1)
    known.begin("r3", 9, -1)
    known.arrived(request("r2", 8, 5), FOREIGN, is_cut=True)
    known.begin("r4", 9, -1)
    known.looked_up["r4"] = FOREIGN
    known.arrived(request("r4", 8, 5), FOREIGN, is_cut=True)
    assert known.is_over(5, [FOREIGN])


@pytest.mark.parametrize(("reached", "could_know"), [(5, False), (9, True)])
def test_a_planned_record_is_judged_by_what_the_planner_knew(known: Known, reached: int, *, could_know: bool) -> None:
    """r2 plans to copy record 5 again as ordinal 12, and ends. Then r3 appends it according to the plan. The resume
    position with which r3 begins is from after r2's plan."""
    known.begin("r2", reached, -1)
    known.look_up("r2", [Stored(0, 1, -1, -1, -1, 0, (-FOREIGN,), 1)])
    known.begin("r3", 12, 13)
    known.arrived(request("r3", 12, 5), FOREIGN, is_cut=True)
    assert known.is_over(5, [FOREIGN]) is could_know


def test_a_planned_record_is_judged_by_what_its_sender_knew_if_the_sender_has_looked_it_up(known: Known) -> None:
    known.begin("r2", 5, -1)
    known.begin("r3", 12, 13)
    known.look_up("r3", [Stored(0, 1, -1, -1, -1, 0, (-FOREIGN,), 1)])
    known.arrived(request("r3", 12, 5), FOREIGN, is_cut=True)
    assert known.is_over(5, [FOREIGN])


LACKING = ((8, 8),)
"""The target lacks ordinal 8: it is in a hole, or displaced."""


@pytest.mark.parametrize(("reached", "could_know"), [(5, False), (9, True)])
def test_a_position_does_not_cover_a_record_that_the_target_lacks(
    known: Known, reached: int, *, could_know: bool
) -> None:
    """r2 found that record 5 was missing. If the position with which r2 began was below the record, nothing
    showed r2 that the target had had it, and nothing in the ledger shows this to r3 either."""
    known.begin("r2", reached, -1)
    known.begin("r3", 12, 13, LACKING)
    known.look_up("r3", [Stored(0, 1, -1, -1, -1, 0, (-FOREIGN,), 1)])
    known.arrived(request("r3", 12, 5), FOREIGN, is_cut=True)
    assert known.is_over(5, [FOREIGN]) is could_know


def test_a_position_covers_a_record_that_the_target_lacked_until_it_was_copied_again(known: Known) -> None:
    known.begin("r2", 5, -1)
    known.arrived(request("r2", 12, 5), FOREIGN, is_cut=True)
    known.begin("r3", 13, 13, LACKING)
    known.looked_up["r3"] = FOREIGN + 1
    known.arrived(request("r3", 13, 5), FOREIGN + 1, is_cut=True)
    assert not known.is_over(5, [FOREIGN])
    assert known.is_over(5, [FOREIGN + 1])


def test_the_target_lacks_the_ordinals_of_holes_and_displaced_ones() -> None:
    play = opened(
        *BEGUN,
        TargetRun(LANE, 1, 5, 3, 1, (Displaced(2, 4, 3, 1),)),
        HoleFound(LANE, 1, 6, 6, 9, 10),
        HoleFound(LANE, 1, 7, 7, 8, 8),
    )
    known = Known()
    known.takers.update((ordinal, ("r1", ordinal)) for ordinal in range(9))
    known.take_over("r2", progress_at(9), play.record)
    assert known.below_position["r2"] == {0, 1, 5, 7, 8}
