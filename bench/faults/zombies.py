"""Processes that are stopped for a minute and continue: they still believe that they hold the flow.

`zombie`: the whole copying daemon, supervisor and replicators, is stopped (SIGSTOP), another daemon takes over, and
then it continues (SIGCONT). `frozen`: only one replicator is stopped, under a supervisor that keeps running. The
replaced processes must notice by themselves, or have been ended meanwhile.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Self

import psutil

from bench.harness.daemon import Daemon
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

PAUSE_S = 60.0
NOTICE_S = 60.0
"""Time that the replaced processes may take to notice."""
_LOOK_S = 0.2


def stop_the_holder(daemons: Sequence[Daemon], ended: Callable[[], bool]) -> str | None:
    """Stop the copying daemon until another one has its flow and a minute is over. Return None if no daemon copies now.

    Raises EnvironmentFault if no daemon takes over, or if the stopped one does not notice.
    """
    holder, flow = _holder(daemons)
    if holder is None or flow is None or flow.lease is None:
        return None
    on_ray = holder.settings.engine == "ray"
    replicators = _processes(each.pid for each in flow.replicators) if on_ray else []
    parts = [*_processes([flow.lease.pid]), *replicators]
    others = [daemon for daemon in daemons if daemon is not holder]
    with _Stopped(parts) as stopped:
        _until(lambda: _holder(others)[0] is not None, PAUSE_S, f"no daemon takes over from {holder.settings.instance}")
        stopped.wait(ended)
    name = holder.settings.instance
    _until(lambda: not any(map(_lives, replicators)), NOTICE_S, f"replicators of {name} do not notice: {replicators}")
    _until(lambda: _stands_by(holder), NOTICE_S, f"{name} does not notice that another daemon has the flow")
    return f"{name} ({len(parts)} processes) stopped for {PAUSE_S:g} s, and it noticed"


def stop_a_replicator(daemons: Sequence[Daemon], number: int, ended: Callable[[], bool]) -> str | None:
    """Do the same with a single replicator of a daemon on Ray; `number` chooses it. Return None if there is none
    now."""
    holder, flow = _holder([daemon for daemon in daemons if daemon.settings.engine == "ray"])
    if holder is None or flow is None or not flow.replicators:
        return None
    victim = sorted(flow.replicators, key=lambda each: each.name)[number % len(flow.replicators)]
    parts = _processes([victim.pid])
    with _Stopped(parts) as stopped:
        _until(lambda: _is_replaced(holder, victim.name), PAUSE_S, f"the lanes of {victim.name} do not move")
        stopped.wait(ended)
        ended_before = not any(map(_lives, parts))
    _until(lambda: not any(map(_lives, parts)), NOTICE_S, f"{victim.name} does not notice that others have its lanes")
    return f"{victim.name} stopped for {PAUSE_S:g} s, {'it was ended meanwhile' if ended_before else 'it noticed'}"


class _Stopped:
    """Processes that are stopped for the duration of the block."""

    def __init__(self, parts: Sequence[psutil.Process]) -> None:
        self._parts = parts
        self._began = time.monotonic()

    def __enter__(self) -> Self:
        self._signal(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        self._signal(signal.SIGCONT)

    def wait(self, ended: Callable[[], bool]) -> None:
        """Wait until the time is over."""
        while time.monotonic() < self._began + PAUSE_S and not ended():
            time.sleep(_LOOK_S)

    def _signal(self, number: int) -> None:
        for part in self._parts:
            with suppress(ProcessLookupError):
                if part.is_running():
                    os.kill(part.pid, number)


def _holder(daemons: Iterable[Daemon]) -> tuple[Daemon | None, FlowStatus | None]:
    """Return the daemon whose lanes copy now."""
    for daemon in daemons:
        flow = daemon.flow()
        if flow is not None and flow.state == "running" and set(flow.totals.lanes) == {"copying"}:
            return daemon, flow
    return None, None


def _stands_by(daemon: Daemon) -> bool:
    flow = daemon.flow()
    return flow is not None and flow.state == "standby"


def _is_replaced(daemon: Daemon, replicator: str) -> bool:
    flow = daemon.flow()
    return (
        flow is not None
        and set(flow.totals.lanes) == {"copying"}
        and all(lane.host and not lane.host.startswith(replicator) for lane in flow.lanes)
    )


def _processes(pids: Iterable[int]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _until(reached: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise EnvironmentFault(what)
        time.sleep(_LOOK_S)
