"""What a daemon and its child processes use: memory, open files, threads and CPU, by kind of process."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

KINDS = ("ReplicatorActor", "SupervisorActor", "GroupsActor", "gcs_server", "raylet", "log_monitor", "agent")


class Vitals(msgspec.Struct, frozen=True, array_like=True):
    """What the processes of one kind use at one moment. Memory, files and threads are those of the largest one."""

    minute: float
    resident_bytes: float
    files: float
    threads: float
    cpu: float
    """CPU-seconds per second of all processes of this kind since the previous sample."""


class _Seen(NamedTuple):
    kind: str
    cpu_s: float


class VitalsSampler:
    """Takes samples of a daemon, which may start and end child processes at any time."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._began = self._last = time.monotonic()
        self._seen: dict[tuple[int, float], _Seen] = {}
        self.series: dict[str, list[Vitals]] = {}

    def sample(self) -> None:
        """Add one sample of each kind of process. Raises psutil.Error if the daemon has ended."""
        now = time.monotonic()
        seen: dict[tuple[int, float], _Seen] = {}
        used: dict[str, float] = {}
        largest: dict[str, list[int]] = {}
        for process in (self._root, *self._root.children(recursive=True)):
            try:
                with process.oneshot():
                    key = process.pid, process.create_time()
                    times = process.cpu_times()
                    found = _Seen(kind_of(process, self._root), times.user + times.system)
                    sizes = [process.memory_info().rss, process.num_fds(), process.num_threads()]
            except psutil.Error:
                if process is self._root:
                    raise
                continue
            seen[key] = found
            used[found.kind] = used.get(found.kind, 0.0) + found.cpu_s - self._seen.get(key, _Seen("", 0.0)).cpu_s
            known = largest.setdefault(found.kind, [0, 0, 0])
            largest[found.kind] = [max(each) for each in zip(known, sizes, strict=True)]
        elapsed = max(now - self._last, 1e-9)
        for kind, (resident, files, threads) in largest.items():
            vitals = Vitals((now - self._began) / 60, resident, files, threads, used[kind] / elapsed)
            self.series.setdefault(kind, []).append(vitals)
        self._seen, self._last = seen, now


def kind_of(process: psutil.Process, root: psutil.Process) -> str:
    """Return a name for the kind of a process. Raises psutil.Error."""
    if process.pid == root.pid:
        return "mirrord start"
    words: Sequence[str] = process.cmdline() or [process.name()]
    line = " ".join(words)
    if "dashboard.py" in line:
        return "dashboard"
    for name in KINDS:
        if name.lower() in line.lower().replace("ray/dashboard/agent.py", "agent"):
            return name
    return "ray::IDLE" if "ray::" in line or "default_worker" in line else Path(words[0]).name
