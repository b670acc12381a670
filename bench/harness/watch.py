"""Observes the replicators of a daemon from outside: which processes there are, and what they use."""

import threading
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil

from bench.harness.daemon import Daemon

_LOOK_S = 0.25


@dataclass
class _Seen:
    """A process: its CPU-seconds, and its largest memory."""

    cpu_s: float = 0.0
    rss_bytes: int = 0


class ReplicatorWatch:
    """Samples several times a second, in a thread, until the block ends. A killed process counts with its last
    values."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._seen: dict[int, _Seen] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="replicator-watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._thread.join()

    @property
    def processes(self) -> int:
        """Number of processes."""
        return len(self._seen)

    @property
    def cpu_seconds(self) -> float:
        """CPU-seconds used by all of them since each was started."""
        return sum(seen.cpu_s for seen in self._seen.values())

    @property
    def rss_bytes(self) -> int:
        """Largest resident memory of one of them."""
        return max((seen.rss_bytes for seen in self._seen.values()), default=0)

    def _look(self) -> None:
        while not self._end.wait(_LOOK_S):
            flow = self._daemon.flow()
            pids = {replicator.pid for replicator in flow.replicators} if flow else set[int]()
            for pid in pids | set(self._seen):
                self._note(pid)

    def _note(self, pid: int) -> None:
        try:
            process = psutil.Process(pid)
            with process.oneshot():
                times, memory = process.cpu_times(), process.memory_info()
        except psutil.Error:
            return
        seen = self._seen.setdefault(pid, _Seen())
        seen.cpu_s = max(seen.cpu_s, times.user + times.system)
        seen.rss_bytes = max(seen.rss_bytes, memory.rss)
