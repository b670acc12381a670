"""The Ray that a daemon runs on: one of its own on this machine, or a cluster that is there already.

Whoever reaches Ray's ports needs its token, which a Ray of our own makes unless RAY_AUTH_MODE says otherwise
(`ray get-auth-token` shows it). A Ray of our own ends with this process, in whatever way it ends: the kernel ends Ray's
processes with the thread that started them (PR_SET_PDEATHSIG, ray._private.services), so `connect` belongs on the main
thread. What lingers is ended by `janitor.py`.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ray
from ray._private import worker

from actors import janitor
from actors.options import NAMESPACE
from actors.ray_logs import sweep
from mirrord.config.schema import RayConfig
from mirrord.model.errors import EnvironmentFault

OBJECT_STORE_BYTES = 80 << 20
"""Ray's least; records never pass through it."""
LOG_BYTES = 16 << 20
"""At which Ray rotates the logs of its own processes; five are kept."""
DEAD_ACTORS = 200
"""That Ray remembers, for its dashboard; of its own it remembers 100,000 (ray_config_def.h)."""
TASKS = 1_000
"""The same for calls; of its own it remembers 100,000."""
HEAD_LOST_S = 10
"""After which the processes of a Ray of our own give up when its head has died; Ray's own is 60."""
TRIES = 3
SHORT_FOLDER = Path("/tmp")  # noqa: S108 - beside it the name of a Unix socket must fit into 107 characters
"""Ray puts its sockets about 60 characters below its folder (AF_UNIX, unix(7))."""

PRINTS = "_worker_logs_enabled"
"""Ray's private switch, which only its debugger turns; a test looks whether it is there."""

_ray: Any = ray


class RayConnection:
    """This process as a Ray driver."""

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._folder: Path | None = None
        self._janitor: subprocess.Popen[bytes] | None = None
        self.dashboard = ""
        """The address of Ray's dashboard, or empty."""

    def connect(self) -> None:
        """Start or join a Ray. Waits, for some seconds. Raises EnvironmentFault."""
        _quiet_ray()
        context = self._start() if self._config.address == "local" else self._join()
        url = context.dashboard_url
        self.dashboard = f"http://{url}" if url else ""

    def close(self) -> None:
        """Leave; a Ray of our own ends.

        The janitor is not told: it begins when this process has ended. Ray's files stay open here until then, and who
        has them open is what the janitor ends, also a process that is merely slow to leave.
        """
        _ray.shutdown()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def sweep(self) -> None:
        """Remove what Ray's workers of long ago have left; only where Ray is our own."""
        if self._folder is not None:
            sweep(self._folder)

    def _join(self) -> Any:
        try:
            return _ray.init(address=self._config.address, namespace=NAMESPACE, **_DRIVER)
        # Ray's own errors have no common base here: ConnectionError, ValueError, RuntimeError.
        except Exception as error:
            raise EnvironmentFault(f"ray.address: no Ray cluster at {self._config.address}: {_line(error)}") from error

    def _start(self) -> Any:
        # What Ray starts must find this program, also when it runs from a checkout.
        home = str(Path(__file__).parents[1])
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([home, *filter(None, paths)]))
        os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(HEAD_LOST_S))
        for attempt in range(1, TRIES + 1):
            self._folder = Path(tempfile.mkdtemp(prefix="mirrord-ray-", dir=SHORT_FOLDER))
            command = [sys.executable, "-I", "-S", janitor.__file__, str(self._folder)]
            self._janitor = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
            try:
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
                if self._janitor.stdin is not None:
                    # Python closes its own while it leaves, which may take longer than the janitor's grace.
                    os.dup(self._janitor.stdin.fileno())
                return context
            # "The current node timed out during startup": on a busy machine Ray gives up on its own agents after 15 s.
            except Exception as error:
                self.close()
                if self._janitor.stdin is not None:
                    self._janitor.stdin.close()
                if attempt == TRIES:
                    raise EnvironmentFault(f"Ray does not start on this machine: {_line(error)}") from error
        raise AssertionError


_DRIVER: dict[str, Any] = {
    # Each process writes its own rotated log.
    "log_to_driver": False,
    "configure_logging": False,
}


def _quiet_ray() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ.setdefault("RAY_ROTATION_MAX_BYTES", str(LOG_BYTES))
    os.environ.setdefault("RAY_maximum_gcs_destroyed_actor_cached_count", str(DEAD_ACTORS))
    os.environ.setdefault("RAY_task_events_max_num_task_in_gcs", str(TASKS))
    logging.getLogger("ray").setLevel(logging.ERROR)
    # Ray prints a page on stdout when a worker is killed; the supervisor tells it in a line, in its log.
    setattr(worker, PRINTS, False)


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
