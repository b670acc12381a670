"""Who holds a lease: this process as a `Holder`, and whether another holder on this machine is known to be dead."""

import os
import socket
from pathlib import Path

import psutil

from mirrord.model.facts import Holder

START_FIELD = 22
"""Of /proc/<pid>/stat (proc(5)): the time the process started after boot, in clock ticks."""


def this_process(instance: str, http: str, *, hosts_all: bool = False) -> Holder:
    """This process, under an instance name and reachable at an HTTP address; whether it hosts all its replicators."""
    pid = os.getpid()
    return Holder(socket.gethostname(), pid, instance, http, _boot_id(), _started_ticks(pid), hosts_all)


def is_dead(holder: Holder) -> bool:
    """Whether the holder was a process of this machine that exists no longer. False whenever that is not sure."""
    if not holder.boot_id or (holder.host, holder.boot_id) != (socket.gethostname(), _boot_id()):
        return False
    try:
        if psutil.Process(holder.pid).status() == psutil.STATUS_ZOMBIE:
            return True
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
    started = _started_ticks(holder.pid)
    return bool(started and holder.started_ticks and started != holder.started_ticks)


def _boot_id() -> str:
    """Of the running kernel, and of the pid namespace: containers with one kernel do not see each other's processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started_ticks(pid: int) -> int:
    """0 when it cannot be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The second field is the program's name, in parentheses and with anything in it.
        return int(stat.rpartition(")")[2].split()[START_FIELD - 3])
    except (OSError, ValueError, IndexError):
        return 0
