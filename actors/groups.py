"""The follower of a flow's consumer groups as a Ray actor. It has a separate process, so that many commits delay
neither the lanes nor the supervisor.
"""

import os

import msgspec
import structlog

from actors.handles import Watches, end_when, in_health_group, until_orphaned
from mirrord.groups.follower import GroupSync
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.replication.lane.assignment import FlowSetup, Greeting
from mirrord.runtime import logs
from mirrord.runtime.build_info import program

log = structlog.get_logger()


class GroupsActor:
    """Hosts `mirrord.groups.follower.GroupSync`. Arguments and results are msgpack or plain values."""

    def __init__(self, name: str, setup: bytes, log_directory: str, orders: str) -> None:  # noqa: ARG002
        decoded = msgspec.msgpack.decode(setup, type=FlowSetup)
        # The file name omits the generation: a replacement appends to the log file of its predecessor.
        logs.set_up(log_directory, name.rpartition(".g")[0].replace("/", "-"), on_stderr=False)
        self._name = name
        self._setup = setup
        self._watches = Watches()
        self._sync = GroupSync(name, decoded, KafkaLog(decoded.flow.name, decoded.target))

    def __repr__(self) -> str:
        return f"mirrord groups {self._name}"

    async def open(self) -> int:
        """Read the ledger and return the process id."""
        log.info("groups_opening", follower=self._name)
        await self._sync.open()
        self._ending = end_when(self._sync.until_lost(), self._name)
        self._leaving = end_when(until_orphaned(), self._name, "its node's manager has ended")
        return os.getpid()

    async def greet(self, orders: str) -> bytes:
        """Return the identity of this follower. All positions are reported again."""
        log.info("groups_greeted", follower=self._name, orders=orders)
        self._sync.tell_all()
        return msgspec.msgpack.encode(Greeting(program(), self._setup))

    async def news(self) -> bytes:
        """Return the changes since the last call."""
        return msgspec.msgpack.encode(self._sync.news())

    async def report(self, reverse: bool) -> bytes:
        """Return the current state of all groups."""
        return msgspec.msgpack.encode(await self._sync.report(reverse=reverse))

    @in_health_group
    async def watch(self, orders: str) -> None:
        """Like `ReplicatorActor.watch`."""
        await self._watches.wait(orders)
