"""The common base of replicator actors and group follower actors. Each of these actors is a process that runs one
`LeasedWorker`."""

import asyncio

import msgspec

from actors.handles import Watches, end_when, in_health_group
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.leased_worker import LeasedWorker
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime import logs
from mirrord.runtime.descriptors import raise_descriptor_limit


class WorkerActor:
    """Base class of the actors that run a `LeasedWorker`. Ray calls methods by name, so the methods of a subclass are
    the actor's interface."""

    def __init__(self, name: str, setup: bytes, log_directory: str) -> None:
        """`name` is the name of this actor. `setup` is a `FlowSetup`, encoded as msgpack. Log files are written to
        `log_directory`.
        """
        raise_descriptor_limit()
        # The name of the log file omits the actor's generation, so that a replacement appends to its predecessor's
        # file.
        logs.set_up(log_directory, name.rpartition(".g")[0].replace("/", "-"), on_stderr=False)
        self._name = name
        self._setup = setup
        self._watches = Watches()
        self._ending: asyncio.Task[None] | None = None

    @in_health_group
    async def watch(self, orders: str) -> None:
        """Return when another supervisor process calls this method. If a call fails with ActorDiedError, this actor's
        process has ended."""
        await self._watches.wait(orders)

    def _decoded(self) -> tuple[FlowSetup, KafkaLog]:
        """Decode the setup. Return it together with a new connection to the flow's ledger."""
        setup = msgspec.msgpack.decode(self._setup, type=FlowSetup)
        return setup, KafkaLog(setup.flow.name, setup.target)

    def _end_when_lost(self, worker: LeasedWorker) -> None:
        """Start a task that ends this process when the worker's lease is lost."""
        self._ending = end_when(worker.until_lost(), self._name)
