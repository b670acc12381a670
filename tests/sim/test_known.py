"""What the simulation takes a holder of the lane to know about a compacted target."""

from types import SimpleNamespace
from typing import cast

import pytest

from mirrord.ledger.facts.core import Displaced, HoleFound, TargetRun
from mirrord.replication.lane.state import Lane
from tests.sim import toy
from tests.sim.host import Request
from tests.sim.known import Known, Lookup
from tests.sim.target import FakeTarget, Stored
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, opened, progress_at

FOREIGN = 1
"""The number of the only record of another writer."""
THEIRS = [Stored(0, 1, -1, -1, -1, 0, (-FOREIGN,), 1)]
LOST = {5: 2}
"""An election removed record 5. The leader epoch 2 began without it."""


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
    known.looked_up[5] = [Lookup("r2", FOREIGN, 2)]
    return known


def appends(known: Known) -> bool:
    """Let a batch of r2 with record 5 arrive at a log that an election has cut. Return whether r2 could know that the
    foreign record is newer."""
    known.arrived(request("r2", 12, 5), FOREIGN, LOST)
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


def test_a_lookup_does_not_see_a_foreign_record_that_is_not_committed(known: Known) -> None:
    known.looked_up[5] = [Lookup("r2", FOREIGN + 1, 2, frozenset({FOREIGN}))]
    known.begin("r2", 9, -1)
    assert not appends(known)
    assert known.is_over(5, [FOREIGN, FOREIGN + 1])


def test_of_two_lookups_both_must_see_a_foreign_record(known: Known) -> None:
    """A former holder had planned to copy the record again."""
    known.looked_up[5] = [Lookup("r2", FOREIGN + 2, 2, frozenset({FOREIGN}))]
    known.replanned["r3"] = {5}
    theirs = [Stored(0, 1, -1, -1, -1, 0, (-FOREIGN - 1,), 1)]
    known.look_up("r3", [5], theirs, 2, between=[5], unseen=frozenset({FOREIGN + 2}))
    assert known.looked_up[5][-1] == Lookup("r3", FOREIGN + 1, 2, frozenset({FOREIGN, FOREIGN + 2}))
    assert known.theirs_seen == {FOREIGN + 1}


def test_a_holder_knows_a_record_only_from_the_append_that_its_position_covers(known: Known) -> None:
    """An election removed the record before r2 could know it. What r2 appended was not acknowledged, but read in the
    log, and the position that r2 saved covers only that append. It followed the foreign record."""
    known.begin("r2", 5, -1)
    known.arrived(request("r2", 8, 5), FOREIGN, LOST)
    known.begin("r3", 9, -1)
    known.looked_up[5] = [Lookup("r3", FOREIGN + 1, 2)]
    known.arrived(request("r3", 8, 5), FOREIGN + 1, LOST)
    assert not known.is_over(5, [FOREIGN])
    assert known.is_over(5, [FOREIGN + 1])


def test_a_late_batch_of_a_holder_that_could_not_know_a_record_hides_nothing_from_the_next_ones(known: Known) -> None:
    """The position of r3 covers the first append, and so does that of r4, although r2 appended the record again."""
    known.begin("r2", 5, -1)
    known.begin("r3", 9, -1)
    known.arrived(request("r2", 8, 5), FOREIGN, LOST)
    known.begin("r4", 9, -1)
    known.looked_up[5] = [Lookup("r4", FOREIGN, 2)]
    known.arrived(request("r4", 8, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


@pytest.mark.parametrize(("reached", "could_know"), [(5, False), (9, True)])
def test_a_planned_record_is_judged_by_what_the_planner_knew(known: Known, reached: int, *, could_know: bool) -> None:
    """r2 plans to copy record 5 again as ordinal 12, and ends. Then r3 appends it according to the plan. The resume
    position with which r3 begins is from after r2's plan."""
    known.begin("r2", reached, -1)
    known.look_up("r2", [5], THEIRS, 2)
    known.begin("r3", 12, 13)
    known.arrived(request("r3", 12, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN]) is could_know


def test_a_planned_record_is_judged_by_what_its_sender_knew_if_the_sender_has_looked_it_up(known: Known) -> None:
    known.begin("r2", 5, -1)
    known.begin("r3", 12, 13)
    known.look_up("r3", [5], THEIRS, 2)
    known.arrived(request("r3", 12, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


@pytest.mark.parametrize(("again", "between", "is_seen"), [(12, True, False), (12, False, True), (7, True, True)])
def test_a_record_that_was_copied_again_unnoticed_is_judged_by_what_the_planner_saw(
    known: Known, again: int, *, between: bool, is_seen: bool
) -> None:
    """r1 lost record 5 as ordinal 3, and planned to copy it again as ordinal 12. It was appended, which the ledger does
    not show, and lost again. r2 takes it for never appended."""
    known.takers[5] = ("r1", 3)
    known.ordinals[5] = again
    known.begin("r1", 0, -1)
    known.look_up("r1", [5], [], 2)
    known.begin("r2", 9, 13, [(3, 3)])
    known.look_up("r2", [5], THEIRS, 2, (), [5] if between else [])
    known.arrived(request("r2", 15, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN]) is is_seen


def test_a_lookup_from_before_the_loss_excuses_nothing(known: Known) -> None:
    """r2 looked records up, and its record 5 was lost after that. It appends record 5 again without another lookup."""
    known.takers[5] = ("r2", 8)
    known.begin("r2", 5, -1)
    known.look_up("r2", [5], [], 1)
    known.arrived(request("r2", 8, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


def test_a_plan_from_before_the_loss_excuses_nothing(known: Known) -> None:
    """r2 planned to copy other records again. After that, record 5 was lost, of which r3 knows. Without a lookup, r3
    appends record 5 again, below the end of the plan."""
    known.begin("r2", 5, -1)
    known.look_up("r2", [5], [], 1)
    known.begin("r3", 12, 13)
    known.arrived(request("r3", 8, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


def test_a_plan_without_any_lookup_excuses_nothing(known: Known) -> None:
    known.looked_up.clear()
    known.begin("r3", 12, 13)
    known.arrived(request("r3", 12, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


def test_a_lookup_of_a_later_holder_excuses_nothing_of_an_earlier_one(known: Known) -> None:
    """r4 began after r3, and looked records up. A batch of r3 arrives after that."""
    known.looked_up.clear()
    known.begin("r3", 12, 13)
    known.begin("r4", 5, 13)
    known.look_up("r4", [5], [], 2)
    known.arrived(request("r3", 12, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


def test_a_record_that_was_found_in_the_log_is_known_like_an_acknowledged_one(known: Known) -> None:
    """r2 has read record 6 in the log. An election removed it, and r2 appends it again without a lookup."""
    known.begin("r2", 5, -1)
    known.found("r2", [(9, 6)], 0)
    known.arrived(request("r2", 9, 6), FOREIGN, {6: 2})
    assert known.is_over(6, [FOREIGN])


def test_a_foreign_record_that_was_there_when_a_record_was_found_is_not_newer(known: Known) -> None:
    known.begin("r2", 5, -1)
    known.found("r2", [(9, 6)], FOREIGN)
    known.arrived(request("r2", 9, 6), FOREIGN, {6: 2})
    assert not known.is_over(6, [FOREIGN])


def test_a_lookup_of_other_records_excuses_nothing(known: Known) -> None:
    """r2 looks up record 7 alone, and copies record 5 again, too."""
    known.looked_up.clear()
    known.takers[5] = ("r2", 8)
    known.begin("r2", 5, -1)
    known.look_up("r2", [7], [], 2)
    known.arrived(request("r2", 8, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN])


def test_a_planned_record_is_judged_by_the_plan_if_its_sender_has_looked_up_others(known: Known) -> None:
    known.looked_up.clear()
    known.begin("r2", 9, -1)
    known.look_up("r2", [5], [], 2)
    known.begin("r3", 12, 13)
    known.look_up("r3", [7], THEIRS, 2)
    known.arrived(request("r3", 12, 5), FOREIGN, LOST)
    assert not known.is_over(5, [FOREIGN])


def test_a_record_that_came_late_and_is_appended_again_no_longer_counts_as_late(known: Known) -> None:
    known.came_late(cast("bytes", 5), FOREIGN)
    assert known.late == {5}
    known.arrived(request("r2", 8, 5), FOREIGN, LOST)
    assert not known.late


def test_a_record_that_is_acknowledged_again_follows_what_was_written_after_its_lookup(known: Known) -> None:
    """r1 looked record 5 up, the foreign record was written, and r1 appended record 5 after it. It was acknowledged,
    and lost again."""
    known.begin("r1", 5, -1)
    known.look_up("r1", [5], [], 2)
    again = request("r1", 8, 5)
    again.host.lane = cast("Lane", SimpleNamespace(acked=9, resumed_at=SimpleNamespace(leader_epoch=1)))
    target = FakeTarget()
    target.foreign_numbers = FOREIGN
    known.arrived(again, FOREIGN, LOST)
    assert not known.is_over(5, [FOREIGN])
    known.took([again], target)
    known.look_up("r1", [5], THEIRS, 3)
    known.arrived(again, FOREIGN + 1, {5: 3})
    assert not known.is_over(5, [FOREIGN])


def test_a_record_that_is_not_acknowledged_again_is_judged_by_its_first_acknowledgement(known: Known) -> None:
    known.begin("r1", 5, -1)
    known.look_up("r1", [5], [], 2)
    known.arrived(request("r1", 8, 5), FOREIGN, LOST)
    known.look_up("r1", [5], THEIRS, 3)
    known.arrived(request("r1", 8, 5), FOREIGN, {5: 3})
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
    known.look_up("r3", [5], THEIRS, 2)
    known.arrived(request("r3", 12, 5), FOREIGN, LOST)
    assert known.is_over(5, [FOREIGN]) is could_know


def test_a_position_covers_a_record_that_the_target_lacked_until_it_was_copied_again(known: Known) -> None:
    known.begin("r2", 5, -1)
    known.arrived(request("r2", 12, 5), FOREIGN, LOST)
    known.begin("r3", 13, 13, LACKING)
    known.looked_up[5] = [Lookup("r3", FOREIGN + 1, 2)]
    known.arrived(request("r3", 13, 5), FOREIGN + 1, LOST)
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
    known.take_over("r2", progress_at(9), play.record, {})
    assert known.below_position["r2"] == {0, 1, 5, 7, 8}


def test_a_record_that_the_log_hid_from_the_lookup_is_hidden_from_the_append_that_follows(known: Known) -> None:
    """r2 looks record 5 up in a log that hides it. Another replica may lead when r2 appends it, and may still have it.
    After that, r2 knows of its own copy."""
    known.begin("r2", 5, -1)
    known.look_up("r2", [5], [], 2, {5, 7})
    assert known.arrived(request("r2", 8, 5), FOREIGN, {}) == {5}
    assert known.arrived(request("r2", 8, 5), FOREIGN, {}) == set()


@pytest.mark.parametrize("holder", ["r2", "r3"])
def test_only_the_last_lookup_of_a_record_counts_for_what_was_hidden(known: Known, holder: str) -> None:
    known.begin("r2", 5, -1)
    known.look_up("r2", [5], [], 2, {5})
    known.look_up(holder, [5], [], 2)
    assert known.arrived(request("r2", 8, 5), FOREIGN, {}) == set()


@pytest.mark.parametrize(
    ("holder", "lost", "hidden"), [("r2", LOST, {6}), ("r1", LOST, set()), ("r2", {}, set()), ("r3", LOST, set())]
)
def test_a_record_that_a_holder_could_not_know_may_be_in_another_replica(
    known: Known, holder: str, lost: dict[int, int], hidden: set[int]
) -> None:
    """The log that r1 and r2 read had record 6 removed, and neither looked it up. r1 knew it."""
    known.takers[6] = ("r1", 9)
    known.overlooked.update(r1={6}, r2={6})
    assert known.arrived(request(holder, 9, 6), FOREIGN, lost) == hidden
    known.look_up(holder, [6], [], 2)
    assert known.arrived(request(holder, 9, 6), FOREIGN, lost) == set()
