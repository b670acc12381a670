"""What the simulation takes a holder of the lane to know about a compacted target."""

from types import SimpleNamespace
from typing import cast

import pytest

from tests.sim import toy
from tests.sim.host import Request
from tests.sim.known import Known

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
