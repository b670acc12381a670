"""The last known end of every selected source partition, whether or not a lane copies the partition.

Lanes record the end of the source in their progress records, but only while they fetch. If a partition is paused,
slowed down by `limits.rate`, halted, or without a lane, only the records of this module show the size of its backlog.
Each of these records covers a block of partitions of one source topic. Thousands of partitions therefore need few
records, and only blocks that have changed are written.

In the state topic, these records have the same layout as progress records (`Progress`). Their keys also have the same
form, but contain the id of a lane without a target topic. No such lane exists, so a program that does not know these
records ignores them.
"""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

import msgspec

from mirrord.ledger.facts.core import LOSSES, Progress, Verdict, VerdictGiven
from mirrord.ledger.facts.source_ends import SourceEnds
from mirrord.ledger.seeks import pending
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.intervals import Interval
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.model.status import LossStatus

BLOCK = 256
"""Number of partitions that one record covers."""
LOST_KEPT = 1_000
"""Maximum number of records that are kept about lost records of deleted topics without lanes. Older ones are merged
into one record."""
FORMER = "deleted-long-ago"
"""The topic name in that record, which readers show instead of the names of the deleted topics."""


class CopiedPart(NamedTuple):
    """Which records of a lane's source partition were copied, now that the lane copies no more."""

    position: int
    """The source offset after the last copied record."""
    missing: tuple[Interval, ...] = ()
    """Ranges [start, end) of source offsets below the position whose records the target lacks."""
    remark: str = ""
    """For operators: why records below the position may have been copied after all."""


StartOffset = Callable[[str, TopicId, int], int | None]
"""A function that takes a topic name, a topic id and a partition number. It returns the source offset at which a new
lane of this partition begins; None if the offset is unknown."""


class SourcePartition(NamedTuple):
    """A partition of one source topic. The topic is identified by its name and its id."""

    topic: str
    topic_id: TopicId
    partition: int


class Unopened(NamedTuple):
    """Records [start, end) of a partition that were lost with their topic before any lane was opened for the
    partition."""

    topic: str
    partition: int
    start: int
    """The source offset at which the lane would have begun."""
    end: int
    at_ms: int
    """The time at which the loss was found."""


def known_end(state: FlowState, topic_id: TopicId, partition: int) -> int:
    """Return the end of a source partition according to its newest record; -1 if there is no record."""
    record = state.source_ends.get(_block_key(topic_id, partition))
    return -1 if record is None or record.source is None else _at(record.source.ends, partition % BLOCK)


def lane_end(state: FlowState, lane: LaneState) -> int:
    """Return the highest known end of the lane's source partition; -1 if none is known."""
    progress = state.progress.get(lane.key.id)
    recorded = -1 if progress is None else progress.source_end
    return max(recorded, known_end(state, lane.key.source_topic_id, lane.partition))


def changed_records(
    state: FlowState, ends: Mapping[SourcePartition, int], lease_epoch: int, at_ms: int
) -> list[Progress]:
    """Return the records that must be written to the state topic so that daemons that start later know these ends of
    source partitions.

    An end that has already been saved needs no new record. The same is true for a partition for which no end has been
    saved yet, if the progress record of its lane contains an end that is at least as high.
    """
    reported = _ends_of_lanes(state, ends)
    blocks: dict[LaneId, dict[int, int]] = {}
    topics: dict[LaneId, str] = {}
    for where, end in ends.items():
        recorded = known_end(state, where.topic_id, where.partition)
        if end != recorded and not (recorded < 0 and end <= reported.get(where[1:], -1)):
            key = _block_key(where.topic_id, where.partition)
            blocks.setdefault(key, {})[where.partition % BLOCK] = end
            topics[key] = where.topic
    return [_record(state, key, topics[key], changes, lease_epoch, at_ms) for key, changes in blocks.items()]


def truncated(state: FlowState, ends: Mapping[SourcePartition, int], hosted: Container[LaneId]) -> list[VerdictGiven]:
    """Return verdicts on the records that source partitions lost through truncation before a lane read them.

    A lane itself records which of its copied records were truncated. It cannot record the loss of records that it has
    not read. Lanes in `hosted`, which replicators currently host, are omitted.
    """
    facts: list[VerdictGiven] = []
    for lane in newest_lanes(state.lanes.values()):
        now = ends.get(SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition), -1)
        before = known_end(state, lane.key.source_topic_id, lane.partition)
        if not 0 <= now < before or lane.key.id in hosted or lane.grant == 0 or not lane.source_runs:
            continue
        verdict = Verdict(max(now, state.standing(lane.key.id).position), before, "truncated")
        if verdict.start < verdict.end and verdict not in lane.newest_verdicts:
            line = f"the source ended at {before}, and ends at {now} since its leader changed"
            facts.append(VerdictGiven(lane.key.id, lane.grant, (verdict,), line))
    return facts


def left_behind(
    state: FlowState,
    is_gone: Callable[[str, TopicId], bool],
    hosted: Container[LaneId],
    start_offset: StartOffset,
    settled: Callable[[LaneState], CopiedPart | None] | None = None,
) -> list[VerdictGiven]:
    """Return verdicts on the records of deleted topics that were not copied, up to the last known end of each source
    partition.

    Lanes in `hosted`, which replicators still host, are omitted. They may still copy records that they have fetched.
    `settled` returns what a lane has copied, or None if this is not known yet; such a lane is omitted. Without
    `settled`, everything after the lane's position in the ledger counts as not copied.
    """
    facts: list[VerdictGiven] = []
    for lane in ended_lanes(state, is_gone, hosted):
        end = lane_end(state, lane)
        if has_begun(state, lane):
            copied = CopiedPart(state.standing(lane.key.id).position) if settled is None else settled(lane)
        else:
            unbegun = start_offset(lane.source_topic, lane.key.source_topic_id, lane.partition)
            copied = None if unbegun is None else CopiedPart(unbegun)
        if copied is None:
            continue
        ranges = (*copied.missing, *([(copied.position, end)] if end > copied.position else []))
        if ranges:
            verdicts = tuple(Verdict(*each, "recreated") for each in ranges)
            facts.append(VerdictGiven(lane.key.id, lane.grant, verdicts, _line(lane, copied.remark)))
    return facts


def ended_lanes(
    state: FlowState, is_gone: Callable[[str, TopicId], bool], hosted: Container[LaneId]
) -> list[LaneState]:
    """Return the lanes of deleted topics that no replicator hosts and whose losses the ledger does not contain."""
    return [
        lane
        for lane in newest_lanes(state.lanes.values())
        if lane.grant > 0
        and lane_end(state, lane) > 0
        and not lane.verdicts.counts.get("recreated")
        and lane.key.id not in hosted
        and is_gone(lane.source_topic, lane.key.source_topic_id)
    ]


def has_begun(state: FlowState, lane: LaneState) -> bool:
    """Return whether the ledger contains the source offset at which the lane has begun, or a position of the lane."""
    return bool(lane.source_runs) or lane.key.id in state.progress


def settled_records(
    state: FlowState,
    is_gone: Callable[[str, TopicId], bool],
    unrecorded: Collection[LaneId],
    start_offset: StartOffset,
    at_ms: int,
) -> tuple[list[Progress], list[LaneId]]:
    """Return how to change the state topic's records about the ends of deleted source topics: the records to save, and
    the keys of the records to remove.

    A partition may have lost records although it never had a lane. If a record of the state topic covers such a
    partition, it is saved again, with the lost offsets and the time `at_ms` at which the loss was found. All other
    records are removed. `unrecorded` contains the lanes whose losses are not in the ledger yet. Records about the
    topics of these lanes are neither saved nor removed.
    """
    # Later than all others, so that `merged_losses` never mistakes this loss for one that it has already counted.
    at_ms = max([at_ms, *(record.at_ms + 1 for _, record in _lost(state))])
    kept: list[Progress] = []
    removed: list[LaneId] = []
    opened = {(lane.key.source_topic_id, lane.partition) for lane in state.lanes.values() if lane.grant}
    waiting = {LaneKey.parse(lane).source_topic_id for lane in unrecorded}
    for key, record in state.source_ends.items():
        block, source = LaneKey.parse(key), record.source
        topic_id = block.source_topic_id
        if source is None or source.seen is not None:
            continue
        if source.lost or topic_id in waiting or not is_gone(source.topic, topic_id):
            continue
        numbers = range(block.partition, block.partition + len(source.ends))
        starts = [start_offset(source.topic, topic_id, number) for number in numbers]
        ranges = [
            (0, -1) if start is None or end <= start or (topic_id, number) in opened else (start, end)
            for number, start, end in zip(numbers, starts, source.ends, strict=True)
        ]
        if any(end > 0 for _, end in ranges):
            lost_from, ends = zip(*ranges, strict=True)
            lost = SourceEnds(source.topic, ends, lost=True, starts=lost_from if any(lost_from) else ())
            kept.append(msgspec.structs.replace(record, source=lost, at_ms=at_ms))
        else:
            removed.append(key)
    return kept, removed


def merged_losses(state: FlowState, lease_epoch: int) -> tuple[list[Progress], list[LaneId]]:
    """Return how to change the state topic if it holds too many records about lost records of deleted topics: the
    records to save, and the keys of the records to remove.

    The merged record contains the time and the key of the last record that was merged into it. If the removal of the
    merged records is interrupted, they are therefore not counted twice.
    """
    former = state.source_ends.get(_FORMER_KEY)
    counted = (-1, "") if former is None else (former.at_ms, former.replicator)
    lost = sorted((record.at_ms, str(key), record) for key, record in _lost(state) if key != _FORMER_KEY)
    left = [each for each in lost if each[:2] > counted]
    oldest = left[: max(0, len(left) - LOST_KEPT)]
    removed = [record.lane for _, _, record in (*lost[: len(lost) - len(left)], *oldest)]
    if not oldest:
        return [], removed
    total = sum(_lost_offsets(record) for _, _, record in oldest) + (_lost_offsets(former) if former else 0)
    at_ms, key, _ = oldest[-1]
    merged = _block(_FORMER_KEY, lease_epoch, at_ms, SourceEnds(FORMER, (total,), lost=True))
    return [msgspec.structs.replace(merged, replicator=key)], removed


def _lost(state: FlowState) -> Iterator[tuple[LaneId, Progress]]:
    return ((key, each) for key, each in state.source_ends.items() if each.source is not None and each.source.lost)


def _lost_offsets(record: Progress) -> int:
    """Return how many source offsets were lost according to a record."""
    source = record.source
    if source is None:
        return 0
    return sum(end - start for start, end in zip_longest(source.starts, source.ends, fillvalue=0) if end > 0)


def unopened_losses(state: FlowState) -> Iterator[Unopened]:
    """Yield the losses of partitions for which no lane was ever opened."""
    for key, record in state.source_ends.items():
        if record.source is not None and record.source.lost:
            first = LaneKey.parse(key).partition
            for number, (start, end) in enumerate(zip_longest(record.source.starts, record.source.ends, fillvalue=0)):
                if end > 0:
                    yield Unopened(record.source.topic, first + number, start, end, record.at_ms)


def former_losses(state: FlowState, shown: Container[LaneId]) -> tuple[LossStatus, ...]:
    """Return the losses of lanes that are not in `shown`, and the losses of topics that never had a lane. The status
    lists the losses of the lanes in `shown` separately."""
    found = [
        LossStatus(lane.source_topic, lane.partition, reason, count)
        for lane_id, lane in state.lanes.items()
        if lane_id not in shown
        for reason, count in lane.verdicts.counts.items()
        if count and reason in LOSSES
    ]
    found += [
        LossStatus(each.topic, each.partition, "recreated", each.end - each.start) for each in unopened_losses(state)
    ]
    return tuple(sorted(found, key=lambda each: (each.topic, each.partition, each.reason)))


def newest_lanes(lanes: Iterable[LaneState]) -> list[LaneState]:
    """Return the newest lane of each source partition. An older lane wrote to a target topic that was deleted, so it no
    longer copies anything."""
    newest: dict[tuple[TopicId, int], LaneState] = {}
    for lane in lanes:
        key = (lane.key.source_topic_id, lane.partition)
        known = newest.get(key)
        if known is None or lane.age >= known.age:
            newest[key] = lane
    return list(newest.values())


def _line(lane: LaneState, remark: str) -> str:
    line = f"{lane.source_topic} was deleted; it ended there when it was last seen"
    line += f"; {remark}" if remark else ""
    for seek in pending(lane.seeks)[-1:]:
        line += f"; the command to continue at source offset {seek.end} was not carried out"
    return line


def _ends_of_lanes(state: FlowState, ends: Mapping[SourcePartition, int]) -> dict[tuple[TopicId, int], int]:
    wanted = {where[1:] for where in ends}
    return {
        (lane.key.source_topic_id, lane.partition): progress.source_end
        for lane_id, lane in state.lanes.items()
        if (lane.key.source_topic_id, lane.partition) in wanted
        and (progress := state.progress.get(lane_id)) is not None
    }


def _record(
    state: FlowState, key: LaneId, topic: str, changes: Mapping[int, int], lease_epoch: int, at_ms: int
) -> Progress:
    known = state.source_ends.get(key)
    before = () if known is None or known.source is None else known.source.ends
    count = max(len(before), max(changes) + 1)
    ends = tuple(changes.get(number, _at(before, number)) for number in range(count))
    return _block(key, lease_epoch, at_ms, SourceEnds(topic, ends))


def _block(key: LaneId, lease_epoch: int, at_ms: int, source: SourceEnds) -> Progress:
    return Progress(key, lease_epoch, 0, 0, 0, -1, 0, -1, -1, at_ms, protected=False, state="", source=source)


def _at(ends: tuple[int, ...], number: int) -> int:
    return ends[number] if number < len(ends) else -1


def _block_key(topic_id: TopicId, partition: int) -> LaneId:
    return LaneKey(topic_id, partition - partition % BLOCK, TopicId("")).id


_FORMER_KEY = _block_key(TopicId(FORMER), 0)
