"""What the kernel still delivers for a killed process: everything, or with `reset_on_close` nothing more."""

import asyncio
import signal
import socket
import sys

import pytest

from mirrord.runtime.leash import leashed

CHILD = """
import asyncio, sys
from mirrord.kafka.client.socket_options import (tune)

async def main():
    transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, "127.0.0.1", int(sys.argv[1]))
    tune(transport, buffer_bytes=1 << 16, reset_on_close=sys.argv[2] == "True")
    transport.write(bytes(8 << 20))
    left = None
    while left != transport.get_write_buffer_size():  # until the kernel takes no more
        left = transport.get_write_buffer_size()
        await asyncio.sleep(0.3)
    print((8 << 20) - left, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.parametrize("reset", [True, False])
async def test_a_killed_process_delivers_nothing_more(reset: bool) -> None:
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        server.setblocking(False)
        command = leashed([sys.executable, "-c", CHILD, str(server.getsockname()[1]), str(reset)])
        child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        connection, _ = await loop.sock_accept(server)
        assert child.stdout is not None
        taken = int(await child.stdout.readline())
        child.send_signal(signal.SIGKILL)
        await child.wait()
        received, cut = 0, False
        with connection:
            try:
                while data := await loop.sock_recv(connection, 1 << 20):
                    received += len(data)
            except ConnectionResetError:
                cut = True
    assert (cut, received < taken) == (reset, reset)
