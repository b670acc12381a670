"""Checks whether a copy contains records of other writers, before it is deleted because its source topic is gone."""

from collections.abc import Awaitable, Callable, Container
from contextlib import aclosing
from functools import partial

from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.kafka.client.bulk_log_reader import LogReader, open_logs
from mirrord.ledger.foreign_writes import own_ranges
from mirrord.ledger.state import FlowState
from mirrord.model.errors import ConfigError
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.names import Alias, TopicPartition
from mirrord.topics.rules.deletions import TopicCopy
from mirrord.topics.topic_claims import Claims


async def foreign_record(alias: Alias, cluster: ClusterConfig, copy: TopicCopy, ledger: FlowState) -> str:
    """Return where the first record is that no lane of the flow wrote; empty if all are copies, or the copy is gone.

    Reads the offsets that the ledger does not record as the flow's own. Raises EnvironmentFault.
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
    """Return the checks before `Upkeep` deletes a copy: `foreign_record`, and a flow that copies the names back."""
    return partial(foreign_record, flow.target, config.clusters[flow.target]), partial(claims.flow_back, flow)
