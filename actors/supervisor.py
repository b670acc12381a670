"""The supervisor as a Ray actor: a separate process that runs a daemon's flows and HTTP API.

If the process dies, Ray restarts the actor (`max_restarts`) and then calls only `__init__`. Therefore, `__init__`
starts all of the supervisor's tasks.
"""

import asyncio
import os
import time
from functools import partial

import msgspec
import structlog

from actors.config_store import forget_config, keep_config, kept_config
from actors.engine import RayEngine
from actors.handles import find, in_health_group, kill
from actors.ray_metrics import RayMetrics
from mirrord.config.own_file import OwnFile
from mirrord.config.schema import Config
from mirrord.daemon.daemon import Supervisor
from mirrord.daemon.own_file import OwnFileReader
from mirrord.ledger.store.process_identity import Identity
from mirrord.model.errors import EnvironmentFault
from mirrord.operations.start_refusals import check_restart
from mirrord.runtime import logs
from mirrord.runtime.build_info import program
from mirrord.runtime.descriptors import raise_descriptor_limit
from mirrord.runtime.tasks import BackgroundTasks
from mirrord.supervision.upgrade.protocol import Predecessor

BEAT_S = 0.1
PAUSE_S = 1.0
"""Pause, in seconds, between attempts to start. An attempt fails, for example, while the previous process is still
using the HTTP port."""

LINGER_S = 5.0

log = structlog.get_logger()


class SupervisorActor:
    """The Ray actor that runs `mirrord.daemon.daemon.Supervisor`. Arguments and results are plain values or are encoded
    as msgpack.
    """

    def __init__(
        self,
        name: str,
        config: bytes,
        log_directory: str,
        identity: bytes,
        predecessor: bytes,
        own_file: bytes,
        state_home: str,
    ) -> None:
        """`name` is the name of this actor. `config`, `identity` and `own_file` are the configuration and the
        `Identity` of this daemon, and the `OwnFile` that it was started with, encoded as msgpack. `predecessor` is the
        daemon that this one replaces, also as msgpack, or empty bytes if there is none. `state_home` is the user's
        state directory in the process that starts this daemon.
        """
        # On a cluster that mirrord joins, Ray's processes may have a different environment. The tokens for commands
        # from this machine must be where the commands look for them.
        os.environ["XDG_STATE_HOME"] = state_home
        raise_descriptor_limit()
        who = msgspec.msgpack.decode(identity, type=Identity)
        replaced = msgspec.msgpack.decode(predecessor, type=Predecessor) if predecessor else None
        self._name = name
        self._daemon = who.kept_as
        self._config = kept_config(self._daemon) or msgspec.msgpack.decode(config, type=Config)
        logs.set_up(log_directory, f"{self._config.instance}-supervisor", on_stderr=False)
        engine = RayEngine(self._config.instance, log_directory)
        keep = partial(keep_config, self._daemon)
        file = OwnFileReader(msgspec.msgpack.decode(own_file, type=OwnFile), check_restart)
        self._supervisor = Supervisor(
            self._config, engine, identity=who, keep=keep, predecessor=replaced, own_file=file
        )
        self._engine = engine
        self._fault = ""
        self._address = ""
        self._ended = False
        self._came_round = time.monotonic()
        # Tasks can be created here, because Ray runs the constructor of an async actor as a coroutine on the main event
        # loop.
        metrics = partial(RayMetrics().run, self._supervisor.status)
        self._tasks = BackgroundTasks("supervisor_task_failed", daemon=self._daemon)
        self._tasks.start(self._run())
        for work in (self._beat, self._yield, engine.follow_nodes, metrics):
            self._tasks.keep(work)

    def __repr__(self) -> str:
        return f"mirrord {program()} supervisor of {self._config.instance}"

    async def address(self) -> str:
        """Return the address of the HTTP API, or an empty string if the API is not open yet. Raises EnvironmentFault if
        the supervisor cannot start."""
        if self._fault:
            raise EnvironmentFault(self._fault)
        return self._address

    async def status(self) -> bytes:
        """Return the current status document in encoded form."""
        return self._supervisor.status().encode()

    async def reload(self) -> bytes:
        """Read the daemon's own configuration file again, and apply it. Return the changes, as `ConfigChanges` in
        msgpack.
        """
        return msgspec.msgpack.encode(await self._supervisor.reload(None, dry_run=False))

    async def stop(self) -> None:
        """Begin draining all flows."""
        await self._supervisor.stop()

    async def stopped(self) -> bool:
        """Return whether the supervisor has drained and stopped all flows."""
        return self._ended

    async def replaced_by(self) -> bytes:
        """Return the daemon that has taken over all flows of this one, as `Successor` in msgpack, or empty bytes if
        there is none."""
        by = self._supervisor.replaced_by
        return b"" if by is None else msgspec.msgpack.encode(by)

    @in_health_group
    async def loop_age_s(self) -> float:
        """Return the time in seconds since the main event loop last completed an iteration."""
        return time.monotonic() - self._came_round

    async def _run(self) -> None:
        try:
            await self._start()
            await self._supervisor.wait()
        except Exception as error:
            # Ray starts another process in place of this one.
            log.error("supervisor_failed", daemon=self._daemon, exc_info=error)
            os._exit(1)
        await forget_config(self._daemon)
        self._ended = True
        # Usually the foreground process ends this process. The actor must end itself if the foreground process has been
        # killed and the Ray cluster keeps running.
        await asyncio.sleep(LINGER_S)
        await kill(await find(self._name))

    async def _start(self) -> None:
        while not self._address:
            try:
                await self._engine.end_others([flow.name for flow in self._config.flows])
                self._address = await self._supervisor.start()
                self._fault = ""
            except EnvironmentFault as fault:
                log.error("daemon_not_started", reason=str(fault))
                self._fault = str(fault)
                await asyncio.sleep(PAUSE_S)

    async def _yield(self) -> None:
        """Exit when Ray has started another supervisor process in place of this one, and that process has taken over
        the flows."""
        await self._supervisor.superseded.wait()
        log.error("supervisor_superseded", daemon=self._daemon)
        os._exit(1)

    async def _beat(self) -> None:
        while True:
            self._came_round = time.monotonic()
            await asyncio.sleep(BEAT_S)
