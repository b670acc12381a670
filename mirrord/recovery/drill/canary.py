"""Exercises the write path of the target as an application does, in a topic that is deleted afterwards.

The topic and the consumer group have a fixed name, so that a drill also removes what a killed drill has left.
"""

# pyright: reportMissingTypeStubs=false

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.kafka.client.credentials import client_options
from mirrord.kafka.client.group_admin import LATER, GroupAdmin
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.topic import BROKER_DEFAULT, TopicShape
from mirrord.model.errors import EnvironmentFault, MirrordError

STOP_S = 5.0
"""Time limit for a client to stop. A producer would try forever to send what it has not sent yet."""
STEP_S = 15.0
"""Time limit for each step of the canary."""
POLL_S = 0.1
_RECORDS = 3
_SETTINGS = {"cleanup.policy": "delete", "retention.ms": "3600000"}
"""If a drill is killed and none follows, at least the records expire."""


class CanaryFailed(EnvironmentFault):
    """Raised when a step does not succeed. The message is a finding."""


class Canary:
    """A topic and a consumer group on the target that exist only during a drill."""

    def __init__(
        self, name: str, target: ClusterConfig, topics: TopicAdmin, upkeep: UpkeepAdmin, groups: GroupAdmin
    ) -> None:
        """`name` is the name of the topic and of the group."""
        self._name = name
        self._target = target
        self._topics = topics
        self._upkeep = upkeep
        self._groups = groups

    async def run(self, replication_factor: int | None) -> None:
        """Create the topic, write records, read them, commit an offset, and delete the topic and the group.

        `replication_factor` is None for the default of the cluster. Raises CanaryFailed with the first step that did
        not succeed. What was created is deleted even then, if the target permits it.
        """
        async with self._step("delete"):
            await self._remove()
        try:
            async with self._step("create"):
                await self._create(BROKER_DEFAULT if replication_factor is None else replication_factor)
            await self._use([secrets.token_bytes(16) for _ in range(_RECORDS)])
        finally:
            async with self._step("delete"):
                await self._remove()

    async def _create(self, replication_factor: int) -> None:
        shape = TopicShape(1, replication_factor, _SETTINGS)
        while refused := await self._topics.create({self._name: shape}):
            # A broker may still be deleting the topic of an earlier drill.
            if not refused[self._name].startswith(ErrorCode.TOPIC_ALREADY_EXISTS.name):
                raise CanaryFailed(f"the canary topic {self._name} cannot be created: {refused[self._name]}")
            await asyncio.sleep(POLL_S)

    async def _use(self, values: list[bytes]) -> None:
        options: dict[str, Any] = {
            "bootstrap_servers": list(self._target.bootstrap),
            **client_options(self._target.security),
        }
        async with self._step("write"):
            producer: Any = AIOKafkaProducer(acks="all", enable_idempotence=True, **options)
            try:
                await producer.start()
                for value in values:
                    await producer.send_and_wait(self._name, value, partition=0)
            finally:
                await _stop(producer)
        where = TopicPartition(self._name, 0)
        consumer: Any = AIOKafkaConsumer(
            group_id=self._name, enable_auto_commit=False, auto_offset_reset="earliest", **options
        )
        try:
            async with self._step("read"):
                await consumer.start()
                consumer.assign([where])
                found = [(await consumer.getone()).value for _ in values]
            if found != values:
                raise CanaryFailed(f"the canary topic {self._name} does not return what was written to it")
            async with self._step("commit an offset in"):
                await consumer.commit({where: _RECORDS})
                committed = await consumer.committed(where)
            if committed != _RECORDS:
                raise CanaryFailed(f"the target does not return the offset that was committed in {self._name}")
        finally:
            await _stop(consumer)

    async def _remove(self) -> None:
        """Delete the group and the topic, if they exist, and wait until they are gone."""
        error = await self._groups.delete(self._name)
        while error in LATER:
            await asyncio.sleep(POLL_S)
            error = await self._groups.delete(self._name)
        if error not in {0, ErrorCode.GROUP_ID_NOT_FOUND}:
            raise CanaryFailed(f"the consumer group {self._name} cannot be deleted: {ErrorCode.name_of(error)}")
        while (topic := (await self._topics.describe([self._name])).topics.get(self._name)) is not None:
            refused = await self._upkeep.delete([topic.topic_id])
            if refused:
                raise CanaryFailed(f"the canary topic {self._name} cannot be deleted: {next(iter(refused.values()))}")
            await asyncio.sleep(POLL_S)

    @asynccontextmanager
    async def _step(self, what: str) -> AsyncGenerator[None]:
        """Limit the time of a step. Raises CanaryFailed if the step does not succeed."""
        try:
            async with asyncio.timeout(STEP_S):
                yield
        except CanaryFailed:
            raise
        except TimeoutError:
            raise CanaryFailed(f"could not {what} the canary topic {self._name} within {STEP_S:g} s") from None
        except (KafkaError, MirrordError, OSError) as error:
            why = str(error) or type(error).__name__
            raise CanaryFailed(f"could not {what} the canary topic {self._name}: {why}") from error


async def _stop(client: Any) -> None:
    """Stop a client of aiokafka. If it does not stop in time, its tasks end with the event loop."""
    with suppress(TimeoutError, KafkaError, OSError):
        async with asyncio.timeout(STOP_S):
            await client.stop()
