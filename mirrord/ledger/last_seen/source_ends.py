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
"""A partition gets a separate time if its high watermark was last current this much earlier than that of another
partition."""
HELD_NEAR_MS = 3_000
"""The same for the time up to which the target held all records of a partition. Progress records are up to a second
old, so these times differ more."""
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
    start: int = -1
    """Log start offset of the partition, or a lower offset. -1 if it is not known."""
    held_ms: int = -1
    """A time at which the target held all records that the partition had, or -1 if no such time is known. It is known
    from the progress records, so it says nothing about a lane without one."""


NEVER = SeenEnd(-1, -1)
"""The high watermark of a partition that was never seen."""


class SeenFaults(NamedTuple):
    """The selected topics that were not copied, or not completely, when the source was last seen."""

    lines: Mapping[str, str] = {}
    """For each topic, why it was not copied."""
    omitted: int = 0
    """Number of further topics."""


class SeenEnds:
    """The high watermarks of a flow's source partitions, according to the records of the state topic at the time when
    this object is created.

    The creation costs a few microseconds for each partition.
    """

    def __init__(self, state: FlowState) -> None:
        self.state = state
        summary = contents(state, _SUMMARY)
        self.is_recorded = summary is not None
        """Whether anything was ever recorded."""
        self.faults = SeenFaults() if summary is None else SeenFaults(dict(summary.faults), summary.omitted)
        self.ends: dict[SourcePartition, SeenEnd] = {}
        """All partitions that were selected when the source was last seen, including those without a known high
        watermark."""
        for key, topic_id in _blocks(state):
            source = state.source_ends[key].source
            if source is not None and source.seen is not None:
                first = LaneKey.parse(key).partition
                for at, end in enumerate(_unpacked(source.seen, summary or LastSeen(-1))):
                    self.ends[SourcePartition(source.topic, topic_id, first + at)] = end

    def of(self, lane: LaneState) -> SeenEnd:
        """Return the high watermark of the lane's source partition. If the one in the lane's progress record is higher,
        return that one. Its time is not known, so the time of the recorded one is kept, which is earlier."""
        recorded = self.ends.get(SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition), NEVER)
        progress = self.state.progress.get(lane.key.id)
        if progress is None:
            return recorded._replace(held_ms=-1)
        return recorded._replace(end=max(recorded.end, progress.source_end))


def end_records(
    known: SeenEnds,
    ends: Mapping[SourcePartition, SeenEnd],
    faults: Mapping[str, str],
    hidden: Collection[str],
    lease_epoch: int,
    now_ms: int,
) -> list[Progress]:
    """Return the records to write if these high watermarks have been seen. `known` contains the recorded ones.

    `ends` contains all visible partitions of the flow. If a high watermark is not known (`NEVER`), the recorded one
    stays in force, with its time. `faults` contains the selected topics that are not copied, or not completely.
    `hidden` contains those of them that the source does not show: their recorded high watermarks stay in force.

    The summary is the last record. It must not be written before the others.
    """
    state, topic_ids = known.state, {where.topic_id for where in ends}
    current = {where: end for where, end in known.ends.items() if where.topic_id in topic_ids or where.topic in hidden}
    for where, end in ends.items():
        before = current.get(where, NEVER)
        current[where] = before if end.end < 0 else end if end.start >= 0 else end._replace(start=before.start)
    recorded = contents(state, _SUMMARY)
    times = _Times.of(current) if any(end.end >= 0 for end in ends.values()) else _Times.recorded(recorded)
    blocks: dict[LaneId, dict[int, SeenEnd]] = {}
    topics: dict[LaneId, str] = {}
    for where, end in current.items():
        key = _block_key(where.topic_id, where.partition)
        topics[key] = where.topic
        blocks.setdefault(key, {})[where.partition % BLOCK] = end
    records: list[Progress] = []
    for key, block in blocks.items():
        found = _block(block, times)
        written = contents(state, key)
        if written is None or _times_apart(written) != _times_apart(found):
            records.append(state_record(key, topics[key], found, lease_epoch, now_ms))
    lines = sorted(faults.items())
    named, omitted = tuple(lines[:FAULTS_KEPT]), max(0, len(lines) - FAULTS_KEPT)
    summary = LastSeen(times.at_ms, held_ms=times.held_ms, faults=named, omitted=omitted)
    if summary != recorded and (known.is_recorded or current or faults):
        records.append(state_record(_SUMMARY, "", summary, lease_epoch, now_ms))
    return records


def surplus_records(state: FlowState, topics: Collection[TopicId], names: Collection[str]) -> list[LaneId]:
    """Return the keys of the records about source topics other than those with these ids or names."""
    surplus: list[LaneId] = []
    for key, topic_id in _blocks(state):
        source = state.source_ends[key].source
        if topic_id not in topics and (source is None or source.topic not in names):
            surplus.append(key)
    return surplus


class _Times(NamedTuple):
    """The times in the summary, which apply to all partitions without a separate time."""

    at_ms: int
    current_from: int
    """Partitions whose high watermark was last current before this time have a separate time."""
    held_ms: int
    held_from: int
    """The same for the time up to which the target held all records of a partition."""

    @staticmethod
    def recorded(summary: LastSeen | None) -> "_Times":
        """Return the times in a summary, which stay the same while the source does not answer."""
        at_ms, held_ms = (-1, -1) if summary is None else (summary.at_ms, summary.held_ms)
        return _Times(at_ms, at_ms, held_ms, held_ms)

    @staticmethod
    def of(current: Mapping[SourcePartition, SeenEnd]) -> "_Times":
        at_ms, current_from = _common([end.at_ms for end in current.values() if end.end >= 0], NEAR_MS)
        return _Times(at_ms, current_from, *_common([end.held_ms for end in current.values()], HELD_NEAR_MS))


def _common(times: Collection[int], near_ms: int) -> tuple[int, int]:
    """Return the earliest of those times that are less than `near_ms` earlier than the latest one, and the time from
    which on they are."""
    limit = max(times, default=-1) - near_ms
    return min((each for each in times if each >= limit), default=-1), limit


def _block(block: Mapping[int, SeenEnd], times: _Times) -> LastSeen:
    found = [block.get(at, NEVER) for at in range(max(block) + 1)]
    starts = tuple(end.start for end in found)
    return LastSeen(
        times.at_ms,
        tuple(end.end for end in found),
        tuple((at, end.at_ms) for at, end in enumerate(found) if end.end >= 0 and end.at_ms < times.current_from),
        starts=starts if max(starts) >= 0 else (),
        held_ms=times.held_ms,
        late=tuple((at, end.held_ms) for at, end in enumerate(found) if end.held_ms < times.held_from),
    )


def _times_apart(block: LastSeen) -> tuple[object, ...]:
    """Return the contents of a block without the times that the summary contains as well."""
    return block.ends, block.stale, block.starts, block.late


def _unpacked(block: LastSeen, summary: LastSeen) -> Iterator[SeenEnd]:
    # A block may be newer than the summary, if a process was interrupted between the two.
    at_ms, held_ms = max(summary.at_ms, block.at_ms), max(summary.held_ms, block.held_ms)
    stale, late = dict(block.stale), dict(block.late)
    for at, end in enumerate(block.ends):
        start = block.starts[at] if at < len(block.starts) else -1
        yield SeenEnd(end, stale.get(at, at_ms) if end >= 0 else -1, start, late.get(at, held_ms))


def _blocks(state: FlowState) -> Iterator[tuple[LaneId, TopicId]]:
    for key in state.source_ends:
        if key.endswith(f".{_KIND}") and key != _SUMMARY:
            yield key, LaneKey.parse(key).source_topic_id


def _block_key(topic_id: TopicId, partition: int) -> LaneId:
    return LaneKey(topic_id, partition - partition % BLOCK, TopicId(_KIND)).id
