"""Nonces: each one counts once, for a while, and only if this process issued it."""

import pytest

from mirrord.control import challenges
from mirrord.control.challenges import VALID_S, Challenges
from tests.fixtures.clock import FakeClock


def test_a_nonce_counts_once() -> None:
    issued = Challenges(FakeClock())
    nonce = issued.issue()
    assert issued.spend(nonce, "ops")
    assert not issued.spend(nonce, "ops")
    assert issued.spend(issued.issue(), "ops")


def test_a_nonce_expires() -> None:
    clock = FakeClock()
    issued = Challenges(clock)
    early, late = issued.issue(), issued.issue()
    clock.now += VALID_S - 1
    assert issued.spend(early, "ops")
    clock.now += 2
    assert not issued.spend(late, "ops")
    assert not issued.spend(early, "ops"), "a spent nonce is forgotten only after it has expired"


@pytest.mark.parametrize("nonce", ["", ".", "..", "99999999999.00.00", "x.y.z", "\u0661.\u0661.\u0661"])
def test_nobody_else_can_make_a_nonce(nonce: str) -> None:
    clock = FakeClock()
    assert not Challenges(clock).spend(nonce, "ops")
    assert not Challenges(clock).spend(Challenges(clock).issue(), "ops"), "another process has another key"


def test_a_later_end_is_not_believed() -> None:
    issued = Challenges(FakeClock())
    end, rest = issued.issue().split(".", 1)
    assert not issued.spend(f"{int(end) + 1}.{rest}", "ops")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenges, "MOST_SPENT", 3)
    clock = FakeClock()
    issued = Challenges(clock)
    for _ in range(10_000):
        issued.issue()
    assert not issued._spent, "what is only issued is not stored"  # pyright: ignore[reportPrivateUsage]
    assert [issued.spend(issued.issue(), "ops") for _ in range(4)] == [True, True, True, False]
    clock.now += VALID_S + 1
    assert issued.spend(issued.issue(), "ops")


def test_a_client_cannot_use_up_the_nonces_of_another_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(challenges, "MOST_SPENT", 3)
    issued = Challenges(FakeClock())
    assert [issued.spend(issued.issue(), "see") for _ in range(4)] == [True, True, True, False]
    nonce = issued.issue()
    assert issued.spend(nonce, "ops")
    assert not issued.spend(nonce, "see")
    assert not issued.spend(nonce, "all")
