"""Kills the parts of a running mirror with -9 at random moments, and restarts those that do not restart by
themselves."""

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal

import psutil

from bench.faults import zombies
from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon
from mirrord.lab.cluster import Cluster

Kind = Literal["daemon", "supervisor", "replicator", "target", "source", "stall", "zombie", "frozen"]
"""`daemon`: the process that was started, and everything that ends with it. `supervisor`: the supervisor on Ray, which
Ray restarts. `stall`: the daemon is stopped for longer than its lease, and then continues. `zombie`, `frozen`: the same
for a minute, see `bench.faults.zombies`."""

_MOVES_S = 25.0
"""How long to wait for new records in the target before the next kill happens anyway."""
_LOOK_S = 0.05
_DOWN_S = 1.5
_GAP_S = 2.5
_FIND_S = 90.0
_STALL_FACTOR = 1.6
_HURRIED_SHARE = 0.2
"""Share of kills that do not wait until the previous ones are overcome."""


@dataclass
class Mirror:
    """The parts that may be killed."""

    source: Cluster
    target: Cluster
    daemons: Sequence[Daemon]
    copies: Callable[[], dict[str, int]]
    """The expected target topics, and their partitions."""


@dataclass
class Tally:
    """What was done. `while_copying` counts the kills right before which new records had arrived."""

    kills: Counter[Kind] = field(default_factory=Counter[Kind])
    while_copying: Counter[Kind] = field(default_factory=Counter[Kind])


class Faults:
    """A list of kills in random order. `run` must be called in a separate thread."""

    def __init__(
        self, mirror: Mirror, wanted: dict[Kind, int], rng: random.Random, print_line: Callable[[str], None]
    ) -> None:
        self.tally = Tally()
        self.end = threading.Event()
        """Set this to end early."""
        self._mirror = mirror
        self._order: list[Kind] = [kind for kind, count in wanted.items() for _ in range(count)]
        self._rng = rng
        self._print_line = print_line
        self._admin = Admin(mirror.target.bootstrap)
        self._restarters = ThreadPoolExecutor(4)
        self._restarting: dict[object, Future[None]] = {}

    def run(self) -> None:
        """Perform all kills, until everything runs again. Raises EnvironmentFault if something does not."""
        self._rng.shuffle(self._order)
        try:
            for number, kind in enumerate(self._order, 1):
                moved = self._rng.random() > _HURRIED_SHARE and self._await_movement()
                if self.end.wait(self._rng.random() * _GAP_S):
                    return
                what = self._strike(kind)
                if what is None:
                    self._order.append(kind)  # again at the end
                    continue
                self.tally.kills[kind] += 1
                self.tally.while_copying[kind] += moved
                self._print_line(f"{number} of {len(self._order)}: {what}")
        finally:
            self._restarters.shutdown()
            for restart in self._restarting.values():
                restart.result()

    def _strike(self, kind: Kind) -> str | None:
        match kind:
            case "source" | "target":
                cluster = self._mirror.source if kind == "source" else self._mirror.target
                self._settled(cluster)
                cluster.kill()
                self._later(cluster, cluster.restart)
                return f"{kind} broker killed"
            case "daemon":
                daemon = self._rng.choice(self._mirror.daemons)
                self._settled(daemon)
                _ = daemon.pid  # a process that has ended by itself is a fault
                daemon.kill()
                self._later(daemon, daemon.start)
                return f"{daemon.settings.instance} killed"
            case "supervisor" | "replicator":
                return self._kill_inside(kind)
            case "stall":
                return self._stall()
            case "zombie" | "frozen":
                return self._wait_for_zombie(kind)

    def _kill_inside(self, kind: Kind) -> str | None:
        """Return a process that the status names."""
        daemon = self._rng.choice(self._mirror.daemons)
        self._settled(daemon)
        deadline = time.monotonic() + _FIND_S
        while time.monotonic() < deadline and not self.end.is_set():
            flow = daemon.flow()
            if flow is not None and kind == "replicator" and flow.replicators:
                victim = self._rng.choice(flow.replicators)
                if _kill(victim.pid):
                    return f"{victim.name} killed"
            if flow is not None and kind == "supervisor" and flow.lease is not None and _kill(flow.lease.pid):
                return "the supervisor killed"
            time.sleep(_LOOK_S)
        self._print_line(f"no {kind} to be found for {_FIND_S:g} s")
        return None

    def _stall(self) -> str:
        for daemon in self._mirror.daemons:
            self._settled(daemon)
        daemon = self._holder() or self._rng.choice(self._mirror.daemons)
        pid = daemon.pid
        os.kill(pid, signal.SIGSTOP)
        pause_s = daemon.settings.lease_ttl_s * _STALL_FACTOR * (0.5 + self._rng.random())

        def go_on() -> None:
            time.sleep(pause_s)
            os.kill(pid, signal.SIGCONT)

        self._restarting[daemon] = self._restarters.submit(go_on)
        return f"{daemon.settings.instance} stopped for {pause_s:.1f} s"

    def _wait_for_zombie(self, kind: Kind) -> str | None:
        deadline = time.monotonic() + _FIND_S
        daemons, ended = self._mirror.daemons, self.end.is_set
        while time.monotonic() < deadline and not ended():
            if kind == "zombie":
                stopped = zombies.stop_the_holder(daemons, ended)
            else:
                stopped = zombies.stop_a_replicator(daemons, self._rng.randrange(1 << 16), ended)
            if stopped is not None:
                return stopped
            if kind == "frozen" and (other := self._holder()) is not None and other.settings.engine != "ray":
                # The daemon on Ray is the standby: it gets the flow.
                other.stop()
                other.start()
            time.sleep(_LOOK_S)
        return None

    def _holder(self) -> Daemon | None:
        """Return the daemon that copies now."""
        for daemon in self._mirror.daemons:
            flow = daemon.flow()
            if flow is not None and flow.state == "running":
                return daemon
        return None

    def _later(self, what: object, start: Callable[[], None]) -> None:
        pause_s = self._rng.random() * _DOWN_S

        def again() -> None:
            time.sleep(pause_s)
            start()

        self._restarting[what] = self._restarters.submit(again)

    def _settled(self, what: object) -> None:
        """Wait until a restart of this part is complete; otherwise there would be nothing to kill."""
        restart = self._restarting.pop(what, None)
        if restart is not None:
            restart.result()

    def _await_movement(self) -> bool:
        """Return whether new records arrive within a while."""
        deadline = time.monotonic() + _MOVES_S
        before = self._admin.ends(self._mirror.copies(), timeout_s=1.0)
        while time.monotonic() < deadline and not self.end.is_set():
            now = self._admin.ends(self._mirror.copies(), timeout_s=1.0)
            if any(end > before.setdefault(partition, end) for partition, end in now.items()):
                return True
            time.sleep(_LOOK_S)
        return False


def _kill(pid: int) -> bool:
    """Send kill -9. Return False if the process no longer exists."""
    if not psutil.pid_exists(pid):
        return False
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
