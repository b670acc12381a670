"""How much is requested from a broker that is far away."""

import pytest

from mirrord.replication.host.flow_control.fetch_size import FetchSize

MIB = 1 << 20
USUAL, MOST = 8 * MIB, 16 * MIB


def test_nothing_is_known_at_first() -> None:
    size = FetchSize()
    assert not size.is_far
    assert size.wanted(USUAL, MOST) == USUAL


def test_a_near_broker_is_asked_for_the_usual_however_fast_it_is() -> None:
    size = FetchSize()
    size.answered(USUAL, 100, 0.001)
    for _ in range(10):
        size.answered(USUAL, USUAL, 0.02)
    assert not size.is_far
    assert size.wanted(USUAL, MOST) == USUAL


@pytest.mark.parametrize(("bytes_per_s", "wanted"), [(200 * MIB, MOST), (30 * MIB, 12 * MIB), (5 * MIB, USUAL)])
def test_a_far_one_is_asked_for_what_it_sends_in_some_round_trips(bytes_per_s: int, wanted: int) -> None:
    size = FetchSize()
    size.answered(USUAL, 100, 0.1)
    for _ in range(20):
        size.answered(USUAL, USUAL, 0.1 + USUAL / bytes_per_s)
    assert size.is_far
    assert size.wanted(USUAL, MOST) == pytest.approx(wanted, rel=0.05)


def test_answers_that_are_not_full_show_no_rate() -> None:
    size = FetchSize()
    for _ in range(20):
        size.answered(USUAL, 1_000, 0.1)
    assert size.wanted(USUAL, MOST) == USUAL


def test_there_may_be_less_room_than_usual() -> None:
    size = FetchSize()
    size.answered(USUAL, USUAL, 0.2)
    assert size.wanted(USUAL, 4 * MIB) == USUAL
