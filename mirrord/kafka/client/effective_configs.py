"""Reads the effective configs of topics and brokers. An effective config is the value that applies, whether it is set
on the topic, on the broker, or by default."""

# pyright: reportMissingTypeStubs=false

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.topic_admin import Admin

TOPICS_AT_ONCE = 500
_OF_TOPIC = 1
"""The code of ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG (org.apache.kafka.clients.admin) in the protocol."""


class Effective(NamedTuple):
    """The effective configs of a topic by name, and the names of the configs that are set on the topic itself."""

    values: dict[str, str]
    own: frozenset[str]


async def topic_settings(
    cluster: ClusterConfig, topics: Sequence[str], keys: Iterable[str], timeout_s: float
) -> dict[str, Effective]:
    """Return the configs with these names for each topic. A topic is omitted if its configs cannot be read, for example
    because mirrord lacks the permission. Raises Unreachable."""
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
    """Return the configs with these names for one broker. Return None if they cannot be read, for example because
    mirrord lacks the permission. Raises Unreachable."""
    wanted = ConfigResource(ConfigResourceType.BROKER, str(node), dict.fromkeys(keys))
    async with Admin(cluster, timeout_s) as admin:
        for code, _, entries in _resources(await admin.describe_configs([wanted])):
            if code == 0:
                return {entry[0]: entry[1] for entry in entries if entry[1] is not None}
    return None


def _resources(answers: object) -> list[tuple[int, str, list[tuple[Any, ...]]]]:
    """Return the error code, the name and the config entries of each resource in the answers."""
    resources = (resource for answer in cast(Any, answers) for resource in answer.resources)
    return [(code, name, entries) for code, _, _, name, entries in resources]
