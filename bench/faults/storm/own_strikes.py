"""The strikes at mirrord's own processes: the daemon, its actors, the processes of Ray, and a second daemon.

A strike claims `daemon` while the daemon is down or frozen, so nothing else starts or stops it meanwhile.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from random import Random
from typing import Literal

import psutil

from bench.faults.storm.ground import Blow, Ground
from bench.faults.storm.leaders import Leaders
from bench.faults.storm.load import EXPIRING
from bench.faults.storm.strikes import Strike
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

DAEMON = "daemon"
_TAKEN_OVER_S = 120.0
_LOOK_S = 0.2
_CLAIM = (DAEMON,)


def daemon_kill(ground: Ground, _: Random) -> Blow | None:
    if not ground.claim(DAEMON):
        return None
    ground.daemon.kill()
    return Blow("daemon killed", ground.daemon.start, _CLAIM)


def daemon_term(ground: Ground, _: Random) -> Blow | None:
    if not ground.claim(DAEMON):
        return None
    code = ground.daemon.stop()
    return Blow(f"daemon stopped, exit code {code}", ground.daemon.start, _CLAIM)


def daemon_stop(ground: Ground, _: Random) -> Blow | None:
    return _frozen(ground, "the daemon is stopped for a while")


def _frozen(ground: Ground, what: str) -> Blow | None:
    if not ground.daemon.running or not ground.claim(DAEMON):
        return None
    parts = _copying(ground.daemon)
    _signal(parts, signal.SIGSTOP)
    return Blow(f"{what} ({len(parts)} processes)", lambda: _signal(parts, signal.SIGCONT), _CLAIM)


def all_kill(ground: Ground, _: Random) -> Blow | None:
    """Kill the daemon and everything that it has started, at the same moment."""
    if not ground.daemon.running or not ground.claim(DAEMON):
        return None
    tree = _tree(ground.daemon)
    _signal(tree, signal.SIGKILL)
    ground.daemon.kill()
    return Blow(f"all {len(tree)} processes killed", ground.daemon.start, _CLAIM)


def beside_frozen(ground: Ground, _: Random) -> Blow | None:
    """Freeze the daemon and start a second one. When it is healed, the first one continues as a standby; then the
    second one is stopped."""
    blow = _frozen(ground, "the daemon is frozen next to a second one")
    if blow is None:
        return None
    ground.second.start()

    def heal() -> None:
        try:
            ground.second.wait_for("flow", _copies, _TAKEN_OVER_S)
        finally:
            blow.heal()
            time.sleep(3 * ground.daemon.settings.lease_ttl_s)
            ground.second.stop()

    return Blow(blow.what, heal, blow.parts)


def _copies(flow: FlowStatus) -> bool:
    return flow.state == "running" and "copying" in flow.totals.lanes


def replicator(number: Literal[signal.Signals.SIGKILL, signal.Signals.SIGSTOP]) -> Strike:
    def strike(ground: Ground, chance: Random) -> Blow | None:
        flow = ground.daemon.flow()
        if flow is None or not flow.replicators:
            return None
        victim = chance.choice(sorted(flow.replicators, key=lambda each: each.name))
        found = _processes([victim.pid])
        _signal(found, number)
        if not found:
            return None
        if number == signal.SIGKILL:
            return Blow(f"{victim.name} killed")
        return Blow(f"{victim.name} stopped for a while", lambda: _signal(found, signal.SIGCONT))

    return strike


def supervisor_kill(ground: Ground, _: Random) -> Blow | None:
    flow = ground.daemon.flow()
    if flow is None or flow.lease is None or flow.lease.instance != ground.daemon.settings.instance:
        return None
    found = _processes([flow.lease.pid])
    _signal(found, signal.SIGKILL)
    return Blow("the supervisor killed") if found else None


def actor_kill(ground: Ground, chance: Random) -> Blow | None:
    """Kill an actor that is neither a replicator nor the supervisor."""
    found = [
        process
        for process in _tree(ground.daemon)
        if (title := _title(process)).startswith("ray::")
        and not title.startswith(("ray::Repl", "ray::Super", "ray::IDLE"))
    ]
    if not found:
        return None
    victim = chance.choice(found)
    title = _title(victim)
    _signal([victim], signal.SIGKILL)
    return Blow(f"{title} killed")


def ray_process(name: str) -> Strike:
    """Kill a process of Ray. If the daemon ends because of that, it is started again, as a service manager does."""

    def strike(ground: Ground, _: Random) -> Blow | None:
        found = [process for process in _tree(ground.daemon) if _name(process) == name]
        if not found or not ground.claim(DAEMON):
            return None
        _signal(found, signal.SIGKILL)

        def heal() -> None:
            if not ground.daemon.running:
                ground.print_line(f"the daemon has ended after a kill of {name}; it is started again")
                ground.daemon.start()

        return Blow(f"{name} killed", heal, _CLAIM)

    return strike


def retention(ground: Ground, chance: Random) -> Blow | None:
    """Freeze the daemon, and delete records of the source that it has not copied."""
    blow = _frozen(ground, "the source deletes uncopied records, the daemon is frozen")
    if blow is None:
        return None
    time.sleep(1 + 2 * chance.random())
    with suppress(EnvironmentFault):
        source = ground.clusters["source"].aside
        Leaders(source).delete_records(Admin(source).ends({EXPIRING: 2}))
        return blow
    blow.heal()
    ground.release(_CLAIM)
    return None


def _copying(daemon: Daemon) -> list[psutil.Process]:
    """Return the processes that hold the lease or copy."""
    flow = daemon.flow() if daemon.settings.engine == "ray" else None
    if flow is None or flow.lease is None:
        return _processes([daemon.pid])
    return _processes({flow.lease.pid, *(each.pid for each in flow.replicators)})


def _tree(daemon: Daemon) -> list[psutil.Process]:
    try:
        main = psutil.Process(daemon.pid)
        return [main, *main.children(recursive=True)]
    except (psutil.Error, EnvironmentFault):
        return []


def _processes(pids: Iterable[int]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError, psutil.Error):
            if process.is_running():  # its pid may belong to another process by now
                os.kill(process.pid, number)


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


OWN: Mapping[str, Callable[[Ground, Random], Blow | None]] = {
    "daemon-kill": daemon_kill,
    "daemon-term": daemon_term,
    "daemon-stop": daemon_stop,
    "all-kill": all_kill,
    "beside-frozen": beside_frozen,
    "replicator-kill": replicator(signal.SIGKILL),
    "replicator-stop": replicator(signal.SIGSTOP),
    "supervisor-kill": supervisor_kill,
    "actor-kill": actor_kill,
    "head-kill": ray_process("gcs_server"),
    "raylet-kill": ray_process("raylet"),
    "retention": retention,
}
