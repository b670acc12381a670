"""How long the target remembers a producer: the setting that says how far its refusal of repeated batches is to be
relied on."""

# pyright: reportMissingTypeStubs=false

from typing import Any, cast

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrord.model.config import ClusterConfig
from mirrord.shell.topics import Admin

EXPIRY = "producer.id.expiration.ms"
OLD_EXPIRY = "transactional.id.expiration.ms"
"""What counted before Kafka 3.4 (KIP-854)."""


async def producer_expiry_ms(cluster: ClusterConfig, node: int, timeout_s: float) -> int | None:
    """The setting of a broker, or None when it may not be seen. Raises Unreachable."""
    wanted = ConfigResource(ConfigResourceType.BROKER, str(node), {EXPIRY: None, OLD_EXPIRY: None})
    async with Admin(cluster, timeout_s) as admin:
        answers = cast(Any, await admin.describe_configs([wanted]))
    found: dict[str, str] = {}
    for code, _, _, _, entries in (resource for answer in answers for resource in answer.resources):
        if code == 0:
            found |= {key: value for key, value, *_ in entries}
    told = found.get(EXPIRY) or found.get(OLD_EXPIRY)
    return int(told) if told else None
