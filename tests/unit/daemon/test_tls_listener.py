"""The accept loop of the HTTPS port survives errors that nobody expects."""

import asyncio
import socket
import ssl
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrord.config.value_parsers import HostPort
from mirrord.daemon.tls_listener import TlsListener, listening_sockets
from tests.fixtures.supervision import eventually


async def test_the_port_still_accepts_after_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    accept, calls = loop.sock_accept, 0

    async def fail_once(listening: socket.socket) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError("x")
        return await accept(listening)

    monkeypatch.setattr(loop, "sock_accept", fail_once)
    sockets = await listening_sockets(HostPort("127.0.0.1", 0))
    port = sockets[0].getsockname()[1]
    with capture_logs() as events:
        listener = TlsListener(sockets, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), asyncio.Protocol, 5, 60.0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        # It waits for the client's part of the handshake.
        await eventually(lambda: listener._handshakes)  # pyright: ignore[reportPrivateUsage]
        writer.close()
        listener.close()
    assert [event["event"] for event in events] == ["http_listener_failed"]
