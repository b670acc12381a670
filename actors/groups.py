"""A flow's group follower as a Ray actor. The actor runs in a separate process, so that large numbers of commits by
consumer groups delay neither the lanes nor the supervisor."""

import os

import msgspec
import structlog

from actors.handles import end_when, until_orphaned
from actors.worker_actor import WorkerActor
from mirrord.groups.group_follower import GroupSync
from mirrord.replication.lane.assignment import Greeting
from mirrord.runtime.build_info import program

log = structlog.get_logger()


class GroupsActor(WorkerActor):
    """The Ray actor that runs `mirrord.groups.group_follower.GroupSync`. Arguments and results are plain values or are
    encoded as msgpack.
    """

    def __init__(self, name: str, setup: bytes, log_directory: str, orders: str) -> None:  # noqa: ARG002
        super().__init__(name, setup, log_directory)
        self._sync = GroupSync(name, *self._decoded())

    def __repr__(self) -> str:
        return f"mirrord groups {self._name}"

    async def open(self) -> int:
        """Read the ledger, start following the groups, and return the id of this process."""
        log.info("groups_opening", follower=self._name)
        await self._sync.open()
        self._end_when_lost(self._sync)
        self._leaving = end_when(until_orphaned(), self._name, "its node's manager has ended")
        return os.getpid()

    async def greet(self, orders: str) -> bytes:
        """Return the identity of this follower. The next call to `news` then returns all positions again, because the
        caller of `greet` may be a new process that does not know them."""
        log.info("groups_greeted", follower=self._name, orders=orders)
        self._sync.report_all()
        return msgspec.msgpack.encode(Greeting(program(), self._setup))

    async def news(self) -> bytes:
        """Return the translated positions that have changed since the last call, as `GroupsNews` in msgpack."""
        return msgspec.msgpack.encode(self._sync.news())

    async def report(self, reverse: bool) -> bytes:
        """Return the current positions of all groups, as `GroupsReport` in msgpack. If `reverse` is set, these are the
        positions that are synced from the target to the source."""
        return msgspec.msgpack.encode(await self._sync.report(reverse=reverse))
