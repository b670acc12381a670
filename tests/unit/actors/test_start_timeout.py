"""On a busy machine, actors start slowly, but they start."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actors import engine
from actors.engine import RayEngine
from actors.start_timeout import LONGEST_START_S, START_S, StartTimeout
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.fleet.engine import ReplicatorUnsure


def test_the_timeout_doubles_until_a_start_succeeds() -> None:
    timeout = StartTimeout()
    allowed: list[float] = []
    for _ in range(6):
        allowed.append(timeout.seconds)
        timeout.expired(timeout.seconds)
    assert allowed == [30, 60, 120, 240, 240, 240]
    timeout.finished(50)
    assert timeout.seconds == 100, "the next start probably takes as long as this one"
    timeout.finished(1)
    assert timeout.seconds == START_S
    timeout.finished(200)
    assert timeout.seconds == LONGEST_START_S


def test_starts_that_run_side_by_side_double_it_once() -> None:
    timeout = StartTimeout()
    timeout.expired(30)
    timeout.expired(30)
    assert timeout.seconds == 60


async def test_a_start_that_takes_longer_than_the_first_timeout_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a fixed timeout, each start was ended just before it would have finished."""
    allowed: list[float] = []

    async def call(_answer: object, timeout_s: float) -> None:
        allowed.append(timeout_s)
        if timeout_s < 50:
            raise ReplicatorUnsure("no answer") from TimeoutError()

    async def create(*_arguments: object, **_options: object) -> Any:
        return SimpleNamespace(
            open=SimpleNamespace(remote=lambda: None), watch=SimpleNamespace(remote=lambda _: asyncio.Event().wait())
        )

    async def kill(_actor: object) -> None: ...

    for replaced in (call, create, kill):
        monkeypatch.setattr(engine, replaced.__name__, replaced)
    monkeypatch.setattr(engine, "Nodes", SimpleNamespace)
    made = RayEngine("i", "/logs")
    setup = cast(Any, None)
    with pytest.raises(EnvironmentFault, match="i/f/replicator-0 does not start"):
        await made.start("i/f/replicator-0", setup, lambda: None)
    assert (await made.start("i/f/replicator-0", setup, lambda: None)).name == "i/f/replicator-0"
    assert allowed == [30, 60]
    for watch in made._watches:
        watch.cancel()
