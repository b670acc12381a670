"""Ending a replicator on Ray: the GCS's answer after mirrord's own kill does not prove that the process has ended."""

import asyncio
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import msgspec
import psutil
import pytest

from actors import handles
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.runtime.leash import leashed
from mirrord.supervision.fleet.engine import ReplicatorUnsure


@pytest.fixture
def process() -> Any:
    sleeping = subprocess.Popen(leashed([sys.executable, "-c", "import time; time.sleep(600)"]))
    yield sleeping
    sleeping.kill()
    sleeping.wait()


async def calls_of(process: Any, monkeypatch: pytest.MonkeyPatch, *, reaches: bool) -> handles.ReplicatorCalls:
    """A handle whose Ray declares the actor dead as soon as it is killed; the kill reaches the process or does not."""
    monkeypatch.setattr(handles, "END_S", 0.2)
    ended = asyncio.Event()

    async def kill(_actor: object, *, restart: bool = False) -> None:
        assert not restart
        ended.set()
        if reaches:
            process.kill()

    async def report() -> bytes:
        answer = ReplicatorReport(
            name="r",
            pid=process.pid,
            host=handles.socket.gethostname(),
            loop_age_ms=0,
            cpu_seconds=0,
            rss_bytes=0,
            lanes=(),
            source_error="",
            target_error="",
            lease_valid_s=0,
            lost=False,
        )
        return msgspec.msgpack.encode(answer)

    monkeypatch.setattr(handles, "kill", kill)
    actor = SimpleNamespace(report=SimpleNamespace(remote=report))
    return handles.ReplicatorCalls("r", actor, ended, "orders")


async def test_a_process_that_is_seen_to_end(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = await calls_of(process, monkeypatch, reaches=True)
    await calls.report()
    monkeypatch.setattr(handles, "END_S", 10.0)
    await calls.kill()
    assert process.poll() is not None or psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("reported", [True, False])
async def test_a_kill_that_did_not_arrive(process: Any, monkeypatch: pytest.MonkeyPatch, reported: bool) -> None:
    calls = await calls_of(process, monkeypatch, reaches=False)
    if reported:
        await calls.report()
    with pytest.raises(ReplicatorUnsure, match="nothing shows that its process has ended"):
        await calls.kill()


async def test_a_process_that_had_ended_before(process: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = await calls_of(process, monkeypatch, reaches=False)
    calls._ended.set()  # pyright: ignore[reportPrivateUsage]
    await calls.kill()
