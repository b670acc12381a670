"""A TCP relay that forwards everything some milliseconds later, in both directions, to simulate a distant broker.

`python -m bench.faults.delay LISTEN CONNECT MS` listens on one port and connects to the other, both on 127.0.0.1. Data
is kept until its time has come. Bandwidth is not limited, and the behavior of TCP over long distances (slow start,
windows) is not simulated.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import cast

import uvloop

from mirrord.lab.ports import LOOPBACK
from mirrord.runtime.leash import leashed

_MOST_KEPT_BYTES = 256 << 20
"""Buffer limit in one direction of a connection; it is larger than what any copier has in flight."""


class _Way(asyncio.Protocol):
    """One end of a connection. Data that it reads goes to the other end, later."""

    def __init__(self, delay_s: float, other: "_Way | None" = None) -> None:
        self._delay_s = delay_s
        self._other = other
        self._kept: deque[tuple[float, bytes]] = deque()
        self._kept_bytes = 0
        self._is_waiting = False
        self._ended = False
        self.transport: asyncio.Transport | None = None

    def join(self, other: "_Way") -> None:
        self._other = other
        self._await_next()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports inherit from nothing

    def data_received(self, data: bytes) -> None:
        self._kept.append((time.monotonic() + self._delay_s, data))
        self._kept_bytes += len(data)
        if self._kept_bytes > _MOST_KEPT_BYTES and self.transport is not None:
            self.transport.pause_reading()
        self._await_next()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._ended = True
        self._await_next()

    def _await_next(self) -> None:
        if self._other is None or self._is_waiting:
            return
        if self._kept:
            self._is_waiting = True
            asyncio.get_running_loop().call_later(max(0.0, self._kept[0][0] - time.monotonic()), self._deliver)
        elif self._ended and self._other.transport is not None:
            self._other.transport.close()

    def _deliver(self) -> None:
        self._is_waiting = False
        assert self._other is not None  # noqa: S101
        transport, now = self._other.transport, time.monotonic()
        due: list[bytes] = []
        while self._kept and self._kept[0][0] <= now:
            due.append(self._kept.popleft()[1])
        self._kept_bytes -= sum(map(len, due))
        if due and transport is not None and not transport.is_closing():
            transport.writelines(due)
        if self.transport is not None and not self._ended:
            self.transport.resume_reading()
        self._await_next()


async def _serve(listen: int, connect: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    joining: set[asyncio.Task[None]] = set()

    def accepted() -> _Way:
        near = _Way(delay_s)
        task = loop.create_task(_join(near, connect, delay_s))
        joining.add(task)
        task.add_done_callback(joining.discard)
        return near

    server = await loop.create_server(accepted, LOOPBACK, listen)
    await server.serve_forever()


async def _join(near: _Way, connect: int, delay_s: float) -> None:
    try:
        _, far = await asyncio.get_running_loop().create_connection(lambda: _Way(delay_s, near), LOOPBACK, connect)
    except OSError:
        if near.transport is not None:
            near.transport.close()
        return
    near.join(far)


@contextmanager
def delayed(listen: int, connect: int, round_trip_ms: float) -> Generator[None]:
    """Run the relay as a separate process, until the block ends."""
    command = [sys.executable, "-m", "bench.faults.delay", str(listen), str(connect), str(round_trip_ms / 2)]
    process = subprocess.Popen(leashed(command))
    try:
        yield
    finally:
        process.kill()
        process.wait()


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.faults.delay", description=__doc__)
    parser.add_argument("listen", type=int)
    parser.add_argument("connect", type=int)
    parser.add_argument("ms", type=float, help="one way")
    arguments = parser.parse_args()
    uvloop.run(_serve(arguments.listen, arguments.connect, arguments.ms / 1000))
    return 0


if __name__ == "__main__":
    sys.exit(main())
