"""Reads the effective configs of topics and brokers: the values that apply, regardless of who set them."""

# pyright: reportMissingTypeStubs=false

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.topic_admin import Admin

TOPICS_AT_ONCE = 500
_OF_TOPIC = 1
"""org.apache.kafka.clients.admin.ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, as encoded in the protocol."""


class Effective(NamedTuple):
    """Configs by name, and the names of those that are set on the topic itself."""

    values: dict[str, str]
    own: frozenset[str]


async def topic_settings(
    cluster: ClusterConfig, topics: Sequence[str], keys: Iterable[str], timeout_s: float
) -> dict[str, Effective]:
    """Return these configs of each topic that mirrord may describe; other topics are omitted. Raises Unreachable."""
    wanted = dict.fromkeys(keys)
    found: dict[str, Effective] = {}
    async with Admin(cluster, timeout_s) as admin:
        for first in range(0, len(topics), TOPICS_AT_ONCE):
            some = topics[first : first + TOPICS_AT_ONCE]
            resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict(wanted)) for name in some]
            for code, name, entries in _resources(await admin.describe_configs(resources)):
                if code == 0:
                    values = {entry[0]: entry[1] for entry in entries if entry[1] is not None}
                    found[name] = Effective(values, frozenset(entry[0] for entry in entries if entry[3] == _OF_TOPIC))
    return found


async def broker_settings(
    cluster: ClusterConfig, node: int, keys: Iterable[str], timeout_s: float
) -> dict[str, str] | None:
    """Return these configs of one broker, or None if mirrord may not describe them. Raises Unreachable."""
    wanted = ConfigResource(ConfigResourceType.BROKER, str(node), dict.fromkeys(keys))
    async with Admin(cluster, timeout_s) as admin:
        for code, _, entries in _resources(await admin.describe_configs([wanted])):
            if code == 0:
                return {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return None


def _resources(answers: object) -> list[tuple[int, str, list[tuple[Any, ...]]]]:
    """Return the error code, the name and the entries of each resource."""
    resources = (resource for answer in cast(Any, answers) for resource in answer.resources)
    return [(code, name, entries) for code, _, _, name, entries in resources]
