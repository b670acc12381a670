"""aiokafka's own clients meet a broker with hostile answers: the admin client, and the producer of dead letters."""

import asyncio
import resource
import struct
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, client
from aiokafka.errors import KafkaConnectionError

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Secret, Security
from mirrord.kafka.client import checked_connection
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.topic_admin import Admin
from tests.unit.kafka.client.test_connection import announces_two_gibibytes, scram_broker, server

TIMEOUT_S = 20


@pytest.fixture
def scram(tmp_path: Path) -> Security:
    path = tmp_path / "password"
    path.write_text("swordfish")
    return Security("SASL_PLAINTEXT", "SCRAM-SHA-512", "mirrord", Secret.parse(f"file:{path}"))


async def announces_them_later(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """It answers the first request, about the versions of its API. Its answer to the next one does not end."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    _, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
    versions = [(3, 0, 1), (18, 0, 0)]
    body = struct.pack(">hi", 0, len(versions)) + b"".join(struct.pack(">hhh", *row) for row in versions)
    writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)
    await announces_two_gibibytes(reader, writer)


def grown(before: int) -> int:
    """Return by how many MiB the peak of this process's memory has grown."""
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10


def admin(port: int, security: Security | None = None) -> Admin:
    return Admin(ClusterConfig(bootstrap=(f"127.0.0.1:{port}",), security=security or Security()), TIMEOUT_S)


def test_what_is_replaced_in_aiokafka_is_there() -> None:
    assert getattr(client, checked_connection.REPLACED).__module__ == checked_connection.__name__


@pytest.mark.parametrize("serve", [announces_two_gibibytes, announces_them_later])
async def test_an_admin_client_does_not_read_two_gibibytes(serve: Any) -> None:
    async with server(serve) as port:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(Unreachable):
            async with admin(port):
                pass
        assert grown(before) < 300


@pytest.mark.parametrize("first", ["s=c2FsdA==,i=2147483647", "s=c2FsdA==,i=1", "i=4096", "s=A,i=4096"])
async def test_an_admin_client_does_not_compute_for_hours(first: str, scram: Security) -> None:
    async with server(scram_broker(first)) as port:
        with pytest.raises(Unreachable) as refused:
            async with admin(port, scram):
                pass
    assert "swordfish" not in str(refused.value)


async def test_a_producer_does_not_compute_for_hours(scram: Security) -> None:
    async with server(scram_broker("s=c2FsdA==,i=2147483647")) as port:
        writer: Any = AIOKafkaProducer(
            bootstrap_servers=f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-512",
            sasl_plain_username=scram.username,
            sasl_plain_password="swordfish",
        )
        with pytest.raises(KafkaConnectionError, match="Unable to bootstrap"):
            await writer.start()
        await writer.stop()
