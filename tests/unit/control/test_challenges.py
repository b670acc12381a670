"""Nonces: each one counts once, for a while, and only if this process issued it."""

import pytest

from mirrord.control import challenges
from mirrord.control.challenges import VALID_S, Challenges
from tests.fixtures.clock import FakeClock


def test_a_nonce_counts_once() -> None:
    issued = Challenges(FakeClock())
    nonce = issued.issue()
    assert issued.spend(nonce)
    assert not issued.spend(nonce)
    assert issued.spend(issued.issue())


def test_a_nonce_expires() -> None:
    clock = FakeClock()
    issued = Challenges(clock)
    early, late = issued.issue(), issued.issue()
    clock.now += VALID_S - 1
    assert issued.spend(early)
    clock.now += 2
    assert not issued.spend(late)
    assert not issued.spend(early), "a spent nonce is forgotten only after it has expired"


@pytest.mark.parametrize("nonce", ["", ".", "..", "99999999999.00.00", "x.y.z", "\u0661.\u0661.\u0661"])
def test_nobody_else_can_make_a_nonce(nonce: str) -> None:
    clock = FakeClock()
    assert not Challenges(clock).spend(nonce)
    assert not Challenges(clock).spend(Challenges(clock).issue()), "another process has another key"


def test_a_later_end_is_not_believed() -> None:
    issued = Challenges(FakeClock())
    end, rest = issued.issue().split(".", 1)
    assert not issued.spend(f"{int(end) + 1}.{rest}")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenges, "MOST_SPENT", 3)
    clock = FakeClock()
    issued = Challenges(clock)
    for _ in range(10_000):
        issued.issue()
    assert not issued._spent, "what is only issued is not stored"  # pyright: ignore[reportPrivateUsage]
    assert [issued.spend(issued.issue()) for _ in range(4)] == [True, True, True, False]
    clock.now += VALID_S + 1
    assert issued.spend(issued.issue())
