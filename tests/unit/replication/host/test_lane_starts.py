"""Lanes of a replicator start although the task that starts them has failed once."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from mirrord.replication.host.lane_host import LaneHost
from mirrord.replication.host.replicator import Replicator
from mirrord.runtime import tasks
from mirrord.runtime.tasks import BackgroundTasks
from tests.fixtures.fake_pipe import as_any


def three_lanes(
    read_to_end: Callable[[], Awaitable[None]], known: str = ""
) -> tuple[list[SimpleNamespace], SimpleNamespace]:
    """Return the lanes a, b and c, and a replicator that has been given them. It knows the history of the lane
    `known`, and reads the ledger with `read_to_end`."""
    added = [
        SimpleNamespace(name=name, started=False, journey=None, lane=SimpleNamespace(id=name))
        for name in ("a", "b", "c")
    ]
    replicator = SimpleNamespace(
        _expiry=None,
        _expiry_known=None,
        _knows=lambda hosted: hosted.name == known,
        _start_now=partial(Replicator._start_now, as_any(None)),
        _store=SimpleNamespace(read_to_end=read_to_end),
    )
    return added, replicator


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
    added, replicator = three_lanes(read_to_end, known="b")
    background = BackgroundTasks("replicator_task_failed")
    background.keep(partial(Replicator._start, as_any(replicator), as_any(host), as_any(added)))
    async with asyncio.timeout(10):
        await done.wait()
    assert started == ["b", "a", "c"]
    await background.end()


async def test_a_lane_that_does_not_start_does_not_keep_others_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """STANDSTILL. One lane failed to start, and those after it were not started either, however often that was
    repeated."""
    monkeypatch.setattr(tasks, "AGAIN_S", 0.0)
    attempts: list[str] = []
    done = asyncio.Event()

    def start(hosted: SimpleNamespace) -> None:
        attempts.append(hosted.name)
        if hosted.name == "a":
            done.set() if len(attempts) > 3 else None
            raise RuntimeError("nobody expects this")
        hosted.started = True

    async def read_to_end() -> None:
        pass

    added, replicator = three_lanes(read_to_end)
    background = BackgroundTasks("replicator_task_failed")
    host = SimpleNamespace(start=start)
    with capture_logs() as events:
        background.keep(partial(Replicator._start, as_any(replicator), as_any(host), as_any(added)))
        async with asyncio.timeout(10):
            await done.wait()
        await background.end()
    assert attempts[:4] == ["a", "b", "c", "a"]
    assert {event["event"] for event in events} == {"lane_not_started", "replicator_task_failed"}


def test_a_lane_whose_start_fails_counts_as_not_started() -> None:
    """STANDSTILL. The lane was marked before it got its signal, so the next attempt left it out."""
    told: list[object] = []
    setups = iter([SimpleNamespace(), SimpleNamespace(barrier_s=lambda *_: 0.0, times=lambda *_: (0, 0))])
    lane = SimpleNamespace(id="a", limits=None)
    assignment = SimpleNamespace(former_under=lambda _: "none", word=None)
    hosted = SimpleNamespace(lane=lane, assignment=assignment, started=False, replicator="r/1", tell=told.append)
    store = SimpleNamespace(state=SimpleNamespace(progress={}))
    for is_failing in (True, False):
        host = SimpleNamespace(_record=lambda _: None, _limits=None, _store=store, _setup=next(setups))
        with pytest.raises(AttributeError) if is_failing else nullcontext():
            LaneHost.start(as_any(host), as_any(hosted))
        assert hosted.started is not is_failing
    assert len(told) == 1


async def test_lanes_that_were_added_before_an_error_are_started() -> None:
    """STANDSTILL. The next assignment of these lanes left them out, because they were hosted already."""
    started: list[object] = []
    background = BackgroundTasks("replicator_task_failed")

    def add(assignment: str, _replicator: str) -> str:
        if assignment == "b":
            raise RuntimeError("nobody expects this")
        return assignment

    async def start(_host: object, added: list[object]) -> None:
        started.extend(added)

    replicator = SimpleNamespace(
        name="r",
        _attempts=0,
        _host=SimpleNamespace(add=add),
        _lease=SimpleNamespace(lost=asyncio.Event()),
        _tasks=background,
        _start=start,
    )
    with pytest.raises(RuntimeError):
        await Replicator.assign(as_any(replicator), as_any(["a", "b", "c"]))
    await asyncio.sleep(0.01)
    assert started == ["a"]
    await background.end()
