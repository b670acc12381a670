"""What the cluster answers when it is asked for its client quotas."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin, RequestRefused
from mirrord.model.quotas import ClientQuota
from tests.unit.kafka.client.test_connection import server
from tests.unit.kafka.protocol.test_golden import golden

OFFERED = (48, 0, 1)
BEFORE_FLEXIBLE = (48, 0, 0)
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def broker(answer: bytes, *offered: tuple[int, int, int]) -> Serve:
    """A broker that gives this answer to everything but ApiVersions."""
    versions = [(3, 0, 13), (18, 0, 0), *offered]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(4):
            (size,) = struct.unpack(">i", head)
            api, _, correlation_id = struct.unpack_from(">hhi", await reader.readexactly(size))
            body = b"\0" + answer
            if api == 18:
                body = struct.pack(">hi", 0, len(versions)) + b"".join(struct.pack(">hhh", *row) for row in versions)
            writer.write(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    return serve


async def ask(serve: Serve) -> frozenset[ClientQuota]:
    async with server(serve) as port:
        admin = KafkaUpkeepAdmin(ClusterConfig((f"127.0.0.1:{port}",), Security()), 20.0)
        try:
            return await admin.quotas()
        finally:
            await admin.close()


async def test_all_quotas_are_returned() -> None:
    found = await ask(broker(golden("DescribeClientQuotasResponse", 1), OFFERED))
    assert sorted(map(str, found)) == [
        "producer_byte_rate=1048576 for user ada",
        "producer_byte_rate=1048576 for user ada, client-id <default>",
        "request_percentage=12.5 for user ada, client-id <default>",
    ]


async def test_a_missing_permission_is_named() -> None:
    with pytest.raises(RequestRefused) as refused:
        await ask(broker(golden("DescribeClientQuotas refused", 1), OFFERED))
    assert f"{refused.value}" == ("CLUSTER_AUTHORIZATION_FAILED: may not; DESCRIBE_CONFIGS on the cluster is missing")
    other = struct.pack(">ih", 0, 35) + b"\0\0\0"
    with pytest.raises(RequestRefused, match="UNSUPPORTED_VERSION"):
        await ask(broker(other, OFFERED))


@pytest.mark.parametrize("offered", [(), (BEFORE_FLEXIBLE,)])
async def test_an_old_broker_does_not_offer_the_request(offered: tuple[tuple[int, int, int], ...]) -> None:
    with pytest.raises(NotOffered, match="DescribeClientQuotas"):
        await ask(broker(b"", *offered))
