"""The high watermarks of the source's partitions.

The high watermarks of up to `BLOCK` partitions of a topic are in one record, which is written when one of them has
changed. The summary says up to which time they are known to have been current. If the leader of a partition does not
answer, the record of its block says when its high watermark was last current.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen
from mirrord.ledger.last_seen.records import contents, state_record, summary_key
from mirrord.ledger.source_ends import BLOCK, SourcePartition
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneId, LaneKey, TopicId

NEAR_MS = 1_500
"""A partition gets a time of its own if its high watermark was last current this much earlier than that of another
partition."""
FAULTS_KEPT = 200
"""Maximum number of topics with faults that the summary names."""
_KIND = "seen-ends"
_SUMMARY = summary_key(_KIND)


class SeenEnd(NamedTuple):
    """The high watermark of a source partition."""

    end: int
    """-1 if it was never seen."""
    at_ms: int
    """A time at which it is known to have been current, or -1 if no such time is known."""


NEVER = SeenEnd(-1, -1)
"""The high watermark of a partition that was never seen."""


class SeenFaults(NamedTuple):
    """The selected topics that were not copied, or not completely, when the source was last seen."""

    lines: Mapping[str, str] = {}
    """For each topic, why it was not copied."""
    omitted: int = 0
    """Number of further topics."""


class SeenEnds:
    """The high watermarks of a flow's source partitions, according to the records of the state topic."""

    def __init__(self, state: FlowState) -> None:
        self._state = state
        summary = contents(state, _SUMMARY)
        self._at_ms = -1 if summary is None else summary.at_ms
        self.faults = SeenFaults() if summary is None else SeenFaults(dict(summary.faults), summary.omitted)

    @property
    def exist(self) -> bool:
        """Whether anything was ever recorded."""
        return self._at_ms >= 0

    def of(self, lane: LaneState) -> SeenEnd:
        """Return the high watermark of the lane's source partition. If none is recorded, return the one in the lane's
        progress record, whose time is not known."""
        recorded = self.recorded(SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition))
        progress = self._state.progress.get(lane.key.id)
        if recorded != NEVER or progress is None or progress.source_end < 0:
            return recorded
        return SeenEnd(progress.source_end, -1)

    def recorded(self, where: SourcePartition) -> SeenEnd:
        """Return the high watermark of a partition according to the records of this module."""
        block, at = contents(self._state, _block_key(where.topic_id, where.partition)), where.partition % BLOCK
        if block is None or at >= len(block.ends) or block.ends[at] < 0:
            return NEVER
        # A block may be newer than the summary, if a process was interrupted between the two.
        return SeenEnd(block.ends[at], dict(block.stale).get(at, max(self._at_ms, block.at_ms)))

    def all(self) -> Iterator[tuple[SourcePartition, SeenEnd]]:
        """Yield all partitions with a recorded high watermark."""
        for key, topic_id in _blocks(self._state):
            record = self._state.source_ends[key]
            first, source = LaneKey.parse(key).partition, record.source
            for number in range(0 if source is None or source.seen is None else len(source.seen.ends)):
                where = SourcePartition("" if source is None else source.topic, topic_id, first + number)
                if (end := self.recorded(where)) != NEVER:
                    yield where, end


def end_records(
    state: FlowState,
    ends: Mapping[SourcePartition, SeenEnd],
    faults: Mapping[str, str],
    lease_epoch: int,
    now_ms: int,
) -> list[Progress]:
    """Return the records to write if these high watermarks have been seen. `ends` contains all partitions of the flow.
    If a high watermark is not known (`NEVER`), the recorded one stays in force, with its time. `faults` contains the
    selected topics that are not copied, or not completely.

    The summary is the last record. It must not be written before the others.
    """
    known, topic_ids = SeenEnds(state), {where.topic_id for where in ends}
    current = {where: end for where, end in known.all() if where.topic_id in topic_ids}
    current |= {where: end for where, end in ends.items() if end.end >= 0}
    limit = max((end.at_ms for end in current.values()), default=-1) - NEAR_MS
    at_ms = min((end.at_ms for end in current.values() if end.at_ms >= limit), default=-1)
    blocks: dict[LaneId, dict[int, SeenEnd]] = {}
    topics: dict[LaneId, str] = {}
    for where, end in current.items():
        key = _block_key(where.topic_id, where.partition)
        topics[key] = where.topic
        blocks.setdefault(key, {})[where.partition % BLOCK] = end
    records: list[Progress] = []
    for key, block in blocks.items():
        found = _block(block, at_ms, limit)
        before = contents(state, key)
        if before is None or (before.ends, before.stale) != (found.ends, found.stale):
            records.append(state_record(key, topics[key], found, lease_epoch, now_ms))
    lines = sorted(faults.items())
    named = tuple(lines[:FAULTS_KEPT])
    summary = LastSeen(at_ms, faults=named, omitted=max(0, len(lines) - FAULTS_KEPT))
    if at_ms >= 0 and summary != contents(state, _SUMMARY):
        records.append(state_record(_SUMMARY, "", summary, lease_epoch, now_ms))
    return records


def surplus_records(state: FlowState, topics: Collection[TopicId]) -> list[LaneId]:
    """Return the keys of the records about source topics other than these."""
    return [key for key, topic_id in _blocks(state) if topic_id not in topics]


def _block(block: Mapping[int, SeenEnd], at_ms: int, limit: int) -> LastSeen:
    ends = tuple(block[at].end if at in block else -1 for at in range(max(block) + 1))
    stale = tuple((at, end.at_ms) for at, end in sorted(block.items()) if end.at_ms < limit)
    return LastSeen(at_ms, ends, stale)


def _blocks(state: FlowState) -> Iterator[tuple[LaneId, TopicId]]:
    for key in state.source_ends:
        if key.endswith(f".{_KIND}") and key != _SUMMARY:
            yield key, LaneKey.parse(key).source_topic_id


def _block_key(topic_id: TopicId, partition: int) -> LaneId:
    return LaneKey(topic_id, partition - partition % BLOCK, TopicId(_KIND)).id
