"""An address that accepts connections and never answers."""

import socket
from collections.abc import Generator
from contextlib import contextmanager

from mirrord.lab.ports import LOOPBACK


@contextmanager
def silent_address() -> Generator[str]:
    """Provide the address. The kernel accepts the connections, and no process reads from them."""
    with socket.socket() as listening:
        listening.bind((LOOPBACK, 0))
        listening.listen(128)
        yield f"{LOOPBACK}:{listening.getsockname()[1]}"
