"""Each background task of a daemon is killed by an error that nobody expects. It is reported, and the flow goes on."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from mirrord.config.loader import load
from mirrord.daemon.daemon import Supervisor
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.supervision.fleet.in_process_engine import ProcessEngine
from tests.fixtures.daemon import conf, unique
from tests.fixtures.groups import commit, committed, numbered
from tests.fixtures.killing import Killed, name_of, waiter_of
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends, write

RECORDS = 10
SECONDS = 120.0
MORE = """groups = { match = ["GROUP"], refresh = "300ms", reverse = true }
heartbeats = { emit = "target", every = "500ms" }"""


class Daemon:
    """A daemon in this process, on the process engine, with one topic and one consumer group."""

    def __init__(self, pair: LabPair, folder: Path) -> None:
        self.topic, self.group = create_topic(pair.source, unique("orders")), unique("readers")
        more = MORE.replace("GROUP", self.group)
        path = conf(folder, pair.source, pair.target, self.topic, flow=unique("killed"), flow_more=more)
        self._pair = pair
        self._copy = f"eu.{self.topic}"
        self._total = 0
        self._others = asyncio.all_tasks()
        self.config = load(path)
        self.supervisor = Supervisor(self.config, ProcessEngine(lambda setup: KafkaLog(setup.flow.name, setup.target)))

    def tasks(self) -> "list[asyncio.Task[Any]]":
        """Return the daemon's tasks that can be killed now."""
        return [task for task in asyncio.all_tasks() - self._others if waiter_of(task) is not None]

    async def works(self) -> None:
        """Write records and commit a position at the source, and wait until both have arrived at the target."""
        source, target = self._pair.source, self._pair.target
        await asyncio.to_thread(write, source, self.topic, numbered(RECORDS, self._total))
        self._total += RECORDS
        await asyncio.to_thread(commit, source, self.group, self.topic, {0: self._total})
        await until(lambda: committed(target, self.group, self._copy) == {0: self._total})
        assert await asyncio.to_thread(ends, target, self._copy) == {0: self._total}


async def until(reached: Callable[[], bool]) -> None:
    """Wait until a condition holds, which is checked in another thread."""
    deadline = time.monotonic() + SECONDS
    while not await asyncio.to_thread(reached):
        assert time.monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.05)


async def test_whatever_task_dies_is_reported_and_replaced(lab_pair: LabPair, tmp_path: Path) -> None:
    daemon = Daemon(lab_pair, tmp_path)
    killed: set[str] = set()
    await daemon.supervisor.start()
    try:
        await daemon.works()
        while left := [task for task in daemon.tasks() if name_of(task) not in {"", *killed}]:
            task = min(left, key=name_of)
            killed.add(name := name_of(task))
            print("killed", name)
            with capture_logs() as events:
                waiter = waiter_of(task)
                assert waiter is not None
                waiter.set_exception(Killed(name))
                await daemon.works()
                # It is reported.
                await until(lambda events=events: "Killed" in str(events))
        # Whoever has silently stopped renewing its lease can no longer work.
        deadline = time.monotonic() + 2 * daemon.config.runtime.lease_ttl_ms / 1000
        while time.monotonic() < deadline:
            await daemon.works()
    finally:
        await daemon.supervisor.stop()
        await daemon.supervisor.wait()
    assert len(killed) > 25
