"""Propagates topic deletions: if a source topic no longer exists, its target topic is deleted after a grace period.

`mirrord.topics.rules.deletions` decides which target topics are deleted. A target topic that contains records from
other writers is not deleted.
"""

from collections.abc import Awaitable, Callable, Container, Sequence
from contextlib import aclosing
from functools import partial

import structlog

from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.kafka.client.bulk_log_reader import LogReader, open_logs
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.ledger.facts.core import AnyFact, TopicDeleted
from mirrord.ledger.folding.failovers import has_ended
from mirrord.ledger.foreign_writes import own_ranges
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.names import Alias, TopicId, TopicPartition
from mirrord.runtime.clock import Clock
from mirrord.topics.discovery import Discovered, DiscoveryPreview
from mirrord.topics.rules.deletions import DeletionsPlan, TopicCopy, plan_deletions, without_source
from mirrord.topics.rules.recreated_topic_names import copy_names
from mirrord.topics.rules.two_way_deletions import both_ways_deletions
from mirrord.topics.topic_claims import Claims
from policies.flow_policies import selection_of

ForeignRecord = Callable[[TopicCopy, FlowState], Awaitable[str]]
"""A function that searches a target topic for records that were not written by this flow. It returns the partition and
offset of the first such record as text, or an empty string if there is none."""

log = structlog.get_logger()


class DeletionSync:
    """Propagates the topic deletions of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        source: UpkeepAdmin,
        target: UpkeepAdmin,
        clock: Clock,
        foreign: ForeignRecord | None = None,
        flow_back: Callable[[], str] = str,
    ) -> None:
        """`foreign` searches a target topic for records from other writers. `flow_back` returns the name of a flow that
        copies topics with the same names in the opposite direction, or an empty string if there is none."""
        self._flow = flow
        self._source = source
        self._target = target
        self._clock = clock
        self._foreign = foreign
        self._flow_back = flow_back
        self.deleted: set[TopicId] = set()
        """Target topics that this object has deleted and whose lanes are still in the ledger."""
        self._kept: dict[TopicId, str] = {}
        """For each target topic that contains records from other writers: a line for operators that says why the
        topic is not deleted."""
        self.remarks: tuple[str, ...] = ()
        """Remarks for operators, one line each. They concern target topics that will be deleted, and target topics that
        are kept although their source topics no longer exist."""

    async def round(self, discovered: Discovered, ledger: FlowState, recorder: Recorder) -> None:
        """Plan and carry out the deletions that follow from `discovered`, the latest discovery result. Raises
        EnvironmentFault if a cluster does not answer, or if the target refuses a deletion."""
        copies, back = copies_of(ledger), self._flow_back()
        present = {copy.topic_id for copy in copies}
        self._kept = {topic_id: line for topic_id, line in self._kept.items() if topic_id in present}
        self.deleted &= {lane.key.target_topic_id for lane in ledger.lanes.values()} if self.deleted else set()
        wanted = self._flow.propagate_deletes and not back
        gone: list[TopicCopy] = []
        if self._flow.propagate_deletes:
            gone = await gone_copies(self._flow, discovered, ledger, self._source)
        plan = plan_deletions(copies, gone, self._clock.wall_ms(), self._flow.delete_grace_ms, wanted=wanted)
        for fact in plan.facts:
            log.warning("topic_deletion", flow=self._flow.name, topic=fact.target_topic, kind=type(fact).__name__)
        facts: list[AnyFact] = list(plan.facts)
        written = await recorder.write(facts)
        refused: dict[str, str] = {}
        due = [copy for copy in plan.due if not await self._keeps(copy, ledger)] if written else []
        if due:
            answers = await self._target.delete([copy.topic_id for copy in due])
            refused = {copy.topic: answers[copy.topic_id] for copy in due if copy.topic_id in answers}
            done = [copy for copy in due if copy.topic not in refused]
            for copy in done:
                log.warning("topic_deleted", flow=self._flow.name, topic=copy.topic)
                self.deleted.add(copy.topic_id)
            await recorder.write(TopicDeleted(copy.topic, copy.topic_id) for copy in done)
        self.remarks = self._lines(plan, [copy.topic for copy in gone] if back else [], back)
        if refused:
            topic, reason = next(iter(refused.items()))
            need = "; DELETE is missing" if "AUTHORIZATION" in reason else ""
            raise EnvironmentFault(f"the target topic {topic} cannot be deleted: {reason}{need}")

    async def _keeps(self, copy: TopicCopy, ledger: FlowState) -> bool:
        """Return whether a target topic must be kept because it contains records from other writers. Raises
        EnvironmentFault if the topic cannot be read."""
        if self._foreign is not None and copy.topic_id not in self._kept:
            where = await self._foreign(copy, ledger)
            if where:
                line = f"{copy.topic} is kept, although {copy.source_topic} no longer exists: {where} is not a copy"
                self._kept[copy.topic_id] = f"{line}; delete it by hand if it is not needed"
                log.warning("topic_not_deleted", flow=self._flow.name, topic=copy.topic, reason=line)
        return copy.topic_id in self._kept

    def _lines(self, plan: DeletionsPlan, both_ways: Sequence[str], back: str) -> tuple[str, ...]:
        waiting = [copy.topic for copy in plan.waiting]
        lines = [f"to be deleted, because their source topics no longer exist: {', '.join(waiting)}"] if waiting else []
        if both_ways:
            lines.append(both_ways_deletions(back, both_ways))
        return (*lines, *(self._kept[copy.topic_id] for copy in plan.due if copy.topic_id in self._kept))


async def gone_copies(
    flow: FlowConfig, seen: Discovered | DiscoveryPreview, ledger: FlowState, source: UpkeepAdmin
) -> list[TopicCopy]:
    """Return the flow's target topics whose source topics no longer exist.

    Raises EnvironmentFault if the source does not answer.
    """
    names = copy_names(ledger, flow)
    copy_of = selection_of(flow).copy_of
    found = without_source(copies_of(ledger), seen.source.topics, seen.target.topics, copy_of, names)
    if not found.unseen:
        return found.replaced
    missing = await source.missing([copy.source_topic for copy in found.unseen])
    return [*found.replaced, *(copy for copy in found.unseen if copy.source_topic in missing)]


def copies_of(ledger: FlowState) -> list[TopicCopy]:
    """Return the target topics that, according to the ledger, mirrord has created and has not deleted. Those whose
    copying a failover has ended are omitted: clients use them."""
    return [
        TopicCopy(topic.topic, topic.topic_id, topic.source_topic, topic.delete_at_ms, topic.source_topic_id)
        for topic in ledger.topics.values()
        if topic.created and not has_ended(ledger.recoveries, topic.source_topic)
    ]


async def foreign_record(alias: Alias, cluster: ClusterConfig, copy: TopicCopy, ledger: FlowState) -> str:
    """Search a target topic for records that were not written by a lane of the flow. Return the partition and offset of
    the first such record as text, or an empty string if there is none or the topic no longer exists.

    The ledger contains the target offsets of the records that the flow has copied. Only the remaining offsets are read.
    Raises EnvironmentFault if the target topic cannot be read.
    """
    ours = {lane.producer_id for lane in ledger.lanes.values() if lane.key.target_topic_id == copy.topic_id}
    try:
        async with open_logs(alias, cluster, {copy.topic}) as logs:
            for partition in range(logs.topics[copy.topic].partitions):
                named = TopicPartition(copy.topic, partition)
                whole = await logs.bounds(named, committed=False)
                for part in uncovered(whole, own_ranges(ledger, copy.topic_id, partition)):
                    offset = await _first_of_others(logs, named, part, ours)
                    if offset is not None:
                        return f"{named} offset {offset}"
    except ConfigError:
        return ""
    return ""


async def _first_of_others(logs: LogReader, named: TopicPartition, part: Interval, ours: Container[int]) -> int | None:
    async with aclosing(logs.read(named, *part, committed=False)) as batches:
        async for batch in batches:
            if batch.is_old or batch.header.producer_id not in ours:
                return max(batch.header.base_offset, part[0])
    return None


def deletion_guards(
    flow: FlowConfig, config: Config, claims: Claims
) -> tuple[Callable[[TopicCopy, FlowState], Awaitable[str]], Callable[[], str]]:
    """Return the two functions with which `DeletionSync` checks whether a target topic may be deleted. The first calls
    `foreign_record`, which searches the topic for records from other writers. The second returns the name of a flow
    that copies topics with the same names in the opposite direction, or an empty string if there is none.
    """
    return partial(foreign_record, flow.target, config.clusters[flow.target]), partial(claims.flow_back, flow)
