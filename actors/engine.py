"""Replicators as Ray actors: the `mirrord.shell.engine.Engine` of a daemon on Ray."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec
import ray
from ray.exceptions import ActorDiedError, RayError

from actors import options
from actors.handles import ReplicatorCalls, call, create, find, kill, names
from actors.replicator import ReplicatorActor
from mirrord.model.assignment import FlowSetup
from mirrord.model.errors import EnvironmentFault
from mirrord.shell.engine import ReplicatorDead, ReplicatorUnsure

START_S = 30.0
"""An actor's process starts within a second or two; on a machine that is busy it may take much longer."""
WATCH_PAUSE_S = 0.2


class RayEngine:
    """Starts replicators on the Ray that this process is connected to."""

    hosts_all = False

    def __init__(self, instance: str, log_directory: str) -> None:
        self._instance = instance
        self._log_directory = log_directory
        self._running: dict[str, ReplicatorCalls] = {}
        self._watches: set[asyncio.Task[None]] = set()
        resources = cast(dict[str, float], ray.cluster_resources())
        self._cores = max(1, int(resources.get("CPU", 1)))

    @property
    def cores(self) -> int:
        """The cores of the whole Ray cluster."""
        return self._cores

    async def end_leftovers(self) -> None:
        """End the replicators of an earlier supervisor of this instance; the ledger knows where they were."""
        for name in await names():
            if name.startswith(f"{self._instance}/") and name != options.supervisor_name(self._instance):
                actor = await find(name)
                if actor is not None:
                    await kill(actor)

    async def start(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> ReplicatorCalls:
        """Start a replicator. Raises EnvironmentFault when it does not start."""
        encoded = msgspec.msgpack.encode(setup)
        actor = await create(ReplicatorActor, options.REPLICATOR, name, name, encoded, self._log_directory)
        ended = asyncio.Event()
        calls = ReplicatorCalls(name, actor, ended)
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
        """End every replicator that still runs."""
        await asyncio.gather(*(calls.kill() for calls in list(self._running.values())), return_exceptions=True)
        for watch in self._watches:
            watch.cancel()

    async def _watch(
        self, calls: ReplicatorCalls, actor: Any, ended: asyncio.Event, on_death: Callable[[], None]
    ) -> None:
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
