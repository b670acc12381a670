"""Finds the batches of a lane that no progress record covers. A holder that exits without draining the lane has written
such batches since its last progress record."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.bulk_log_reader import LogReader, RangeGone, open_logs
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.rules.error_policy import Fetched, fetched
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import LaneState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import Alias, LaneId, TopicPartition
from mirrord.replication.lane.target.existing_copies import is_own
from mirrord.supervision.rules.unrecorded_copies import Written, WrittenBatch

PATIENCE_S = 5.0
"""How long, in seconds, a partition may return nothing before the search is abandoned. A later call repeats it."""
LOOK_BACK = 1_000_000
"""How many target offsets, counted from the end of the log, are searched for a lane without a progress record. A lane
saves its first progress record within about a second, so its batches are near the end of the log."""


class BatchQuestion(NamedTuple):
    """A lane whose batches are to be found."""

    lane: LaneId
    target: TopicPartition
    producer_id: int
    start: int
    """The target offset directly after the last record that the lane's progress record covers; -1 without a progress
    record."""


FindWritten = Callable[[FlowConfig, Sequence[BatchQuestion]], Awaitable[Mapping[LaneId, Written]]]
"""A function that finds the batches of a flow's lanes in the target's logs. Raises EnvironmentFault if the target does
not answer."""


def batch_question(lane: LaneState, progress: Progress | None) -> BatchQuestion:
    """Return the question about a lane."""
    start = -1 if progress is None else progress.target_offset
    return BatchQuestion(lane.key.id, TopicPartition(lane.target_topic, lane.partition), lane.producer_id, start)


async def find_written(
    alias: Alias, cluster: ClusterConfig, questions: Sequence[BatchQuestion]
) -> dict[LaneId, Written]:
    """Read the batch headers of target partitions from the questions' offsets up to the high watermarks.

    Raises EnvironmentFault if the target does not answer.
    """
    try:
        async with open_logs(alias, cluster, {each.target.topic for each in questions}, patience_s=PATIENCE_S) as logs:
            return {each.lane: await _written(logs, each) for each in questions}
    except ConfigError as error:
        raise EnvironmentFault(f"{error}") from error  # a target topic has just been deleted


async def _written(logs: LogReader, asked: BatchQuestion) -> Written:
    try:
        first, end = await logs.bounds(asked.target, committed=False)
        start = max(first, end - LOOK_BACK if asked.start < 0 else asked.start)
        found: list[WrittenBatch] = []
        async for batch in logs.read(asked.target, start, end, committed=False):
            header = batch.header
            if is_own(header, asked.producer_id) and header.base_offset >= asked.start:
                found.append(WrittenBatch(header.base_sequence, header.last_offset_delta + 1))
        return Written(tuple(found))
    except EnvironmentFault as error:
        why = error.__cause__
        if isinstance(error, RangeGone) or not isinstance(why, ReadFailed) or fetched(why.error) is Fetched.AGAIN:
            raise
        return Written(trouble=f"{error}")
