"""What the actors of replicators and of group followers have in common: a process that hosts one `LeasedWorker`."""

import asyncio

import msgspec

from actors.handles import Watches, end_when, in_health_group
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.leased_worker import LeasedWorker
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime import logs


class WorkerActor:
    """Base class of the actors that host a worker. Ray calls methods by name, so the methods of a subclass are the
    actor's interface."""

    def __init__(self, name: str, setup: bytes, log_directory: str) -> None:
        """`setup` is a `FlowSetup` as msgpack."""
        # The file name omits the generation: a replacement appends to the log file of its predecessor.
        logs.set_up(log_directory, name.rpartition(".g")[0].replace("/", "-"), on_stderr=False)
        self._name = name
        self._setup = setup
        self._watches = Watches()
        self._ending: asyncio.Task[None] | None = None

    @in_health_group
    async def watch(self, orders: str) -> None:
        """Block until another supervisor process calls this method. If the call fails, the process of this actor has
        ended."""
        await self._watches.wait(orders)

    def _decoded(self) -> tuple[FlowSetup, KafkaLog]:
        """Return the setup, and a new connection to the flow's ledger."""
        setup = msgspec.msgpack.decode(self._setup, type=FlowSetup)
        return setup, KafkaLog(setup.flow.name, setup.target)

    def _end_when_lost(self, worker: LeasedWorker) -> None:
        """End this process when the worker's lease is lost."""
        self._ending = end_when(worker.until_lost(), self._name)
