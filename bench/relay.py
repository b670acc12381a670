"""The yardstick: CPU-seconds of a process that only moves bytes from one socket to another, with uvloop.

A generator and a sink live in a process of their own; counted is the relay alone. Whatever a replicator costs beyond
this is what it does besides moving bytes.
"""

import asyncio
import os
import resource
import socket
import sys
import threading
from collections.abc import Callable

import uvloop

BLOCK_BYTES = 1 << 20


class _Out(asyncio.Protocol):
    """Towards the sink; holds the source back while the sink is slow."""

    def __init__(self, inward: "_In") -> None:
        self._inward = inward

    def pause_writing(self) -> None:
        self._inward.transport.pause_reading()

    def resume_writing(self) -> None:
        self._inward.transport.resume_reading()


class _In(asyncio.BufferedProtocol):
    """From the generator: into one buffer, and out again as bytes of its own."""

    def __init__(self, done: asyncio.Event) -> None:
        self._buffer = bytearray(BLOCK_BYTES)
        self._view = memoryview(self._buffer)
        self._done = done
        self.transport: asyncio.Transport
        self.out: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 -- asyncio's own promise for a stream
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 -- asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.out.write(bytes(self._view[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self.out.close()
        self._done.set()


async def _relay(source_port: int, sink_port: int) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    inward = _In(done)
    inward.out, _ = await loop.create_connection(lambda: _Out(inward), "127.0.0.1", sink_port)
    await loop.create_connection(lambda: inward, "127.0.0.1", source_port)
    await done.wait()


def _serve(listener: socket.socket, blocks: int) -> None:
    connection, _ = listener.accept()
    block = os.urandom(BLOCK_BYTES)
    for _ in range(blocks):
        connection.sendall(block)
    connection.close()


def _drain(listener: socket.socket) -> None:
    connection, _ = listener.accept()
    while connection.recv(BLOCK_BYTES):
        pass


def bytes_per_cpu_second(total_bytes: int) -> float:
    """Relay this many bytes in this process. Call it in a process of its own: all of its CPU is counted."""
    source, sink = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    blocks = total_bytes // BLOCK_BYTES
    other = os.fork()
    if other == 0:
        ends: tuple[Callable[[], None], ...] = (lambda: _serve(source, blocks), lambda: _drain(sink))
        threads = [threading.Thread(target=end) for end in ends]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        os._exit(0)
    before = resource.getrusage(resource.RUSAGE_SELF)
    uvloop.run(_relay(source.getsockname()[1], sink.getsockname()[1]))
    used = resource.getrusage(resource.RUSAGE_SELF)
    os.waitpid(other, 0)
    return blocks * BLOCK_BYTES / (used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime)


if __name__ == "__main__":
    print(bytes_per_cpu_second(int(sys.argv[1])))
