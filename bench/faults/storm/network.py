"""Cuts connections on this machine, per port and direction, in a network namespace that only the run has.

The whole run is a process in new namespaces (`inside`), so its loopback device carries only the packets of the run.
A filter of the traffic control (tc) puts the packets to or from a port into a queue that holds no packet. The
kernel drops them, as a real network does: established connections retransmit, and new connections do not open. Loss of
single packets, reordering and low bandwidth are not modelled.
"""

import itertools
import os
import subprocess
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress

from mirrord.model.errors import EnvironmentFault

_INSIDE = "MIRRORD_STORM_NAMESPACES"
_WAYS: Sequence[Sequence[str]] = (
    ("unshare", "--net", "--mount"),
    ("unshare", "--map-root-user", "--net", "--mount"),
)
_SETUP = (
    "ip link set lo up",
    "tc qdisc add dev lo root handle 1: htb default 0",
    "tc class add dev lo parent 1: classid 1:666 htb rate 8bit ceil 8bit quantum 1500",
    "tc qdisc add dev lo parent 1:666 handle 666: pfifo limit 0",
)
_TRIAL = (
    *_SETUP,
    "tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dport 1 0xffff classid 1:666",
    "mount -t tmpfs -o size=1m none /mnt",
)


def is_inside() -> bool:
    """Return whether this process runs in separate namespaces."""
    return _INSIDE in os.environ


def why_not() -> str:
    """Return why the run cannot have namespaces, or an empty text if it can."""
    reason = ""
    for way in _WAYS:
        try:
            tried = subprocess.run([*way, "sh", "-ec", "\n".join(_TRIAL)], capture_output=True, text=True, check=False)
        except OSError as error:
            return f"unshare does not run: {error.strerror}"
        if tried.returncode == 0:
            return ""
        reason = reason or tried.stderr.strip().replace("\n", "; ")
    return f"no own network and mount namespace (needs root, unshare, ip, tc, mount): {reason}"


def inside(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` in separate namespaces."""
    for way in _WAYS:
        if subprocess.run([*way, "true"], capture_output=True, check=False).returncode == 0:
            return ["env", f"{_INSIDE}=1", *way, *command]
    return list(command)


class Network:
    """The loopback device of the run's namespace."""

    def __init__(self) -> None:
        """Set up the device. Raises EnvironmentFault."""
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # An earlier chapter may have set it up already.
        with suppress(EnvironmentFault):
            _run("tc qdisc del dev lo root")
        for line in _SETUP:
            _run(line)

    def cut(self, *, to: Collection[int] = (), from_: Collection[int] = ()) -> int:
        """Lose all packets to and from these ports. Return the number with which `heal` ends that."""
        with self._lock:
            number = next(self._numbers)
            for line in filters(number, to, from_):
                _run(line)
            return number

    def heal(self, number: int) -> None:
        with self._lock:
            _run(f"tc filter del dev lo parent 1: prio {number}")


def filters(number: int, to: Collection[int], from_: Collection[int]) -> list[str]:
    """Return the commands that add the filters of one cut."""
    matches = [*(f"dport {port}" for port in to), *(f"sport {port}" for port in from_)]
    return [
        f"tc filter add dev lo parent 1: protocol ip prio {number} u32 match ip {match} 0xffff classid 1:666"
        for match in matches
    ]


def _run(line: str) -> None:
    done = subprocess.run(line.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise EnvironmentFault(f"{line}: {done.stderr.strip()}")
