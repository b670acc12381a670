"""The Ray cluster that a daemon runs on: one that it starts on this machine, or an existing one.

`ray_access.py` determines who can reach a cluster that mirrord starts. Such a cluster ends when this process ends for
any reason. The kernel kills Ray's processes when the thread that started them ends (PR_SET_PDEATHSIG,
ray._private.services). Therefore, `connect` must be called on the main thread. `janitor.py` ends the processes that
remain.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import ray
import structlog
from ray._private import worker

from actors import janitor
from actors.options import NAMESPACE
from actors.ray_access import check_token_mode, has_token_mode, private_cluster
from actors.ray_logs import sweep
from mirrord.config.schema import RayConfig
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.runtime.process_hardening import bare_environment

OBJECT_STORE_BYTES = 80 << 20
"""The smallest size of the object store that Ray accepts. Records never pass through the object store."""
LOG_BYTES = 16 << 20
"""Size in bytes at which Ray rotates a log file of one of its processes. Ray keeps five rotated files of each log."""
DEAD_ACTORS = 200
"""Number of dead actors that Ray remembers for its dashboard. Ray's default is 100,000 (ray_config_def.h)."""
TASKS = 1_000
"""Number of actor calls that Ray remembers for its dashboard. Ray's default is 100,000."""
HEAD_LOST_S = 10
"""If the head of a Ray cluster that mirrord started dies, the cluster's other processes end after this many seconds.
Ray's default is 60 s."""
WORKER_NICENESS = 0
"""Niceness of actors' processes. Ray's default is 15 (ray_config_def.h), which suits batch work. On a busy machine,
that default starves actors: a supervisor does not start, and replicators lose their leases.
"""
METRICS = 0
"""Whether Ray collects metrics. If it does and nothing reads them, the memory of Ray's agent grows by 0.1 MB per minute
(observed with Ray 2.60). Even if they are read, the agent and the supervisor grow with each replicator that dies. The
daemon's `/metrics` contains the same values. Ray's default is 1 (ray_config_def.h)."""
MALLOC_ARENAS = 2
"""Maximum number of heaps of a process (M_ARENA_MAX, mallopt(3)). Ray's processes have dozens of threads, and by
default the GNU C library gives them up to eight heaps per core, each with free memory that the others cannot use."""
TRIES = 3
SHORT_FOLDER = Path("/tmp")  # noqa: S108 - below it, the path of a Unix socket must fit in 107 characters
"""The parent of Ray's folder. The paths of Ray's sockets are about 60 characters longer than the path of that folder,
and the kernel limits their length (AF_UNIX, unix(7))."""

PRINTS = "_worker_logs_enabled"
"""Private attribute of Ray's worker module: whether the driver prints the workers' output. Apart from mirrord, only
Ray's debugger sets it. A test checks that the attribute exists."""

NODE = "_global_node"
"""Private attribute of Ray's worker module: the processes of the Ray cluster that this process has started. A test
checks that the attribute exists."""
NEEDED = frozenset({"gcs_server", "raylet"})
"""The processes of a Ray cluster that Ray never starts again."""

_ray: Any = ray

log = structlog.get_logger()


class RayConnection:
    """This process's connection, as a Ray driver, to the daemon's Ray cluster."""

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._folder: Path | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self._access = ExitStack()
        self.dashboard = ""
        """The address of Ray's dashboard, or an empty string if there is none."""
        self.token_file = ""
        """The file with the token that clients of Ray and of the dashboard need, or an empty string if mirrord did not
        start Ray."""

    def connect(self) -> None:
        """Start or join a Ray cluster. Blocks for several seconds. Raises EnvironmentFault if this fails, and
        ConfigError if the environment says that clients need no token."""
        _quiet_ray()
        context = self._start() if self._config.address == "local" else self._join()
        url = context.dashboard_url
        self.dashboard = f"http://{url}" if url else ""

    def close(self) -> None:
        """Disconnect from Ray, and stop Ray if mirrord started it.

        The janitor is not notified, because it must not begin to clean up until this process has ended. Until then,
        this process has some of Ray's files open, and the janitor kills every process that has such files open, even
        one that is merely slow to exit.
        """
        _ray.shutdown()
        self._access.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def ended_process(self) -> str:
        """Return the name of a process of the Ray cluster that has ended and without which no actor can run. Return an
        empty string if there is none, or if mirrord did not start Ray."""
        node: Any = getattr(worker, NODE, None) if self._folder is not None else None
        return next((name for name, _ in node.dead_processes() if name in NEEDED), "") if node is not None else ""

    def sweep(self) -> None:
        """Remove the old log files of Ray workers that have exited. Do nothing if mirrord did not start Ray."""
        if self._folder is not None:
            sweep(self._folder)

    def _join(self) -> Any:
        try:
            context = _ray.init(address=self._config.address, namespace=NAMESPACE, **_DRIVER)
        # The errors that Ray raises here have no common base class: ConnectionError, ValueError, RuntimeError.
        except Exception as error:
            raise EnvironmentFault(f"ray.address: no Ray cluster at {self._config.address}: {_line(error)}") from error
        if not has_token_mode():
            what = "requires no token, so each client that reaches its ports can run code and read mirrord's settings"
            log.warning("ray_without_token", address=self._config.address, note=what)
        return context

    def _start(self) -> Any:
        # Processes that Ray starts must be able to import mirrord's code, even if this program runs from a checkout.
        home = str(Path(__file__).parents[1])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([home, *filter(None, paths)]))
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEAD_LOST_S))
        os.environ.setdefault("RAY_worker_niceness", str(WORKER_NICENESS))
        os.environ.setdefault("RAY_enable_metrics_collection", str(METRICS))
        os.environ.setdefault("MALLOC_ARENA_MAX", str(MALLOC_ARENAS))
        for attempt in range(1, TRIES + 1):
            self._folder = Path(tempfile.mkdtemp(prefix="mirrord-ray-", dir=SHORT_FOLDER))
            command = [sys.executable, "-I", "-S", janitor.__file__, str(self._folder)]
            self._janitor = subprocess.Popen(
                command, stdin=subprocess.PIPE, start_new_session=True, env=bare_environment()
            )
            try:
                self.token_file = str(self._access.enter_context(private_cluster(self._folder)))
                context = _ray.init(
                    address="local",
                    namespace=NAMESPACE,
                    include_dashboard=self._config.dashboard,
                    dashboard_host="127.0.0.1",
                    dashboard_port=self._config.dashboard_port,
                    object_store_memory=OBJECT_STORE_BYTES,
                    _temp_dir=str(self._folder),
                    **_DRIVER,
                )
                check_token_mode()
                if self._janitor.stdin is not None:
                    # The duplicate keeps the pipe open until this process has ended. Python closes its own descriptor
                    # while it is exiting, and the rest of the exit may take longer than the janitor's grace period.
                    os.dup(self._janitor.stdin.fileno())
                return context
            # "The current node timed out during startup": on a busy machine, Ray gives up on its own agents after 15 s.
            except Exception as error:
                self.close()
                if self._janitor.stdin is not None:
                    self._janitor.stdin.close()
                if isinstance(error, MirrordError):
                    raise
                if attempt == TRIES:
                    raise EnvironmentFault(f"Ray does not start on this machine: {_line(error)}") from error
        raise AssertionError


_DRIVER: dict[str, Any] = {
    # Each mirrord process writes and rotates its own log file.
    "log_to_driver": False,
    "configure_logging": False,
}


def _quiet_ray() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ROTATION_MAX_BYTES", str(LOG_BYTES))
    os.environ.setdefault("RAY_maximum_gcs_destroyed_actor_cached_count", str(DEAD_ACTORS))
    os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", str(TASKS))
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Ray prints a page of text to stdout when a worker is killed; the supervisor writes one line to its log instead.
    setattr(worker, PRINTS, False)


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
