"""The replicator as a Ray actor: a process with one event loop for its lanes, and another one for its health.

Ray makes the loops itself, before this code runs, and takes uvloop when it is installed (ray._private.async_compat).
"""

import asyncio
import os
from collections.abc import Sequence

import msgspec
import structlog

from actors.handles import Watches, end_when, in_health_group
from mirrord.model.assignment import FlowSetup, Greeting, LaneAssignment
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.shell import logs
from mirrord.shell.ledger_kafka import KafkaLog
from mirrord.shell.program import program
from mirrord.shell.replicator import Replicator

log = structlog.get_logger()


class ReplicatorActor:
    """Hosts `mirrord.shell.replicator.Replicator`. What comes in and goes out is msgpack or plain."""

    def __init__(self, name: str, setup: bytes, log_directory: str, orders: str) -> None:
        """`orders` names the supervisor's process whose orders count."""
        decoded = msgspec.msgpack.decode(setup, type=FlowSetup)
        # Without the generation: a replacement goes on in the file of the one before.
        logs.set_up(log_directory, name.rpartition(".g")[0].replace("/", "-"), on_stderr=False)
        self._name = name
        self._setup = setup
        self._orders = orders
        self._watches = Watches()
        self._replicator = Replicator(name, decoded, KafkaLog(decoded.flow.name, decoded.target))

    def __repr__(self) -> str:
        return f"mirrord replicator {self._name}"

    async def open(self) -> int:
        """Read the ledger; the process id."""
        log.info("replicator_opening", replicator=self._name, event_loop=type(asyncio.get_running_loop()).__module__)
        await self._replicator.open()
        self._ending = end_when(self._replicator.until_lost(), self._name)
        return os.getpid()

    async def greet(self, orders: str) -> bytes:
        """Who it is; only this process's orders count from now on."""
        log.info("replicator_greeted", replicator=self._name, orders=orders)
        self._orders = orders
        report = msgspec.msgpack.encode(self._replicator.report())
        return msgspec.msgpack.encode(Greeting(program(), self._setup, report))

    async def assign(self, lanes: bytes, orders: str) -> None:
        """Host lanes."""
        self._check(orders)
        await self._replicator.assign(msgspec.msgpack.decode(lanes, type=list[LaneAssignment]))

    async def release(self, lanes: Sequence[LaneId], deadline_s: float, orders: str) -> dict[LaneId, bool]:
        """Drain lanes."""
        self._check(orders)
        return await self._replicator.release(lanes, deadline_s)

    async def close(self, deadline_s: float, orders: str) -> None:
        """Drain all lanes and close."""
        self._check(orders)
        await self._replicator.close(deadline_s)

    @in_health_group
    async def report(self) -> bytes:
        """How it is; the age of the main loop is in it."""
        return msgspec.msgpack.encode(self._replicator.report())

    @in_health_group
    async def watch(self, orders: str) -> None:
        """That it fails tells that the process has ended. It answers when somebody else's orders count."""
        await self._watches.wait(orders)

    def _check(self, orders: str) -> None:
        """What a supervisor sent before it died may arrive after its successor's first word."""
        if orders != self._orders:
            raise EnvironmentFault(f"{self._name} takes its orders from another process")
