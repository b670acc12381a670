"""Creates mirrord's own topics, such as the ledger topic. Each of these topics has one partition."""

import asyncio

from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.internal_topic_configs import IN_SYNC, MIN_IN_SYNC, REPLICAS
from mirrord.kafka.rules.topic import BROKER_DEFAULT, TopicShape, capped
from mirrord.model.errors import EnvironmentFault

_TOO_FEW_BROKERS = "INVALID_REPLICATION_FACTOR"
_NO_SUCH_SETTING = "INVALID_CONFIG"


def safe_shape(settings: dict[str, str], brokers: int) -> TopicShape:
    """Return the replication factor and the configs of a topic that must not lose records. `brokers` is the number of
    brokers in the cluster."""
    replicas = max(1, min(REPLICAS, brokers))
    return TopicShape(1, replicas, settings | {MIN_IN_SYNC: str(IN_SYNC if replicas == REPLICAS else 1)})


async def create(
    admin: TopicAdmin, name: str, shape: TopicShape, brokers: int, later: dict[str, str] | None = None
) -> None:
    """Create a topic. If the cluster has too few brokers, the topic gets fewer replicas. If the topic already exists,
    do nothing.

    `later` contains configs that only newer brokers support. If the broker refuses them, the topic is created without
    them. Raises EnvironmentFault.
    """
    settings = {**shape.settings, **(later or {})}
    replicas = shape.replication_factor
    refused = await _create(admin, name, TopicShape(shape.partitions, replicas, settings))
    if later and refused.startswith(_NO_SUCH_SETTING):
        settings = dict(shape.settings)
        refused = await _create(admin, name, TopicShape(shape.partitions, replicas, settings))
    if _TOO_FEW_BROKERS in refused and replicas != BROKER_DEFAULT and capped(replicas, brokers) < replicas:
        refused = await _create(admin, name, TopicShape(shape.partitions, capped(replicas, brokers), settings))
    if refused and not refused.startswith(ErrorCode.TOPIC_ALREADY_EXISTS.name):
        need = "; CREATE is missing" if "AUTHORIZATION" in refused else ""
        raise EnvironmentFault(f"the topic {name} cannot be created: {refused}{need}")


async def _create(admin: TopicAdmin, name: str, shape: TopicShape) -> str:
    return (await admin.create({name: shape})).get(name, "")


async def until_shown(admin: TopicAdmin, name: str, patience_s: float) -> None:
    """Wait until a broker lists a new topic. Immediately after a topic has been created, only the controller may know
    about it. Raises EnvironmentFault if no broker lists the topic within `patience_s` seconds."""
    try:
        async with asyncio.timeout(patience_s):
            while True:
                if name in (await admin.describe([name])).topics:
                    return
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise EnvironmentFault(f"the topic {name} was created, but no broker shows it") from None
