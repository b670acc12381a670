"""Implements `mirrord.supervision.fleet.engine.Engine` on Ray: replicators and group followers run as Ray actors."""

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec
from ray.exceptions import ActorDiedError, RayError

from actors import options
from actors.groups import GroupsActor
from actors.handles import (
    END_S,
    ActorCalls,
    GroupCalls,
    ReplicatorCalls,
    call,
    create,
    died_with_its_node,
    find,
    kill,
    names,
)
from actors.nodes import Nodes
from actors.replicator import ReplicatorActor
from actors.start_timeout import StartTimeout
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime.tasks import keep_running
from mirrord.supervision.fleet.engine import ReplicatorDead, ReplicatorUnsure

WATCH_PAUSE_S = 0.2

Calls = TypeVar("Calls", bound=ActorCalls)


class RayEngine:
    """Starts replicators and group followers on the Ray cluster to which this process is connected."""

    hosts_all = False

    def __init__(self, instance: str, log_directory: str) -> None:
        self._instance = instance
        self._log_directory = log_directory
        self._orders = uuid.uuid4().hex
        """Identifies this process. The value is sent with each order, so that an actor can refuse orders from other
        processes."""
        self._running: dict[str, ActorCalls] = {}
        self._watches: set[asyncio.Task[None]] = set()
        self._nodes = Nodes()
        self._start_timeout = StartTimeout()

    @property
    def cores(self) -> int:
        """Return the number of cores in the whole Ray cluster."""
        return max(1, sum(self._nodes.cores.values()))

    @property
    def nodes(self) -> Mapping[str, int]:
        """Return the number of cores of each live node, by node id. Nodes without cores are omitted."""
        return self._nodes.cores

    async def follow_nodes(self) -> None:
        """Track the nodes that join or leave the Ray cluster, until cancelled."""
        await self._nodes.follow()

    async def end_others(self, flows: Collection[str]) -> None:
        """End this daemon's actors that do not belong to any of these flows. No supervisor controls those actors, so
        they would otherwise keep running."""
        kept = (options.supervisor_name(self._instance), *(f"{self._instance}/{flow}/" for flow in flows))
        for name in await self.found(f"{self._instance}/"):
            if not name.startswith(kept):
                await self.end(name)

    async def found(self, prefix: str) -> list[str]:
        """Return the names of the live actors whose names begin with `prefix`. Actors that this process has started or
        attached to are omitted."""
        return sorted(name for name in await names() if name.startswith(prefix) and name not in self._running)

    def running(self, prefix: str) -> list[ReplicatorCalls]:
        """Return the replicators that this process controls and whose names begin with `prefix`."""
        known = (calls for name, calls in self._running.items() if name.startswith(prefix))
        return [calls for calls in known if isinstance(calls, ReplicatorCalls)]

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorCalls:
        """Attach to the running replicator with this name. Raises ReplicatorDead if there is none."""
        return await self._attach(ReplicatorCalls, name, on_death)

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupCalls:
        """Attach to the running group follower with this name. Raises ReplicatorDead if there is none."""
        return await self._attach(GroupCalls, name, on_death)

    async def end(self, name: str) -> None:
        """End the actor with this name, if there is one. Raises ReplicatorUnsure if the actor may still be alive."""
        actor = await find(name)
        if actor is None:
            return
        await kill(actor)
        deadline = asyncio.get_running_loop().time() + END_S
        while name in await names():
            if asyncio.get_running_loop().time() > deadline:
                raise ReplicatorUnsure(f"Ray has not confirmed the end of {name} within {END_S:g} s")
            await asyncio.sleep(WATCH_PAUSE_S)

    async def start(self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = "") -> ReplicatorCalls:
        """Start a replicator. Raises EnvironmentFault if it does not start."""
        return await self._start((ReplicatorActor, options.REPLICATOR, ReplicatorCalls), name, setup, on_death, node)

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupCalls:
        """Start a group follower. Raises EnvironmentFault if it does not start."""
        return await self._start((GroupsActor, options.GROUPS, GroupCalls), name, setup, on_death)

    async def _start(
        self,
        kind: tuple[type, Mapping[str, Any], type[Calls]],
        name: str,
        setup: FlowSetup,
        on_death: Callable[[], None],
        node: str = "",
    ) -> Calls:
        made, made_by, calls_of = kind
        arguments = (name, msgspec.msgpack.encode(setup), self._log_directory, self._orders)
        actor = await create(made, made_by, name, *arguments, node=node)
        ended = asyncio.Event()
        calls = calls_of(name, actor, ended, self._orders)
        timeout_s, began = self._start_timeout.seconds, time.monotonic()
        try:
            await call(actor.open.remote(), timeout_s)
        except ReplicatorDead as fault:
            raise EnvironmentFault(f"{name} ended while it started: {fault}") from fault
        except BaseException as fault:
            await kill(actor)
            if isinstance(fault, ReplicatorUnsure) and isinstance(fault.__cause__, TimeoutError):
                self._start_timeout.expired(timeout_s)
            if isinstance(fault, ReplicatorUnsure):
                raise EnvironmentFault(f"{name} does not start: {fault}") from fault
            raise
        self._start_timeout.finished(time.monotonic() - began)
        self._keep_watch(calls, actor, ended, on_death)
        return calls

    async def _attach(self, calls_of: type[Calls], name: str, on_death: Callable[[], None]) -> Calls:
        actor = await find(name)
        if actor is None:
            raise ReplicatorDead(f"there is no {name}")
        ended = asyncio.Event()
        calls = calls_of(name, actor, ended, self._orders)
        self._keep_watch(calls, actor, ended, on_death)
        return calls

    def _keep_watch(self, calls: ActorCalls, actor: Any, ended: asyncio.Event, on_death: Callable[[], None]) -> None:
        self._running[calls.name] = calls
        work = partial(self._watch, calls, actor, ended, on_death)
        watch = asyncio.create_task(keep_running(work, "actor_watch_failed", actor=calls.name))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)

    async def close(self) -> None:
        """End all actors that this process still controls."""
        await asyncio.gather(*(calls.kill() for calls in list(self._running.values())), return_exceptions=True)
        for watch in self._watches:
            watch.cancel()

    async def _watch(self, calls: ActorCalls, actor: Any, ended: asyncio.Event, on_death: Callable[[], None]) -> None:
        """Wait until the actor's process exits, and then call `on_death`, unless this process has asked the actor to
        end.

        Return early, without calling `on_death`, if another supervisor process is now watching the actor, or if Ray has
        lost the actor's node.
        """
        while True:
            try:
                await actor.watch.remote(self._orders)
                # Another process of this daemon is now watching the actor.
                self._running.pop(calls.name, None)
                return
            except ActorDiedError as error:
                if died_with_its_node(error):
                    self._running.pop(calls.name, None)
                    return  # nothing to report: every other call to the actor also fails with this error
                break
            except RayError:
                # It may be that only the connection to the actor has been lost, so the call is retried.
                await asyncio.sleep(WATCH_PAUSE_S)
        ended.set()
        self._running.pop(calls.name, None)
        if not calls.ending:
            on_death()
