"""The reference: the cost of a process that only moves bytes from one socket to another, with uvloop.

A generator and a sink run in a separate process. Only the CPU of the relay is counted, from its first connection on.
Whatever a replicator costs beyond this is what it does in addition to moving bytes.
"""

import argparse
import asyncio
import os
import socket
import sys
import threading
import time
from typing import cast

import msgspec
import uvloop

BLOCK_BYTES = 1 << 20


class Relayed(msgspec.Struct, frozen=True):
    """Bytes that were moved, and the CPU-seconds that it took."""

    relayed_bytes: int
    cpu_s: float


class _Out(asyncio.Protocol):
    """The connection to the sink. It holds the source back while the sink is slow."""

    def __init__(self, inward: "_In") -> None:
        self._inward = inward

    def pause_writing(self) -> None:
        self._inward.transport.pause_reading()

    def resume_writing(self) -> None:
        self._inward.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self._inward.done.set()


class _In(asyncio.BufferedProtocol):
    """The connection from the generator. It reads into one buffer and writes a copy of the bytes."""

    transport: asyncio.Transport
    out: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = bytearray(BLOCK_BYTES)
        self._view = memoryview(self._buffer)
        self.done = asyncio.Event()
        """Set when the last byte was sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's transports inherit from nothing

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 -- asyncio's signature
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.out.write(bytes(self._view[:nbytes]))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        self.out.close()


async def _relay(source_port: int, sink_port: int) -> float:
    """Return the CPU-seconds that it took."""
    loop, inward = asyncio.get_running_loop(), _In()
    used = time.process_time()
    inward.out, _ = await loop.create_connection(lambda: _Out(inward), "127.0.0.1", sink_port)
    await loop.create_connection(lambda: inward, "127.0.0.1", source_port)
    await inward.done.wait()
    return time.process_time() - used


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


def _generate_and_drain(source: socket.socket, sink: socket.socket, blocks: int) -> None:
    generator = threading.Thread(target=_serve, args=(source, blocks), daemon=True)
    generator.start()
    _drain(sink)
    generator.join()


def relay(total_bytes: int) -> Relayed:
    """Relay about this number of bytes, here and in a second process."""
    source, sink = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    blocks = max(1, total_bytes // BLOCK_BYTES)
    other = os.fork()
    if other == 0:
        try:
            _generate_and_drain(source, sink, blocks)
        finally:
            os._exit(0)
    cpu_s = uvloop.run(_relay(source.getsockname()[1], sink.getsockname()[1]))
    os.waitpid(other, 0)
    return Relayed(blocks * BLOCK_BYTES, cpu_s)


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.harness.relay", description=__doc__)
    parser.add_argument("bytes", type=int, nargs="?", default=4_000_000_000, help="default: %(default)s")
    print(msgspec.json.encode(relay(parser.parse_args().bytes)).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
