"""Describes this process as the `Holder` of a lease and determines whether another holder on this machine is certainly
dead."""

import os
import socket
import uuid
from pathlib import Path

import msgspec
import psutil

from mirrord.ledger.codec import VERSION
from mirrord.ledger.facts.core import Holder
from mirrord.ledger.facts.jobs import Worker
from mirrord.runtime.build_info import program

START_FIELD = 22
"""The number of the field in /proc/<pid>/stat (proc(5)) that contains the start time of the process in clock ticks
after boot."""


class Identity(msgspec.Struct, frozen=True):
    """The identity of a daemon (`Holder.daemon`). If a process of the daemon dies, the process that replaces it has the
    same identity."""

    daemon: str = ""
    keeper_pid: int = 0
    keeper_ticks: int = 0
    kept_as: str = ""
    """The name under which the processes of the daemon keep data for their successors. Each daemon has a different
    name. A daemon that replaces another daemon takes over its `daemon` id, but not this name."""


NOBODY = Identity()
"""The identity of a process that is never replaced by another process of the same daemon."""


def new_identity(*, kept_here: bool, goes_on_as: str = "") -> Identity:
    """Return the identity of a daemon whose processes are replaced when they die.

    `kept_here` means that these processes are replaced only while the calling process is running. `goes_on_as` is the
    `Identity.daemon` of the daemon that this daemon replaces; empty if it replaces none.
    """
    own = uuid.uuid4().hex
    if not kept_here:
        return Identity(goes_on_as or own, kept_as=own)
    pid = os.getpid()
    return Identity(goes_on_as or own, pid, _started_ticks(pid), own)


def this_process(instance: str, http: str, *, hosts_all: bool = False, identity: Identity = NOBODY) -> Holder:
    """Return the description of this process as a holder, with an instance name and an HTTP address.

    `hosts_all` says whether this process hosts all its replicators.
    """
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
        layout=VERSION,
    )


def is_dead(holder: Holder) -> bool:
    """Return whether the holder was a process on this machine that no longer exists and will not be replaced.

    The result is False if this is not certain.
    """
    if not _is_here(holder):
        return False
    if holder.daemon and not (holder.keeper_pid and _has_ended(holder.keeper_pid, holder.keeper_ticks)):
        return False
    return _has_ended(holder.pid, holder.started_ticks)


def this_worker() -> Worker:
    """Return the description of this process as the worker of a job (an audit or a compaction)."""
    pid = os.getpid()
    return Worker(socket.gethostname(), pid, _boot_id(), _started_ticks(pid))


def is_dead_worker(worker: Worker) -> bool:
    """Return whether the worker was a process on this machine that no longer exists. The result is False if this is not
    certain."""
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
    """Return an id that identifies both the running kernel and the pid namespace.

    The namespace is included because containers on the same kernel do not see each other's processes.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started_ticks(pid: int) -> int:
    """Return the start time of a process in clock ticks after boot, or 0 if it is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The second field is the name of the program in parentheses, which may contain any characters.
        return int(stat.rpartition(")")[2].split()[START_FIELD - 3])
    except (OSError, ValueError, IndexError):
        return 0
