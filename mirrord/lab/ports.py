"""Free ports on 127.0.0.1 for brokers that are killed and come back on the same port."""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
LOWEST, HIGHEST = 10_000, 65_535
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 1_000
# Beside a broker that is down for a moment its port is free, but not for others of this process.
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on and that this process was not given before. Raises OSError when there are none.

    They lie outside the range that the kernel takes for outgoing connections: a client that keeps trying to reach a
    killed broker on such a port would sooner or later take the port itself, even connect to itself.
    """
    low, high = widest_gap(*_ephemeral_range())
    chance = random.SystemRandom()
    found: list[int] = []
    for _ in range(_TRIES):
        if len(found) == count:
            return found
        port = chance.randint(low, high)
        if port not in _given and _is_free(port):
            _given.add(port)
            found.append(port)
    raise OSError(f"no {count} free ports between {low} and {high}")


def widest_gap(first: int, last: int) -> tuple[int, int]:
    """The larger of the two ranges of ports (both ends included) that lie beside the range [first, last]."""
    below, above = (LOWEST, first - 1), (last + 1, HIGHEST)
    low, high = max(below, above, key=lambda gap: gap[1] - gap[0])
    # A kernel that takes nearly every port leaves no better choice than all of them.
    return (low, high) if high - low >= _TRIES else (LOWEST, HIGHEST)


def _ephemeral_range() -> tuple[int, int]:
    try:
        first, last = _EPHEMERAL.read_text().split()
    except (OSError, ValueError):
        return 32_768, 60_999
    return int(first), int(last)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As Java's server sockets do it: connections of the past that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True
