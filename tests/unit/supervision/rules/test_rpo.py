"""A flow is within its recovery point objective only if that is known."""

import pytest

from mirrord.model.status import FlowPhase, LaneStatus
from mirrord.supervision.rules.rpo import NOT_LOOKED, rpo_status


def lanes(*lags_s: float | None) -> list[LaneStatus]:
    return [
        LaneStatus(topic="orders", partition=number, target_topic="eu.orders", state="copying", lag_s=lag_s)
        for number, lag_s in enumerate(lags_s)
    ]


@pytest.mark.parametrize(
    ("lags", "faults", "looked", "within", "why"),
    [
        ((0.0, 29.9, 30.0), (), True, True, ""),
        ((0.0, 30.1), (), True, False, "orders-1 is 30 s behind"),
        ((31.0, 95.0), (), True, False, "orders-1 is 95 s behind, and 1 more"),
        ((0.0, None), (), True, False, "it is not known how far orders-1 is behind"),
        ((None, None, None), (), True, False, "it is not known how far orders-0 and 2 more are behind"),
        ((0.0,), ("bills",), True, False, "bills is not copied, or only in part"),
        ((), (), True, True, ""),
        ((), (), False, False, NOT_LOOKED),
        ((0.0,), (), False, False, NOT_LOOKED),
    ],
)
def test_only_what_is_known_is_within(
    lags: tuple[float | None, ...], faults: tuple[str, ...], looked: bool, within: bool, why: str
) -> None:
    status = rpo_status(30_000, "running", lanes(*lags), faults, looked=looked)
    assert status is not None
    assert (status.rpo_s, status.within, status.why) == (30.0, within, why)


@pytest.mark.parametrize("state", ["starting", "draining", "stopped", "down"])
def test_a_flow_that_does_not_run_grows_old(state: FlowPhase) -> None:
    status = rpo_status(30_000, state, lanes(31.0), (), looked=True)
    assert status is not None
    assert status.within is False


def test_a_standby_says_nothing() -> None:
    status = rpo_status(30_000, "standby", lanes(None), (), looked=False)
    assert status is not None
    assert status.within is None


def test_without_an_objective_there_is_nothing_to_say() -> None:
    assert rpo_status(None, "running", lanes(99.0), (), looked=True) is None
