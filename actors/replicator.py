"""The replicator as a Ray actor: a process with one event loop for its lanes and another for its health checks.

Ray creates both event loops before any code in this module runs. Ray uses uvloop if it is installed
(ray._private.async_compat).
"""

import asyncio
import os
from collections.abc import Sequence

import msgspec
import structlog

from actors.handles import ORPHAN_LOOK_S, in_health_group, until_orphaned
from actors.nodes import this_node
from actors.worker_actor import WorkerActor
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.host.replicator import Replicator
from mirrord.replication.lane.assignment import Greeting, LaneAssignment
from mirrord.runtime.build_info import program
from mirrord.runtime.tasks import keep_running

ORPHAN_S = 120.0
"""The maximum time, in seconds, for which a replicator keeps its lanes after the Ray node manager on its node has
exited. Ray needs up to 16 s to detect that a node manager has been killed, and up to a minute to detect that it
hangs."""
DRAIN_S = 5.0

log = structlog.get_logger()


class ReplicatorActor(WorkerActor):
    """The Ray actor that runs `mirrord.replication.host.replicator.Replicator`. Arguments and results are plain values
    or are encoded as msgpack.
    """

    def __init__(self, name: str, setup: bytes, log_directory: str, orders: str) -> None:
        """`orders` identifies the supervisor process that starts this actor. The actor accepts orders only from that
        process."""
        super().__init__(name, setup, log_directory)
        self._orders = orders
        self._node = this_node()
        self._replicator = Replicator(name, *self._decoded())

    def __repr__(self) -> str:
        return f"mirrord replicator {self._name}"

    async def open(self) -> int:
        """Read the ledger, and return the id of this process. Once this call has returned, lanes can be assigned."""
        log.info("replicator_opening", replicator=self._name, event_loop=type(asyncio.get_running_loop()).__module__)
        await self._replicator.open()
        self._end_when_lost(self._replicator)
        watch = keep_running(self._end_orphaned, "orphan_not_watched", replicator=self._name)
        self._leaving = asyncio.create_task(watch)
        return os.getpid()

    async def greet(self, orders: str) -> bytes:
        """Return the identity of this replicator. From this call on, only orders from the calling process are
        accepted."""
        log.info("replicator_greeted", replicator=self._name, orders=orders)
        self._orders = orders
        return msgspec.msgpack.encode(Greeting(program(), self._setup, self._encoded_report()))

    async def prepare(self, lanes: bytes, orders: str) -> None:
        """Connect to the brokers of these lanes. The lanes may be assigned to this replicator later."""
        self._check(orders)
        await self._replicator.prepare(msgspec.msgpack.decode(lanes, type=list[LaneAssignment]))

    async def assign(self, lanes: bytes, orders: str) -> None:
        """Start hosting these lanes."""
        self._check(orders)
        await self._replicator.assign(msgspec.msgpack.decode(lanes, type=list[LaneAssignment]))

    async def release(self, lanes: Sequence[LaneId], deadline_s: float, orders: str) -> dict[LaneId, bytes]:
        """Drain these lanes and stop hosting them. Return each lane's last progress record as msgpack, or empty bytes
        if the lane was not drained cleanly."""
        self._check(orders)
        partings = await self._replicator.part_with(lanes, deadline_s)
        return {lane: msgspec.msgpack.encode(each.word) if each.word else b"" for lane, each in partings.items()}

    @in_health_group
    async def hurry(self, lanes: Sequence[LaneId], orders: str) -> None:
        """Fetch the records of these lanes before those of other lanes."""
        self._check(orders)
        self._replicator.hurry(lanes)

    async def close(self, deadline_s: float, orders: str) -> None:
        """Drain all lanes, stop hosting them, and close all connections."""
        self._check(orders)
        await self._replicator.close(deadline_s)

    @in_health_group
    async def report(self) -> bytes:
        """Return the current state of the replicator and of its lanes, and how long ago the main event loop last
        responded."""
        return self._encoded_report()

    def _encoded_report(self) -> bytes:
        return msgspec.msgpack.encode(msgspec.structs.replace(self._replicator.report(), node=self._node))

    async def _end_orphaned(self) -> None:
        """Wait until Ray's node manager has exited, and then close this replicator and end its process.

        Without the node manager, no other process can reach this process. The lanes move to other replicators when the
        supervisor considers the node lost. Until then, this replicator keeps copying. The lanes are therefore
        interrupted for no longer than in a planned move.
        """
        await until_orphaned()
        log.error("replicator_orphaned", replicator=self._name)
        for _ in range(int(ORPHAN_S / ORPHAN_LOOK_S)):
            if not self._replicator.has_lanes:
                break
            await asyncio.sleep(ORPHAN_LOOK_S)
        log.error("ends_by_itself", name=self._name, reason="its node's manager has ended")
        try:
            await self._replicator.close(DRAIN_S)
        finally:
            os._exit(1)  # no other process can end this process

    def _check(self, orders: str) -> None:
        """Refuse orders from a former supervisor process. Its calls may arrive after the first call from its
        successor."""
        if orders != self._orders:
            raise EnvironmentFault(f"{self._name} takes its commands from a different process")
