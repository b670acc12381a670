"""Finds free ports on 127.0.0.1 for brokers. A broker that was killed is restarted on the same port."""

import fcntl
import os
import random
import socket
import tempfile
from functools import cache
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST, HIGHEST = 20_000, 65_535
"""The ports from which `free_ports` chooses. Ray's workers listen on ports from 10002 to 19999, so a worker could take
the port of a broker that is down."""
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1_000
# Ports that `free_ports` has already returned in this process. While a broker is down, its port is free, but the port
# must not be assigned to another broker.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports on which no process is listening and that this function has not already returned, neither in this
    process nor in another running process of the same user. Raises OSError if there are not enough such ports.

    The ports are outside the range that the kernel uses for outgoing connections. Otherwise a client that tries to
    reach a killed broker could be assigned the broker's port as its own port, or even connect to itself.
    """
    low, high = widest_gap(*_ephemeral_range())
    chance = random.SystemRandom()
    found: list[int] = []
    for _ in range(_TRIES):
        if len(found) == count:
            return found
        port = chance.randint(low, high)
        if port not in _given and _is_reserved(port) and _is_free(port):
            _given.add(port)
            found.append(port)
    raise OSError(f"no {count} free ports between {low} and {high}")


def _is_reserved(port: int) -> bool:
    """Reserve a port for this process. Return False if another running process has reserved it.

    The reservation is a lock on one byte of a file. The kernel releases it when the process ends. A child process does
    not inherit it.
    """
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


@cache
def _reservations() -> int:
    """Return a descriptor of the file whose bytes are locked to reserve ports. The descriptor stays open, because
    closing it would release the locks."""
    path = Path(tempfile.gettempdir()) / f"mirrord-lab-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def widest_gap(first: int, last: int) -> tuple[int, int]:
    """Return the larger of two port ranges: the range from 20000 to the port before `first`, and the range after
    `last`. If both ranges are too small, return the range from 20000 to 65535. A range is returned as its lowest and
    its highest port."""
    below, above = (LOWEST, first - 1), (last + 1, HIGHEST)
    low, high = max(below, above, key=lambda gap: gap[1] - gap[0])
    # If the kernel uses nearly all ports for outgoing connections, brokers get ports from the whole range, `LOWEST` to
    # `HIGHEST`.
    return (low, high) if high - low >= _TRIES else (LOWEST, HIGHEST)


def _ephemeral_range() -> tuple[int, int]:
    try:
        first, last = _EPHEMERAL.read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(first), int(last)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # Java's server sockets also set this option. With this option, old connections in TIME_WAIT do not block the
        # port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
