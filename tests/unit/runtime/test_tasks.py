"""A task that no one awaits reports its failure, also while something holds a reference to it."""

import asyncio

import pytest
from structlog.testing import capture_logs

from mirrord.runtime import tasks as module
from mirrord.runtime.tasks import BackgroundTasks, keep_running, report_failure


async def test_only_failures_are_reported() -> None:
    async def fail() -> None:
        raise ValueError("wrong")

    with capture_logs() as events:
        held = [asyncio.create_task(work) for work in (fail(), asyncio.sleep(0), asyncio.sleep(60))]
        for task in held:
            task.add_done_callback(report_failure("work_failed", flow="eu-us"))
        held[2].cancel()
        await asyncio.wait(held)
        await asyncio.sleep(0)
    ((event, flow, error),) = [(each["event"], each["flow"], each["exc_info"]) for each in events]
    assert (event, flow) == ("work_failed", "eu-us")
    with pytest.raises(ValueError, match="wrong"):
        raise error


async def test_tasks_in_the_background_are_kept_until_they_end() -> None:
    async def fail() -> None:
        raise ValueError("wrong")

    tasks = BackgroundTasks("work_failed", flow="eu-us")
    with capture_logs() as events:
        failing, waiting = tasks.start(fail(), name="one", part="first"), tasks.start(asyncio.sleep(60))
        await asyncio.wait([failing])
        await asyncio.sleep(0)
        assert list(tasks) == [waiting]
        await tasks.end()
    assert (waiting.cancelled(), list(tasks), failing.get_name()) == (True, [], "one")
    assert [(each["event"], each["flow"], each["part"]) for each in events] == [("work_failed", "eu-us", "first")]


async def test_work_that_must_not_end_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.001)
    runs = 0

    async def work() -> None:
        nonlocal runs
        runs += 1
        if runs < 4:
            raise ValueError("wrong")

    with capture_logs() as events:
        await keep_running(work, "work_failed", flow="eu-us")
    assert runs == 4
    assert [(each["event"], each["flow"]) for each in events] == [("work_failed", "eu-us")] * 3


async def test_a_failure_during_the_pause_does_not_end_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause doubles, and whatever fails in the meantime, the work begins again."""
    pauses: list[float] = []
    ran = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) in {3, 4}:
            raise OSError("the clock is broken")
        await original(0)

    async def work() -> None:
        if len(pauses) < 6:
            raise ValueError("wrong")
        ran.set()
        await original(60)

    original = asyncio.sleep
    monkeypatch.setattr(module.asyncio, "sleep", sleep)
    tasks = BackgroundTasks("work_failed")
    task = tasks.keep(work)
    await asyncio.wait_for(ran.wait(), 20)
    assert pauses == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0]
    await tasks.end()
    assert task.cancelled()
