"""Checks whether a broker is ready. For this check, it sends a metadata request, as any client does."""

import socket
import struct

from mirrord.lab.ports import LOOPBACK

_METADATA, _VERSION = 3, 1
_CLIENT_ID = b"lab"
_SECONDS = 5


def brokers_seen(port: int) -> set[int]:
    """Ask the broker with a plaintext listener on this port which brokers are alive, and return their ids (Metadata v1,
    KIP-4).

    A broker may still be starting, or the controller may not have admitted it yet. In that case, the broker refuses the
    connection or does not include itself in the answer. Raises OSError if there is no valid answer.
    """
    head = struct.pack(">hhih", _METADATA, _VERSION, 0, len(_CLIENT_ID)) + _CLIENT_ID
    request = head + struct.pack(">i", 0)
    with socket.create_connection((LOOPBACK, port), timeout=_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", exactly(connection, 4))
        answer = exactly(connection, size)
    try:
        return _broker_ids(answer)
    except struct.error:
        raise OSError(f"port {port} answered what no broker answers") from None


def _broker_ids(answer: bytes) -> set[int]:
    (count,) = struct.unpack_from(">i", answer, 4)
    position = 8
    ids: set[int] = set()
    for _ in range(count):
        node_id, host_length = struct.unpack_from(">ih", answer, position)
        ids.add(node_id)
        position += 6 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", answer, position)
        position += 2 + max(0, rack_length)
    return ids


def exactly(connection: socket.socket, size: int) -> bytes:
    """Read this many bytes. Raises OSError if the connection is closed before all of them have arrived."""
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise OSError("the connection was closed")
        parts += part
    return bytes(parts)
