"""One process of a lab cluster: a broker, a controller, or both in one process."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.leash import leashed

_STOP_SECONDS = 30
_TAIL_BYTES = 16_384

# A node that is not detached exits when the thread that started its process ends (see `leashed`). The thread in this
# pool runs until the interpreter exits.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-starter")


class Node:
    """A Kafka process that can be killed, paused and started again. A node's folder and ports never change.

    A detached node outlives the process that starts it. Any other node exits when that process exits, for whatever
    reason.
    """

    def __init__(
        self,
        node_id: int,
        folder: Path,
        command: list[str],
        *,
        detached: bool,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`environment` contains additional environment variables of the process."""
        self.node_id = node_id
        self.folder = folder
        self._detached = detached
        self._environment = environment or {}
        self.run(command)
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, command: list[str]) -> None:
        """Set the command that starts the node's process. A process that is already running is not affected."""
        self._command = command if self._detached else leashed(command)

    @property
    def log(self) -> Path:
        return self.folder / "kafka.log"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Return the id of the running process. Raises RuntimeError if the node is not running."""
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"node {self.node_id} is not running")
        return self._process.pid

    def listens_on(self, ports: Collection[int]) -> bool:
        """Return whether this node's process is listening on all of these ports. Listeners of other processes are
        ignored."""
        if not self.running:
            return False
        try:
            connections = psutil.Process(self.pid).net_connections("tcp")
        except psutil.Error:
            return False
        return set(ports) <= {found.laddr.port for found in connections if found.status == psutil.CONN_LISTEN}

    def start(self) -> None:
        if self.running:
            raise RuntimeError(f"node {self.node_id} is already running")
        self._process = _starter.submit(self._spawn).result()

    def kill(self) -> None:
        """Send SIGKILL and wait until the process has exited. The node's ports are then free again."""
        self._end(lambda process: process.kill())

    def stop(self) -> None:
        """Send SIGTERM, as an operator does to stop a broker. Send SIGKILL if the process has not exited after 30 s."""
        if self.running:
            self.resume()
        self._end(lambda process: process.terminate())

    def pause(self) -> None:
        """Send SIGSTOP. The node hangs, but its connections stay open. Return when all of its threads have stopped
        running.

        Threads on other cores receive the signal only when they next enter the kernel. Without this wait, a broker
        could still answer a request that is sent right after the signal.
        """
        os.kill(self.pid, signal.SIGSTOP)
        deadline = time.monotonic() + _STOP_SECONDS
        while self._running_threads():
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"node {self.node_id} did not stop within {_STOP_SECONDS:g} s of a SIGSTOP")

    def _running_threads(self) -> bool:
        """Return whether any thread of the process is still running, according to /proc. Return False if /proc does not
        exist."""
        for stat in Path(f"/proc/{self.pid}/task").glob("*/stat"):
            try:
                state = stat.read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                continue  # the thread has ended
            if state not in "TtZX":
                return True
        return False

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self, lines: int = 20) -> str:
        """Return the last lines of the node's log. After a restart, the node appends to the same log."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            # The process gets a new session, so that Ctrl-C in the terminal stops this process but not the brokers.
            return subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self._environment},
            )

    def _end(self, send: Callable[[subprocess.Popen[bytes]], None]) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        send(process)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
