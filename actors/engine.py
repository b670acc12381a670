"""Replicators and followers of groups as Ray actors: the `mirrord.shell.engine.Engine` of a daemon on Ray."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec
import ray
from ray.exceptions import ActorDiedError, RayError

from actors import options
from actors.groups import GroupsActor
from actors.handles import ActorCalls, GroupCalls, ReplicatorCalls, call, create, find, kill, names
from actors.replicator import ReplicatorActor
from mirrord.model.assignment import FlowSetup
from mirrord.model.errors import EnvironmentFault
from mirrord.shell.engine import ReplicatorDead, ReplicatorUnsure

START_S = 30.0
"""An actor's process starts within a second or two; on a machine that is busy it may take much longer."""
WATCH_PAUSE_S = 0.2

Calls = TypeVar("Calls", bound=ActorCalls)


class RayEngine:
    """Starts replicators on the Ray that this process is connected to."""

    hosts_all = False

    def __init__(self, instance: str, log_directory: str) -> None:
        self._instance = instance
        self._log_directory = log_directory
        self._running: dict[str, ActorCalls] = {}
        self._watches: set[asyncio.Task[None]] = set()
        resources = cast(dict[str, float], ray.cluster_resources())
        self._cores = max(1, int(resources.get("CPU", 1)))

    @property
    def cores(self) -> int:
        """The cores of the whole Ray cluster."""
        return self._cores

    async def end_leftovers(self) -> None:
        """End the actors of an earlier supervisor of this instance; the ledger knows where they were."""
        for name in await names():
            if name.startswith(f"{self._instance}/") and name != options.supervisor_name(self._instance):
                actor = await find(name)
                if actor is not None:
                    await kill(actor)

    async def start(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> ReplicatorCalls:
        """Start a replicator. Raises EnvironmentFault when it does not start."""
        return await self._start((ReplicatorActor, options.REPLICATOR, ReplicatorCalls), name, setup, on_death)

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupCalls:
        """Start a follower of groups. Raises EnvironmentFault when it does not start."""
        return await self._start((GroupsActor, options.GROUPS, GroupCalls), name, setup, on_death)

    async def _start(
        self,
        kind: tuple[type, Mapping[str, Any], type[Calls]],
        name: str,
        setup: FlowSetup,
        on_death: Callable[[], None],
    ) -> Calls:
        made, made_by, calls_of = kind
        actor = await create(made, made_by, name, name, msgspec.msgpack.encode(setup), self._log_directory)
        ended = asyncio.Event()
        calls = calls_of(name, actor, ended)
        try:
            await call(actor.open.remote(), START_S)
        except ReplicatorDead as fault:
            raise EnvironmentFault(f"{name} ended while it started: {fault}") from fault
        except BaseException as fault:
            await kill(actor)
            if isinstance(fault, ReplicatorUnsure):
                raise EnvironmentFault(f"{name} does not start: {fault}") from fault
            raise
        self._running[name] = calls
        watch = asyncio.create_task(self._watch(calls, actor, ended, on_death))
        self._watches.add(watch)
        watch.add_done_callback(self._watches.discard)
        return calls

    async def close(self) -> None:
        """End everything that still runs."""
        await asyncio.gather(*(calls.kill() for calls in list(self._running.values())), return_exceptions=True)
        for watch in self._watches:
            watch.cancel()

    async def _watch(self, calls: ActorCalls, actor: Any, ended: asyncio.Event, on_death: Callable[[], None]) -> None:
        """Tell the end of the actor's process as soon as Ray knows it."""
        while True:
            try:
                await actor.watch.remote()
            except ActorDiedError:
                break
            except RayError:
                # Perhaps only the connection is gone.
                await asyncio.sleep(WATCH_PAUSE_S)
        ended.set()
        self._running.pop(calls.name, None)
        if not calls.ending:
            on_death()
