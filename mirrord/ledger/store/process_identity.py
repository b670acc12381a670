"""Who holds a lease: this process as a `Holder`, and whether another holder on this machine is known to be dead."""

import os
import socket
import uuid
from pathlib import Path

import msgspec
import psutil

from mirrord.ledger.facts.core import Holder
from mirrord.ledger.facts.jobs import Worker
from mirrord.runtime.build_info import program

START_FIELD = 22
"""Of /proc/<pid>/stat (proc(5)): the time the process started after boot, in clock ticks."""


class Identity(msgspec.Struct, frozen=True):
    """A daemon, over all processes that are started one in the place of the other (`Holder.daemon`)."""

    daemon: str = ""
    keeper_pid: int = 0
    keeper_ticks: int = 0
    kept_as: str = ""
    """What its processes keep for those in their place stands under this name; no other daemon has it, not even the one
    that this one replaces."""


NOBODY = Identity()
"""A process in whose place nobody is started."""


def new_identity(*, kept_here: bool, goes_on_as: str = "") -> Identity:
    """Of a daemon whose processes are started again. `kept_here`: only as long as this process lives. `goes_on_as`:
    the daemon that this one replaces (`Identity.daemon`)."""
    own = uuid.uuid4().hex
    if not kept_here:
        return Identity(goes_on_as or own, kept_as=own)
    pid = os.getpid()
    return Identity(goes_on_as or own, pid, _started_ticks(pid), own)


def this_process(instance: str, http: str, *, hosts_all: bool = False, identity: Identity = NOBODY) -> Holder:
    """This process, under an instance name and reachable at an HTTP address; whether it hosts all its replicators."""
    pid = os.getpid()
    return Holder(
        host=socket.gethostname(),
        pid=pid,
        instance=instance,
        http=http,
        boot_id=_boot_id(),
        started_ticks=_started_ticks(pid),
        hosts_all=hosts_all,
        daemon=identity.daemon,
        keeper_pid=identity.keeper_pid,
        keeper_ticks=identity.keeper_ticks,
        program=program(),
    )


def is_dead(holder: Holder) -> bool:
    """Whether the holder was a process of this machine that exists no longer, and nobody is started in its place. False
    whenever that is not sure."""
    if not _is_here(holder):
        return False
    if holder.daemon and not (holder.keeper_pid and _has_ended(holder.keeper_pid, holder.keeper_ticks)):
        return False
    return _has_ended(holder.pid, holder.started_ticks)


def this_worker() -> Worker:
    """This process, as a job."""
    pid = os.getpid()
    return Worker(socket.gethostname(), pid, _boot_id(), _started_ticks(pid))


def is_dead_worker(worker: Worker) -> bool:
    """Whether it was a process of this machine that exists no longer. False whenever that is not sure."""
    return _is_here(worker) and _has_ended(worker.pid, worker.started_ticks)


def _is_here(process: Holder | Worker) -> bool:
    return bool(process.boot_id) and (process.host, process.boot_id) == (socket.gethostname(), _boot_id())


def _has_ended(pid: int, started_ticks: int) -> bool:
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
    except psutil.NoSuchProcess:
        return True
    except psutil.Error:
        return False
    started = _started_ticks(pid)
    return bool(started and started_ticks and started != started_ticks)


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
