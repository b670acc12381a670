"""The high watermarks of the source's partitions.

The high watermarks of up to `BLOCK` partitions of a topic are in one record, which is written when one of them has
changed. The summary says up to which time all of them are known to have been current. It names the partitions to which
this does not apply, because their leaders did not answer.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen, StaleEnd
from mirrord.ledger.last_seen.records import contents, state_record, summary_key
from mirrord.ledger.source_ends import BLOCK, SourcePartition
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneId, LaneKey, TopicId

NEAR_MS = 1_500
"""A partition is named as an exception if its high watermark was last current this much earlier than that of another
partition."""
NAMED = 200
"""Maximum number of exceptions that are named. If there are more, the summary has the earliest time of all partitions,
and names none."""
_KIND = "seen-ends"
_SUMMARY = summary_key(_KIND)


class SeenEnd(NamedTuple):
    """The high watermark of a source partition."""

    end: int
    """-1 if it was never seen."""
    at_ms: int
    """The latest time at which it is known to have been current, or -1 if it was never seen."""


NEVER = SeenEnd(-1, -1)
"""The high watermark of a partition that was never seen."""


class SeenEnds:
    """The high watermarks of a flow's source partitions, according to the records of the state topic."""

    def __init__(self, state: FlowState) -> None:
        self._state = state
        summary = contents(state, _SUMMARY)
        self._at_ms = -1 if summary is None else summary.at_ms
        stale = () if summary is None else summary.stale
        self._stale = {(each.topic, each.partition): each.seen_ms for each in stale}

    def of(self, lane: LaneState) -> SeenEnd:
        """Return the high watermark of the lane's source partition. A progress record of the lane may hold a newer
        one."""
        progress = self._state.progress.get(lane.key.id)
        recorded = self.recorded(SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition))
        if progress is None or progress.source_end < 0:
            return recorded
        return max(recorded, SeenEnd(progress.source_end, progress.at_ms), key=lambda each: each.at_ms)

    def recorded(self, where: SourcePartition) -> SeenEnd:
        """Return the high watermark of a partition according to the records of this module."""
        ends, at = _ends_of(self._state, _block_key(where.topic_id, where.partition)), where.partition % BLOCK
        if at >= len(ends) or ends[at] < 0:
            return NEVER
        return SeenEnd(ends[at], self._stale.get((where.topic, where.partition), self._at_ms))


def seen_partitions(state: FlowState) -> Iterator[tuple[SourcePartition, SeenEnd]]:
    """Yield all partitions with a recorded high watermark."""
    known = SeenEnds(state)
    for key, topic_id in _blocks(state):
        record = state.source_ends[key]
        first, source = LaneKey.parse(key).partition, record.source
        if source is None or source.seen is None:
            continue
        for number in range(len(source.seen.ends)):
            where = SourcePartition(source.topic, topic_id, first + number)
            if (end := known.recorded(where)) != NEVER:
                yield where, end


def end_records(
    state: FlowState, ends: Mapping[SourcePartition, SeenEnd], lease_epoch: int, now_ms: int
) -> list[Progress]:
    """Return the records to write if these high watermarks have been seen. `ends` contains all partitions of the flow.
    If a high watermark is not known (`NEVER`), the recorded one stays in force, with its time.

    The summary is the last record. It must not be written before the others.
    """
    known = SeenEnds(state)
    ends = {where: end if end.end >= 0 else known.recorded(where) for where, end in ends.items()}
    blocks: dict[LaneId, dict[int, int]] = {}
    topics: dict[LaneId, str] = {}
    for where, end in ends.items():
        key = _block_key(where.topic_id, where.partition)
        topics[key] = where.topic
        block = blocks.setdefault(key, {})
        if end.end >= 0:
            block[where.partition % BLOCK] = end.end
    records: list[Progress] = []
    for key, block in blocks.items():
        before = _ends_of(state, key)
        merged = _merged(before, block)
        if merged != before:
            records.append(state_record(key, topics[key], LastSeen(now_ms, merged), lease_epoch, now_ms))
    summary = _summary(ends)
    if summary.at_ms >= 0 and summary != contents(state, _SUMMARY):
        records.append(state_record(_SUMMARY, "", summary, lease_epoch, now_ms))
    return records


def surplus_records(state: FlowState, topics: Collection[TopicId]) -> list[LaneId]:
    """Return the keys of the records about source topics other than these."""
    return [key for key, topic_id in _blocks(state) if topic_id not in topics]


def _summary(ends: Mapping[SourcePartition, SeenEnd]) -> LastSeen:
    times = {where: end.at_ms for where, end in ends.items() if end.at_ms >= 0}
    limit = max(times.values(), default=-1) - NEAR_MS
    stale = tuple(StaleEnd(where.topic, where.partition, at_ms) for where, at_ms in times.items() if at_ms < limit)
    if len(stale) > NAMED:
        return LastSeen(min(times.values()))
    return LastSeen(min((at_ms for at_ms in times.values() if at_ms >= limit), default=-1), stale=stale)


def _blocks(state: FlowState) -> Iterator[tuple[LaneId, TopicId]]:
    for key in state.source_ends:
        if key.endswith(f".{_KIND}") and key != _SUMMARY:
            yield key, LaneKey.parse(key).source_topic_id


def _merged(before: tuple[int, ...], block: Mapping[int, int]) -> tuple[int, ...]:
    count = max(len(before), max(block, default=-1) + 1)
    return tuple(block.get(at, before[at] if at < len(before) else -1) for at in range(count))


def _ends_of(state: FlowState, key: LaneId) -> tuple[int, ...]:
    block = contents(state, key)
    return () if block is None else block.ends


def _block_key(topic_id: TopicId, partition: int) -> LaneId:
    return LaneKey(topic_id, partition - partition % BLOCK, TopicId(_KIND)).id
