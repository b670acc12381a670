"""Fences former producers off at the target, so that it refuses batches which a suspended process sends late."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import Asker, BrokerAddress, NotOffered
from mirrord.kafka.protocol.api_versions import WRITE_TXN_MARKERS
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.metadata import Metadata
from mirrord.kafka.protocol.transaction_markers import (
    AbortMarker,
    MarkedPartition,
    decode_markers,
    encode_abort_markers,
)
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias
from mirrord.supervision.rules.producer_fence import (
    COORDINATOR_EPOCH,
    LAST_EPOCH,
    FormerProducer,
    fence_line,
    marker_result,
    reason,
)

ANSWER_S = 10.0
"""Time limit for one request."""
PATIENCE_S = 15.0
"""After this time, a failover continues without the partitions whose leaders do not write the markers."""
PAUSE_S = 0.2
AT_ONCE = 500
"""Maximum number of markers in one request. A broker appends the markers of a request one after another."""
_NOWHERE = MarkedPartition(0, ":", 0)
"""A partition that cannot exist, because no topic can have this name (org.apache.kafka.common.internals.Topic)."""

log = structlog.get_logger()


async def fence_off(alias: Alias, cluster: ClusterConfig, producers: Sequence[FormerProducer]) -> str:
    """Write a marker with a higher epoch for each of these producers. Return one line for operators. A repetition is
    harmless: a marker takes an offset that consumers do not see.

    Raises EnvironmentFault if no broker answers.
    """
    fence = _Fence(alias, cluster)
    try:
        await fence.write(producers)
    finally:
        fence.close()
    if fence.refused:
        log.warning("late_batches_not_fenced_off", cluster=alias, partitions=len(fence.refused))
    return fence_line(fence.fenced, fence.refused)


class FenceObstacle(NamedTuple):
    """Why a cluster would not write markers for mirrord."""

    is_permission: bool
    """Whether a permission is missing. Otherwise, the brokers do not support the request."""
    line: str


async def fence_obstacle(alias: Alias, cluster: ClusterConfig, timeout_s: float) -> FenceObstacle | None:
    """Return why the cluster would not write markers for mirrord, or None. Nothing is changed: the marker of the test
    request is for a partition that cannot exist. Raises EnvironmentFault if the cluster does not answer.

    A broker checks the permission first (kafka.server.KafkaApis).
    """
    asker = Asker(cluster, timeout_s)
    try:
        errors = await _write(asker, [AbortMarker(_NOWHERE, 0, COORDINATOR_EPOCH)], None)
    except NotOffered as fault:
        return FenceObstacle(False, f"{alias}: {fault}")
    finally:
        asker.close()
    error = errors.get(_NOWHERE, int(ErrorCode.NONE))
    if error != ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return None
    return FenceObstacle(True, f"{alias}: {reason(error)}")


async def _write(asker: Asker, markers: Sequence[AbortMarker], at: BrokerAddress | None) -> dict[MarkedPartition, int]:
    body = encode_abort_markers(markers)
    return await asker.ask(WRITE_TXN_MARKERS, lambda _: body, lambda _, reader: decode_markers(reader), at)


class _Fence:
    """Sends the markers to the leaders of their partitions."""

    def __init__(self, alias: Alias, cluster: ClusterConfig) -> None:
        self.fenced: set[MarkedPartition] = set()
        """The producers that are fenced off."""
        self.refused: dict[MarkedPartition, str] = {}
        """Why the others are not. Producers whose topics are gone are in neither."""
        self._alias = alias
        self._cluster = cluster
        self._any = Asker(cluster, ANSWER_S)
        self._brokers: dict[BrokerAddress, Asker] = {}

    def close(self) -> None:
        """Close all connections."""
        for asker in (self._any, *self._brokers.values()):
            asker.close()

    async def write(self, producers: Sequence[FormerProducer]) -> None:
        """Write the markers. Raises EnvironmentFault if no broker answers."""
        last = f"{LAST_EPOCH} is the highest producer epoch"
        self.refused = {each.where: last for each in producers if each.epoch >= LAST_EPOCH}
        left = [each for each in producers if each.epoch < LAST_EPOCH]
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        while left:
            again = await self._round(left)
            left = [each for each in left if each.where in again]
            if left and loop.time() > until:
                self.refused |= again
                return
            if left:
                await asyncio.sleep(PAUSE_S)

    async def _round(self, producers: Sequence[FormerProducer]) -> dict[MarkedPartition, str]:
        """Ask each leader once. Return the partitions that are to be asked for again, with the reasons."""
        found = await self._described({each.where.topic for each in producers})
        brokers = {broker.node: (broker.host, broker.port) for broker in found.brokers}
        topics = {each.name: each for each in found.topics}
        by_leader: dict[BrokerAddress, list[AbortMarker]] = {}
        again: dict[MarkedPartition, str] = {}
        for each in producers:
            topic = topics.get(each.where.topic)
            if topic is None or (not topic.error and topic.id != each.topic_id):
                continue  # it is gone, and nothing can arrive there
            node = next((known.leader for known in topic.partitions if known.partition == each.where.partition), -1)
            if node in brokers:
                by_leader.setdefault(brokers[node], []).append(each.marker)
            else:
                again[each.where] = ErrorCode.name_of(topic.error) if topic.error else "it has no leader"
        for answers in await asyncio.gather(*(self._at(*each) for each in by_leader.items())):
            for where, answer in answers.items():
                self._take(where, answer, again)
        return again

    async def _described(self, names: set[str]) -> Metadata:
        """Return the metadata without the topics that are gone. A broker that is cut off may not know a topic."""
        found = await self._any.ask_metadata(sorted(names))
        self._any.brokers = tuple((broker.host, broker.port) for broker in found.brokers)
        unknown = {
            each.name for each in found.topics if each.name and each.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        elsewhere = await self._any.known_elsewhere(unknown, found.cluster_id) if unknown else {}
        topics = [each for each in found.topics if each.name not in unknown]
        return msgspec.structs.replace(found, topics=[*topics, *elsewhere.values()])

    def _take(self, where: MarkedPartition, answer: int | EnvironmentFault, again: dict[MarkedPartition, str]) -> None:
        if isinstance(answer, NotOffered):
            self.refused[where] = f"{self._alias}: {answer}"
        elif isinstance(answer, EnvironmentFault):
            again[where] = str(answer)
        elif (result := marker_result(answer)) == "fenced":
            self.fenced.add(where)
        elif result == "again":
            again[where] = reason(answer)
        else:
            self.refused[where] = f"{self._alias}: {reason(answer)}"

    async def _at(
        self, address: BrokerAddress, markers: Sequence[AbortMarker]
    ) -> dict[MarkedPartition, int | EnvironmentFault]:
        if address not in self._brokers:
            self._brokers[address] = Asker(self._cluster, ANSWER_S)
        answers: dict[MarkedPartition, int | EnvironmentFault] = {}
        silent = EnvironmentFault("the answer of its leader does not mention it")
        for first in range(0, len(markers), AT_ONCE):
            part = markers[first : first + AT_ONCE]
            try:
                errors = await _write(self._brokers[address], part, address)
            except EnvironmentFault as fault:
                return answers | dict.fromkeys((each.where for each in markers[first:]), fault)
            answers |= {each.where: errors.get(each.where, silent) for each in part}
        return answers
