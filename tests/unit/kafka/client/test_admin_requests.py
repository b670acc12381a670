"""The client for infrequent requests."""

import asyncio
import struct

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client.admin_requests import Asker, NotOffered
from mirrord.kafka.protocol.api_versions import METADATA
from tests.fixtures.fake_pipe import until
from tests.unit.kafka.client.test_connection import server

TOO_OLD = [(3, 0, 1), (18, 0, 0)]
NEW = [(2, 1, 11), (3, 0, 13), (18, 0, 0)]


class UpgradedBroker:
    """A broker that closes its connections when it is upgraded. It answers all requests but ApiVersions with 'ok'."""

    def __init__(self) -> None:
        self.versions = TOO_OLD
        self.connections = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        while head := await reader.read(4):
            (size,) = struct.unpack(">i", head)
            api, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
            body = b"\0ok"
            if api == 18:
                rows = b"".join(struct.pack(">hhh", *row) for row in self.versions)
                body = struct.pack(">hi", 0, len(self.versions)) + rows
            writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def upgrade(self) -> None:
        self.versions = NEW
        for writer in self._open:
            writer.close()


async def ask(asker: Asker) -> bytes:
    return await asker.ask(METADATA, lambda _: b"", lambda _, reader: bytes(reader.buffer[reader.position :]))


async def test_an_upgraded_broker_offers_what_it_did_not_offer_before() -> None:
    broker = UpgradedBroker()
    async with server(broker.serve) as port:
        asker = Asker(ClusterConfig((f"127.0.0.1:{port}",), Security()), 20.0)
        for _ in range(2):
            with pytest.raises(NotOffered, match="Metadata in versions 0 to 1"):
                await ask(asker)
        assert broker.connections == 1, "the same broker offers the same on every connection"
        broker.upgrade()
        connection = asker._connection  # pyright: ignore[reportPrivateUsage]
        assert connection is not None
        await until(lambda: connection.pipe.lost is not None)
        assert (await ask(asker))[-2:] == b"ok"
        assert broker.connections == 2
        asker.close()
