"""Finds the topics that a flow selects for the first time, resolves the start offsets of their partitions, and stores
these offsets in the ledger.

The offsets are stored before target topics are created and before lanes open. An outage of the target, a pause or a
conflict therefore cannot change the offset at which a partition begins (see `mirrord.ledger.start_offsets`).
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec
import structlog

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Secret
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.partition_queries import NO_TOPIC, Asks, start_offset
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import ConfigChanged
from mirrord.ledger.facts.start_offsets import UNRESOLVED, Selected, TopicStarts
from mirrord.ledger.start_offsets import first_selected, resolvable
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from policies.flow_policies import selection_of

ANSWER_S = 5.0
"""Time limit in seconds for resolving start offsets. Missing offsets are requested again when discovery next
refreshes."""
RETRY_S = 0.2
PARTITIONS_AT_ONCE = 10_000
"""Maximum number of partitions in one request and in one fact. Each fact must fit in one record."""

log = structlog.get_logger()


def _reference(secret: Secret) -> str:
    return secret.reference


class FirstLook:
    """Resolves the start offsets of the topics that a flow's configuration selects."""

    def __init__(self, flow: FlowConfig, source: ClusterConfig) -> None:
        self._flow = flow
        self._source = source
        settings = json.dumps(flow.select_settings, sort_keys=True, default=_reference)
        policy = f"{flow.select} {settings}" if flow.select else ""
        self._selected = Selected(flow.topics, flow.exclude, policy)

    async def note(self, topics: Sequence[Topic], cluster_id: ClusterId, recorder: Recorder) -> None:
        """Record the selected topics that are seen for the first time, with their start offsets.

        Raises EnvironmentFault if the topics cannot be written to the ledger. Until they are written, no lane of these
        topics may open.
        """
        state = recorder.state
        if missing := resolvable(state, topics, self._flow.start_at):
            await self._keep(recorder, missing, cluster_id)
        if state.selected != self._selected:
            new = first_selected(state, topics, self._selection_before(state.selected))
            for chunk in _chunks(new):
                blank = [TopicStarts(each.name, each.topic_id, "earliest", _blank(each.partitions)) for each in chunk]
                await self._keep(recorder, blank, cluster_id)
            await _write(recorder, ConfigChanged((), selected=self._selected))

    def _selection_before(self, selected: Selected | None) -> Callable[[str], bool]:
        if selected is None or selected.policy != self._selected.policy:
            return lambda _: False
        try:
            flow = msgspec.structs.replace(self._flow, topics=selected.topics, exclude=selected.exclude)
            selection = selection_of(flow)
        except re.error:
            return lambda _: True
        return lambda topic: selection.refusal(topic) is None

    async def _keep(self, recorder: Recorder, starts: Sequence[TopicStarts], cluster_id: ClusterId) -> None:
        asked = [
            PartitionId(each.topic, each.topic_id, partition)
            for each in starts
            if self._flow.start_at(each.topic) != "earliest"
            for partition, offset in enumerate(each.offsets)
            if offset == UNRESOLVED
        ]
        found = await self._offsets(asked, cluster_id) if asked else {}
        resolved = tuple(self._resolved(each, found) for each in starts)
        kept = tuple(each for each in resolved if recorder.state.starts.get(each.topic_id) != each)
        if kept:
            await _write(recorder, ConfigChanged((), kept))
            log.info("starts_resolved", flow=self._flow.name, topics=len(kept), partitions=len(found))

    def _resolved(self, starts: TopicStarts, found: Mapping[PartitionId, int]) -> TopicStarts:
        offsets = (
            found.get(PartitionId(starts.topic, starts.topic_id, partition), offset) if offset == UNRESOLVED else offset
            for partition, offset in enumerate(starts.offsets)
        )
        return TopicStarts(starts.topic, starts.topic_id, self._flow.start_at(starts.topic), tuple(offsets))

    async def _offsets(self, partitions: Iterable[PartitionId], cluster_id: ClusterId) -> dict[PartitionId, int]:
        """Return the start offset of each partition, according to the configuration. Partitions whose leader does not
        answer in time are omitted."""
        options = ConnectionOptions(request_timeout_s=ANSWER_S)
        view = ClusterView(self._flow.source, self._source, BufferPool(), options, cluster_id)
        asks = Asks(view, read_committed=self._flow.isolation == "read_committed")
        found: dict[PartitionId, int] = {}

        async def find(partition: PartitionId) -> None:
            while True:
                try:
                    found[partition] = await start_offset(asks, partition, self._flow.start_at(partition.topic))
                except ReadFailed as failure:
                    if failure.error != NO_TOPIC:
                        await asyncio.sleep(RETRY_S)
                        continue
                return

        view.start()
        try:
            for topic, topic_id in {(each.topic, each.topic_id) for each in partitions}:
                view.watch(topic, topic_id)
            async with asyncio.timeout(ANSWER_S):
                await asyncio.gather(*map(find, partitions))
        except TimeoutError:
            pass  # the missing offsets are requested again at the next refresh
        finally:
            asks.close()
            await view.close()
        return found


async def _write(recorder: Recorder, fact: ConfigChanged) -> None:
    if not await recorder.write_now(fact):
        raise EnvironmentFault("the ledger does not accept the start offsets")


def _blank(partitions: int) -> tuple[int, ...]:
    return (UNRESOLVED,) * partitions


def _chunks(topics: Iterable[Topic]) -> Iterator[list[Topic]]:
    chunk: list[Topic] = []
    size = 0
    for topic in topics:
        size += topic.partitions + 10  # the topic's name and id take about as much space as 10 partitions
        if chunk and size > PARTITIONS_AT_ONCE:
            yield chunk
            chunk, size = [], topic.partitions + 10
        chunk.append(topic)
    if chunk:
        yield chunk
