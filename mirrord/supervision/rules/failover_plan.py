"""Decides the steps of a failover, which lanes it concerns, and what it loses.

Each completed step is a fact in the ledger. After an interruption, the failover continues with the first step without a
fact, in whichever process holds the lease then.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from mirrord.ledger.facts.recovery import LostRange, Recovery, RecoveryMode
from mirrord.ledger.folding.failovers import CAUGHT_UP, SETTLED, concerns, has_ended
from mirrord.ledger.last_seen.source_ends import SeenEnd, SeenEnds
from mirrord.ledger.source_ends import CopiedPart, SourcePartition, StartOffset, lane_end
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneId, TopicPartition

Step = Literal["before", "catch up", "stop", "settle", "fence", "end", "groups", "grant", "after", "finish"]
"""A step of a failover.

- "before": run the hooks `recovery.before`. If one fails, a planned failover is cancelled.
- "catch up": wait until the target has all records, and producers and consumers no longer use the source.
- "stop": wait until no replicator hosts a lane of the failover.
- "settle": wait until former holders can no longer write. From then on, the failover cannot be cancelled.
- "fence": make the target refuse late batches of the lanes' producers. In a failover without the source, this comes
  before "end", so that nothing arrives after what has arrived was read. A planned failover may be cancelled in "end",
  and its lanes must then be able to write, so "fence" comes after "end". Nothing is lost by then.
- "end": determine what is lost, and end the copying for good (`CopyingEnded`).
- "groups": commit the final positions of consumer groups.
- "grant": allow the principals in `recovery.grant` to use the target topics.
- "after": run the hooks `recovery.after`.
- "finish": complete the failover.
"""

STEPS: Mapping[RecoveryMode, tuple[Step, ...]] = {
    "planned": ("before", CAUGHT_UP, "stop", "end", "fence", "groups", "grant", "after", "finish"),
    "source-lost": ("before", "stop", SETTLED, "fence", "end", "groups", "grant", "after", "finish"),
}
"""The steps of each kind of failover, in order."""


def next_step(recovery: Recovery) -> Step | None:
    """Return the next step of a failover, or None if it has been completed or cancelled."""
    if recovery.finished_ms >= 0:
        return None
    done = {each.step for each in recovery.steps} | ({"end"} if recovery.ended else set[str]())
    return next(step for step in STEPS[recovery.mode] if step not in done)


def concerned_lanes(state: FlowState, recovery: Recovery) -> list[LaneState]:
    """Return the newest lane of each source partition whose copying this failover ends. Omitted are lanes of deleted
    topics that have been created again, and lanes whose copying an earlier failover has ended."""
    earlier = tuple(each for each in state.recoveries if each.number != recovery.number)
    newest: dict[TopicPartition, LaneState] = {}
    for lane in sorted(state.lanes.values(), key=lambda each: each.age):
        if concerns(recovery, lane.source_topic) and not has_ended(earlier, lane.source_topic):
            newest[TopicPartition(lane.source_topic, lane.partition)] = lane
    return list(newest.values())


class FailoverLoss(NamedTuple):
    """What a failover loses."""

    ranges: tuple[LostRange, ...]
    """The partitions that lose records, or of which this is not known."""
    partitions: int
    """Number of all partitions of the failover."""
    seen_ms: int
    """The latest time up to which the ends of the partitions outside `ranges` are known, or -1."""


def loss_of(
    known: SeenEnds,
    recovery: Recovery,
    copied: Mapping[LaneId, CopiedPart],
    ends: Mapping[SourcePartition, SeenEnd],
    target_ends: Mapping[LaneId, int],
    start_offset: StartOffset,
) -> FailoverLoss:
    """Return what is lost.

    `copied` says for each lane of the failover that has begun what it has copied. `start_offset` says where the others
    would have begun. `ends` holds high watermarks that the source has just reported. For all other partitions, those in
    `known` count. `target_ends` holds the high watermarks of target partitions.
    """
    state, every = known.state, list[LostRange]()
    lanes = {(lane.key.source_topic_id, lane.partition): lane for lane in concerned_lanes(state, recovery)}
    there = {where.topic_id for where in (*known.ends, *ends)}
    for lane in lanes.values():
        if known.is_recorded and lane.key.source_topic_id not in there and _is_accounted_for(state, lane, copied):
            continue
        where = SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition)
        seen = ends.get(where) or known.of(lane)
        part = copied.get(lane.key.id) or CopiedPart(_start(where, seen, start_offset))
        every.append(_range(lane, part, seen, target_ends.get(lane.key.id, -1)))
    earlier = tuple(each for each in state.recoveries if each.number != recovery.number)
    for where, seen in {**known.ends, **ends}.items():
        topic = where.topic
        if where[1:] in lanes or not concerns(recovery, topic) or has_ended(earlier, topic):
            continue
        start = _start(where, seen, start_offset)
        end = max(seen.end, start if seen.end >= 0 else -1)
        every.append(LostRange(topic, where.partition, start, end, seen.at_ms, -1))
    ranges = sorted((each for each in every if _loses(each)), key=lambda each: (each.topic, each.partition))
    seen_ms = min((each.seen_ms for each in every if not _loses(each)), default=-1)
    return FailoverLoss(tuple(ranges), len(every), seen_ms)


def _is_accounted_for(state: FlowState, lane: LaneState, copied: Mapping[LaneId, CopiedPart]) -> bool:
    """Return whether nothing has to be said about a lane whose topic was deleted or is no longer selected: everything
    was copied up to the last known end, or the ledger contains what was lost with the topic."""
    position = copied[lane.key.id].position if lane.key.id in copied else 0
    return bool(lane.verdicts.counts.get("recreated")) or lane_end(state, lane) <= position


def _start(where: SourcePartition, seen: SeenEnd, start_offset: StartOffset) -> int:
    """Return the source offset at which the copying of a partition would have begun."""
    return max(start_offset(*where) or 0, seen.start, 0)


def _range(lane: LaneState, copied: CopiedPart, seen: SeenEnd, target_end: int) -> LostRange:
    start = copied.position
    return LostRange(
        topic=lane.source_topic,
        partition=lane.partition,
        start=start,
        end=max(seen.end, start) if seen.end >= 0 else -1,
        seen_ms=seen.at_ms,
        target_end=target_end,
        missing=copied.missing,
        remark=copied.remark,
    )


def _loses(lost: LostRange) -> bool:
    return lost.end != lost.start or bool(lost.missing or lost.remark)
