"""A task that no one awaits reports its failure, also while something holds a reference to it."""

import asyncio

import pytest
from structlog.testing import capture_logs

from mirrord.runtime.tasks import BackgroundTasks, report_failure


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
