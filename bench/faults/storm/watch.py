"""How long a fault interrupts the records: which partitions hold a record that was written after it?

The watch asks every broker for the first committed record from a time on (ListOffsets v2, KIP-98) through its own
listener, which no fault cuts off. A partition has recovered when its leader returns such a record.
"""

import socket
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from mirrord.lab.broker_readiness import exactly
from mirrord.lab.ports import LOOPBACK

Place = tuple[str, int]
"""A topic, and a partition of it."""

_LIST_OFFSETS, _VERSION = 2, 2
_READ_COMMITTED = 1
_CLIENT = b"watch"
_ANSWER_S = 0.5
_LOOK_S = 0.1
_NOBODY = -1
MOST_S = 180.0
"""A copy that does not recover within this time counts as a failure."""


class Watch:
    """Asks the brokers of one cluster, by the ports of their listener aside."""

    def __init__(self, ports: Iterable[int], places: Callable[[], Mapping[Place, int]]) -> None:
        """`places` returns the partitions that are written to steadily, and the age of their records in ms."""
        self._ports = list(ports)
        self._places = places

    def await_since(self, since_s: float, ended: Callable[[], bool] = lambda: False) -> tuple[float | None, set[Place]]:
        """Wait until all partitions hold a record that was written at or after this time (of `time.time`).

        Return the time at which that is so, or None and the partitions that do not recover.
        """
        places = dict(self._places())
        with ThreadPoolExecutor(len(self._ports)) as askers:
            while places:
                asked = {place: int(since_s * 1000) - age_ms for place, age_ms in places.items()}
                for found in askers.map(_recovered, self._ports, [asked] * len(self._ports)):
                    for place in found:
                        places.pop(place, None)
                now = time.time()
                if not places:
                    return now, set()
                if now > since_s + MOST_S or ended():
                    return None, set(places)
                time.sleep(_LOOK_S)
        return time.time(), set()


def _recovered(port: int, asked: Mapping[Place, int]) -> set[Place]:
    """Return the partitions that this broker leads and that hold a record from the given time (in ms) on."""
    with (
        suppress(OSError, struct.error),
        socket.create_connection((LOOPBACK, port), timeout=_ANSWER_S) as connection,
    ):
        connection.sendall(request(asked))
        (size,) = struct.unpack(">i", exactly(connection, 4))
        return answered(exactly(connection, size))
    return set()


def request(asked: Mapping[Place, int]) -> bytes:
    """Return a ListOffsets request of version 2, with its length."""
    topics: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for (topic, partition), from_ms in asked.items():
        topics[topic].append((partition, from_ms))
    parts = [struct.pack(">hhih", _LIST_OFFSETS, _VERSION, 0, len(_CLIENT)), _CLIENT]
    parts.append(struct.pack(">ibi", _NOBODY, _READ_COMMITTED, len(topics)))
    for topic, partitions in topics.items():
        name = topic.encode()
        parts.append(struct.pack(">h", len(name)) + name + struct.pack(">i", len(partitions)))
        parts += [struct.pack(">iq", partition, from_ms) for partition, from_ms in partitions]
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def answered(answer: bytes) -> set[Place]:
    """Return the partitions in a response for which there is a record."""
    found: set[Place] = set()
    (topics,) = struct.unpack_from(">i", answer, 8)  # after the correlation id and the throttle time
    position = 12
    for _ in range(topics):
        (length,) = struct.unpack_from(">h", answer, position)
        topic = answer[position + 2 : position + 2 + length].decode()
        (partitions,) = struct.unpack_from(">i", answer, position + 2 + length)
        position += 2 + length + 4
        for _ in range(partitions):
            partition, error, _, offset = struct.unpack_from(">ihqq", answer, position)
            position += 22
            if error == 0 and offset >= 0:
                found.add((topic, partition))
    return found
