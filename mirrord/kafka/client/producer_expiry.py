"""Reads how long the target's brokers remember an idle producer. After that time, a broker may append a batch a second
time if it is sent again."""

# pyright: reportMissingTypeStubs=false

from collections.abc import Callable
from typing import Any, cast

import structlog
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.reconnecting_link import Backoff
from mirrord.kafka.client.topic_admin import Admin
from mirrord.model.errors import MirrordError
from mirrord.runtime.clock import Clock

EXPIRY = "producer.id.expiration.ms"
OLD_EXPIRY = "transactional.id.expiration.ms"
"""The config that determines the same time on brokers older than Kafka 3.4 (KIP-854)."""

LOOK_S = 300.0
"""Interval between two reads of the config, in seconds. The config is read again because it can change while brokers
are running."""
TIMEOUT_S = 5.0
NOT_VISIBLE = 0
"""The assumed time, in milliseconds, for which a broker remembers an idle producer if mirrord is not allowed to read
the config. With this value, every lane counts as unprotected."""

log = structlog.get_logger()


async def producer_expiry_ms(cluster: ClusterConfig, node: int, timeout_s: float) -> int | None:
    """Return how long a broker remembers an idle producer, in milliseconds. Return None if mirrord is not allowed to
    read the config. Raises Unreachable."""
    wanted = ConfigResource(ConfigResourceType.BROKER, str(node), {EXPIRY: None, OLD_EXPIRY: None})
    async with Admin(cluster, timeout_s) as admin:
        answers = cast(Any, await admin.describe_configs([wanted]))
    found: dict[str, str] = {}
    for code, _, _, _, entries in (resource for answer in answers for resource in answer.resources):
        if code == 0:
            found |= {key: value for key, value, *_ in entries}
    configured = found.get(EXPIRY) or found.get(OLD_EXPIRY)
    return int(configured) if configured else None


class ProducerExpiry:
    """Tracks the time for which the brokers of one cluster remember an idle producer.

    Brokers may have different values for the config. Any of them may become a partition's leader, so the shortest value
    applies.
    """

    def __init__(self, alias: str, cluster: ClusterConfig, nodes: Callable[[], list[int]], clock: Clock) -> None:
        """`nodes` returns the ids of the brokers that are currently known."""
        self._alias = alias
        self._cluster = cluster
        self._nodes = nodes
        self._clock = clock
        self._known: dict[int, int] = {}
        """The latest answer from each broker, in milliseconds, by node id."""
        self._warned = False

    @property
    def shortest_ms(self) -> int:
        """The shortest time, in milliseconds, for which a broker remembers an idle producer. Only brokers that have
        answered are considered."""
        return min(self._known.values(), default=NOT_VISIBLE)

    async def until_known(self) -> None:
        """Wait until one broker has reported how long it remembers an idle producer. This wait does not delay any lane,
        because lanes cannot write while no broker answers."""
        backoff = Backoff()
        while True:
            for node in self._nodes():
                if await self._ask(node):
                    return
            await self._clock.sleep(backoff.next_s())

    async def follow(self, report: Callable[[int], None]) -> None:
        """Every `LOOK_S` seconds, ask all brokers how long they remember an idle producer. Pass the shortest time, in
        milliseconds, to `report`."""
        while True:
            nodes = self._nodes()
            for node in nodes:
                await self._ask(node)
            # If a broker does not answer this time, its previous answer still counts. Brokers that have left the
            # cluster are forgotten.
            self._known = {node: expiry for node, expiry in self._known.items() if node in nodes}
            if self._known:
                report(self.shortest_ms)
            await self._clock.sleep(LOOK_S)

    async def _ask(self, node: int) -> bool:
        try:
            expiry_ms = await producer_expiry_ms(self._cluster, node, TIMEOUT_S)
        except MirrordError:
            return False
        self._known[node] = NOT_VISIBLE if expiry_ms is None else expiry_ms
        if expiry_ms is None and not self._warned:
            log.warning("producer_expiry_unknown", cluster=self._alias, line="no lane counts as protected")
        self._warned = expiry_ms is None
        return True
