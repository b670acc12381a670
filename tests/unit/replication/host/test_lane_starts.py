"""Lanes of a replicator start although the task that starts them has failed once."""

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from mirrord.replication.host.replicator import Replicator
from mirrord.runtime import tasks
from mirrord.runtime.tasks import BackgroundTasks
from tests.fixtures.fake_pipe import as_any


async def test_lanes_start_once_although_their_task_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """STANDSTILL. The lanes stayed in the phase "opening" until the replicator ended."""
    monkeypatch.setattr(tasks, "AGAIN_S", 0.0)
    started: list[str] = []
    done = asyncio.Event()
    reads = 0

    def start(hosted: SimpleNamespace) -> None:
        hosted.started = True
        started.append(hosted.name)
        if len(started) == 3:
            done.set()

    async def read_to_end() -> None:
        nonlocal reads
        reads += 1
        if reads == 1:
            raise RuntimeError("nobody expects this")

    host = SimpleNamespace(start=start)
    added = [SimpleNamespace(name=name, started=False, journey=None) for name in ("a", "b", "c")]
    replicator = SimpleNamespace(
        _expiry=None,
        _expiry_known=None,
        _knows=lambda hosted: hosted.name == "b",
        _start_now=partial(Replicator._start_now, as_any(None)),
        _store=SimpleNamespace(read_to_end=read_to_end),
    )
    background = BackgroundTasks("replicator_task_failed")
    background.keep(partial(Replicator._start, as_any(replicator), as_any(host), as_any(added)))
    async with asyncio.timeout(10):
        await done.wait()
    assert started == ["b", "a", "c"]
    await background.end()
