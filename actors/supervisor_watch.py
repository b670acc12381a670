"""The part of a Ray-based daemon that runs in the foreground process. It starts, watches and stops the supervisor
actor."""

import asyncio
import uuid
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from actors import options
from actors.handles import CALL_S, call, create, kill, names
from actors.nodes import this_node
from actors.ray_connection import RayConnection
from actors.supervisor import SupervisorActor
from mirrord.config.changes import ConfigChanges
from mirrord.config.own_file import OwnFile
from mirrord.config.schema import Config
from mirrord.daemon.daemon import CLOSE_S, STOP_S
from mirrord.ledger.store.process_identity import new_identity
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import Status
from mirrord.runtime.logs import default_directory
from mirrord.supervision.fleet.engine import ReplicatorDead, ReplicatorUnsure
from mirrord.supervision.upgrade.protocol import Predecessor, Successor

START_S = 60.0
APPLY_S = 30.0
POLL_S = 0.2
SWEEP_S = 60.0
"""Interval, in seconds, at which old log files are removed from the folder of a Ray cluster that this process
started."""
LOOK_S = 2.0
SILENT_S = 30.0
"""`LOOK_S` is the interval between checks of the supervisor's event loop. `SILENT_S` is how long the loop may be
unresponsive before the supervisor process is killed. Both are in seconds."""

log = structlog.get_logger()


class RayDaemon:
    """Starts, watches and stops the supervisor actor of one daemon."""

    def __init__(self, config: Config, log_directory: str, own_file: OwnFile) -> None:
        self._config = config
        self._own_file = own_file
        self._log_directory = log_directory
        self._ray = RayConnection(config.ray)
        self._actor: Any = None
        self.replaced_by: Successor | None = None
        """The daemon that has taken over all flows of this daemon, or None if there is none."""
        self._stop_before = float("inf")
        self._looked = self._heard = float("inf")
        self._unsure = ""
        """Why the last attempt to get the supervisor's address failed."""

    @property
    def dashboard(self) -> str:
        """Return the address of Ray's dashboard, or an empty string if there is none."""
        return self._ray.dashboard

    @property
    def dashboard_token_file(self) -> str:
        """Return the file with the token of Ray's dashboard, or an empty string if mirrord did not start Ray."""
        return self._ray.token_file

    async def start(self, predecessor: Predecessor | None = None) -> str:
        """Connect to Ray, start the supervisor, and return the address of its HTTP API. Raises EnvironmentFault if the
        supervisor does not start.

        If the predecessor's supervisor runs on the same Ray cluster, both supervisors run there until the predecessor
        has stopped.
        """
        self._ray.connect()  # must run on the main thread (see `connect`); no other task is running yet
        name = options.supervisor_name(self._config.instance)
        others = any(each.startswith(name) for each in await names())
        if others and predecessor is not None:
            name = f"{name}.{uuid.uuid4().hex[:8]}"
        elif others:
            self._ray.close()
            raise EnvironmentFault(
                f'a daemon of the instance "{self._config.instance}" is already running on this Ray cluster: '
                "`mirrord stop` ends it, and a different instance name lets two daemons run side by side"
            )
        try:
            daemon = predecessor.daemon if predecessor else ""
            identity = new_identity(kept_here=self._config.ray.address == "local", goes_on_as=daemon)
            replaced = msgspec.msgpack.encode(predecessor) if predecessor else b""
            config, who = msgspec.msgpack.encode(self._config), msgspec.msgpack.encode(identity)
            own_file, state_home = msgspec.msgpack.encode(self._own_file), str(default_directory().parent)
            arguments = (name, config, self._log_directory, who, replaced, own_file, state_home)
            # The supervisor runs on this node, because operators look for the HTTP API where they started the daemon.
            node = this_node()
            self._actor = await create(SupervisorActor, options.SUPERVISOR, name, *arguments, node=node)
            async with asyncio.timeout(START_S):
                return await self._address()
        except TimeoutError:
            await self._end()
            why = f": {self._unsure}" if self._unsure else ""
            raise EnvironmentFault(f"the supervisor did not start within {START_S:g} s{why}") from None
        except BaseException:
            await self._end()
            raise

    async def status(self) -> Status | None:
        """Return the supervisor's current status, or None if the supervisor does not answer."""
        try:
            return Status.decode(await call(self._actor.status.remote(), CALL_S))
        except (ReplicatorDead, ReplicatorUnsure):
            return None

    async def reload(self) -> ConfigChanges:
        """Make the supervisor read the configuration file again, and return the changes. Raises EnvironmentFault if the
        supervisor does not answer."""
        answer = await call(self._actor.reload.remote(), APPLY_S)
        return msgspec.msgpack.decode(answer, type=ConfigChanges)

    async def stop(self) -> None:
        """Ask the supervisor to begin draining all flows."""
        self._stop_before = asyncio.get_running_loop().time() + STOP_S + CLOSE_S
        try:
            await call(self._actor.stop.remote(), CALL_S)
        except (ReplicatorDead, ReplicatorUnsure):
            return  # another signal repeats the request, and `wait` detects the end of the supervisor

    async def wait(self) -> None:
        """Wait until the supervisor has drained all flows, then stop it and disconnect from Ray. If `stop` has been
        called, wait at most `STOP_S` + `CLOSE_S` seconds after that call. Raises EnvironmentFault if the supervisor
        dies before it has drained the flows.
        """
        self._looked = self._heard = asyncio.get_running_loop().time()
        swept = 0.0
        try:
            while True:
                if await self._stopped():
                    await self._learn_successor()
                    return
                if asyncio.get_running_loop().time() > self._stop_before:
                    return
                await self._check_loop()
                if self._looked - swept > SWEEP_S:
                    swept = self._looked
                    await asyncio.to_thread(self._ray.sweep)
                await asyncio.sleep(POLL_S)
        finally:
            await self._end()

    async def _check_loop(self) -> None:
        """Kill the supervisor process if it does not respond, either because its event loop hangs or because a signal
        (SIGSTOP) has suspended it. Ray then restarts the supervisor. In the meantime, the replicators continue to
        copy.

        Raises EnvironmentFault if a Ray process that cannot be replaced has ended. In that case, the daemon must be
        started again.
        """
        now = asyncio.get_running_loop().time()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        if ended := self._ray.ended_process():
            raise EnvironmentFault(f"the process {ended} of Ray has ended, and no actor can run without it")
        try:
            if await call(self._actor.loop_age_s.remote(), CALL_S) < SILENT_S:
                self._heard = now
        except (ReplicatorDead, ReplicatorUnsure):
            pass  # `_stopped` detects the end of the supervisor; a restarted supervisor answers soon
        if now - self._heard > SILENT_S:
            log.error("supervisor_silent", silent_s=round(now - self._heard, 1))
            self._heard = now
            await kill(self._actor, restart=True)

    async def _stopped(self) -> bool:
        try:
            return await call(self._actor.stopped.remote(), CALL_S)
        except ReplicatorUnsure:
            return False
        except ReplicatorDead as fault:
            raise EnvironmentFault(f"the supervisor has ended: {fault}") from fault

    async def _learn_successor(self) -> None:
        with suppress(ReplicatorDead, ReplicatorUnsure):
            answer = await call(self._actor.replaced_by.remote(), CALL_S)
            self.replaced_by = msgspec.msgpack.decode(answer, type=Successor) if answer else None

    async def _address(self) -> str:
        while True:
            try:
                if address := await call(self._actor.address.remote(), CALL_S):
                    return address
            except ReplicatorUnsure as fault:
                self._unsure = str(fault)  # the supervisor is still starting, or is trying again to start
            except ReplicatorDead as fault:
                raise EnvironmentFault(f"the supervisor does not start: {fault}") from fault
            await asyncio.sleep(POLL_S)

    async def _end(self) -> None:
        if self._actor is not None:
            await kill(self._actor)
        self._ray.close()
