"""Finds the batches of a lane that no progress record covers. A holder that exits without draining the lane has written
such batches since its last progress record."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

import structlog

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.bulk_log_reader import LogReader, RangeGone, open_logs
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.rules.error_policy import Fetched, fetched
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import LaneState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import Alias, LaneId, TopicId, TopicPartition
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.supervision.rules.unrecorded_copies import Written, WrittenBatch

PATIENCE_S = 5.0
"""How long, in seconds, a partition may return nothing before the search is abandoned. A later call repeats it."""
BUDGET_S = 10.0
"""After this time, in seconds, no further partition is read in one call, because the caller has other work to do. A
later call reads the others."""
LOOK_BACK = 1_000_000
"""How many target offsets, counted from the end of the log, are searched for a lane without a progress record. A lane
saves its first progress record within about a second, so its batches are near the end of the log."""

log = structlog.get_logger()


class BatchQuestion(NamedTuple):
    """A lane whose batches are to be found."""

    lane: LaneId
    target: TopicPartition
    topic_id: TopicId
    """The id of the target topic."""
    producer_id: int
    start: int
    """The target offset directly after the last record that the lane's progress record covers; -1 without a progress
    record."""


Found = Mapping[LaneId, Written | None]
"""The batches of each lane, or None for a lane whose partition cannot be read at the moment. Lanes that are missing
were not looked at."""
FindWritten = Callable[[FlowConfig, Sequence[BatchQuestion]], Awaitable[Found]]
"""A function that finds the batches of a flow's lanes in the target's logs. Raises EnvironmentFault if the target does
not answer."""


def batch_question(lane: LaneState, progress: Progress | None) -> BatchQuestion:
    """Return the question about a lane."""
    start = -1 if progress is None else progress.target_offset
    target = TopicPartition(lane.target_topic, lane.partition)
    return BatchQuestion(lane.key.id, target, lane.key.target_topic_id, lane.producer_id, start)


async def find_written(
    alias: Alias, cluster: ClusterConfig, questions: Sequence[BatchQuestion]
) -> dict[LaneId, Written | None]:
    """Read the batch headers of target partitions from the questions' offsets up to the high watermarks.

    Lanes for which no time was left (`BUDGET_S`) are missing from the result. Raises EnvironmentFault if the target
    does not answer.
    """
    found: dict[LaneId, Written | None] = {}
    loop = asyncio.get_running_loop()
    until = loop.time() + BUDGET_S
    try:
        async with open_logs(alias, cluster, {each.target.topic for each in questions}, patience_s=PATIENCE_S) as logs:
            for each in questions:
                try:
                    found[each.lane] = await _written(logs, each)
                except EnvironmentFault as error:
                    found[each.lane] = None
                    log.info("losses_not_known_yet", partition=str(each.target), reason=str(error))
                if loop.time() > until:
                    break
    except ConfigError as error:
        raise EnvironmentFault(f"{error}") from error  # a target topic has just been deleted
    return found


async def _written(logs: LogReader, asked: BatchQuestion) -> Written:
    try:
        if logs.topics[asked.target.topic].topic_id != asked.topic_id:
            raise EnvironmentFault(f"{asked.target.topic} has just been re-created")
        first, end = await logs.bounds(asked.target, committed=False)
        if (log_end := await logs.leader_end(asked.target)) > end:
            raise EnvironmentFault(f"{asked.target}: offsets [{end}, {log_end}) are not on enough replicas yet")
        start = max(first, end - LOOK_BACK if asked.start < 0 else asked.start)
        empty, position = start - max(asked.start, 0), start
        found: list[WrittenBatch] = []
        async for batch in logs.read(asked.target, start, end, committed=False):
            header = batch.header
            empty += max(header.base_offset - position, 0)
            position = header.last_offset + 1
            if is_own(header, asked.producer_id) and header.base_offset >= asked.start:
                count = header.last_offset_delta + 1
                found.append(WrittenBatch(header.base_sequence, count, empty, header.base_offset))
                empty = 0
        return Written(tuple(found), empty=empty + max(end - position, 0))
    except EnvironmentFault as error:
        why = error.__cause__
        if isinstance(error, RangeGone) or not isinstance(why, ReadFailed) or fetched(why.error) is Fetched.AGAIN:
            raise
        return Written(trouble=f"{error}")
