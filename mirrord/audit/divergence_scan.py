"""Reads the records that exist only on the source or only on the target, counts them, and stores them as Parquet."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from mirrord.audit.divergence_file import AtomicParquetFile
from mirrord.audit.plan import read_ledger
from mirrord.audit.rules.one_sided_ranges import OneSidedRange, Why, not_begun, stretches
from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.bulk_log_reader import LogReader, open_logs
from mirrord.kafka.client.log_offsets import offsets_at
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL
from mirrord.ledger.facts.core import Verdict
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.intervals import Interval
from mirrord.model.names import LaneId, Side, TopicPartition
from mirrord.operations.cluster_survey import survey_flows
from mirrord.operations.hazard_survey import producers_back

PATIENCE_S = 10.0


class Diverging(msgspec.Struct, frozen=True, kw_only=True):
    """A range of offsets whose records exist only on the source or only on the target, with the number of these
    records."""

    flow: str
    side: Side
    topic: str
    partition: int
    why: Why
    start: int
    """The offset of the first record."""
    end: int
    """The offset after the last record."""
    records: int


async def diverge(
    config: Config, flow: FlowConfig, topics: Sequence[str], since_ms: int | None, rows: AtomicParquetFile | None
) -> list[Diverging]:
    """Return, for one flow, the offset ranges whose records exist only on the source or only on the target. Raises
    LedgerMissing and other EnvironmentFaults."""
    state, gaps, _ = await read_ledger(config, flow)
    verdicts: dict[LaneId, list[Verdict]] = {}
    for gap in gaps:
        verdicts.setdefault(gap.lane, []).append(Verdict(gap.start, gap.end, gap.reason))
    lanes = await _present(config, flow, state, topics)
    waiting = await _waiting(config, flow, state, topics)
    if not lanes and not waiting:
        return []
    is_two_way = any(goes_back(flow, other) for other in config.all_flows)
    copied_back = await producers_back(config, flow, ClusterAccess(config, PATIENCE_S).ledger)
    found: list[Diverging] = []
    committed = flow.isolation == "read_committed"
    sources = {lane.source_topic for lane in lanes} | {each.topic for each in waiting}
    targets = {lane.target_topic for lane in lanes}
    limit = flow.limits.rebuild_bytes
    async with (
        open_logs(flow.source, config.clusters[flow.source], sources, rebuild_bytes=limit) as source_log,
        open_logs(flow.target, config.clusters[flow.target], targets, rebuild_bytes=limit) as target_log,
    ):
        since = await _since(config, flow, lanes, waiting, since_ms)
        for lane in lanes:
            places = {
                "source": (source_log, TopicPartition(lane.source_topic, lane.partition)),
                "target": (target_log, TopicPartition(lane.target_topic, lane.partition)),
            }
            source = _later(
                await source_log.bounds(places["source"][1], committed=committed), since[0], places["source"][1]
            )
            target = _later(await target_log.bounds(places["target"][1], committed=True), since[1], places["target"][1])
            ours = {"source": copied_back, "target": _ours(state, lane)}
            lane_verdicts = verdicts.get(lane.key.id, [])
            for stretch in stretches(state, lane.key.id, lane_verdicts, source, None if is_two_way else target):
                log, named = places[stretch.side]
                is_committed = committed or stretch.side == "target"
                each = await _read(flow, log, named, stretch, ours[stretch.side], rows, committed=is_committed)
                if each.records:
                    found.append(each)
        for named in waiting:
            bounds = _later(await source_log.bounds(named, committed=committed), since[0], named)
            stretch = OneSidedRange("source", *bounds, "not begun")
            each = await _read(flow, source_log, named, stretch, copied_back, rows, committed=committed)
            if each.records:
                found.append(each)
    return found


async def _waiting(config: Config, flow: FlowConfig, state: FlowState, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the source partitions that the flow should copy but has not begun to copy. Raises EnvironmentFault."""
    survey = (await survey_flows(config, ClusterAccess(config, PATIENCE_S)))[flow.name]
    if isinstance(survey, EnvironmentFault):
        raise survey
    there, patterns = survey.preview.source.topics, [re.compile(pattern) for pattern in topics]
    names = {name for name in survey.preview.plan.targets.values() if name in there}
    wanted = [
        TopicPartition(name, partition)
        for name in names
        if not patterns or any(pattern.fullmatch(name) for pattern in patterns)
        for partition in range(there[name].partitions)
    ]
    return not_begun(state, wanted, {name: there[name].topic_id for name in names})


async def _present(config: Config, flow: FlowConfig, state: FlowState, topics: Sequence[str]) -> list[LaneState]:
    """Return the lanes whose source and target topics both still exist. If `topics` holds regexes, return only the
    lanes whose source topic matches one of them."""
    patterns = [re.compile(pattern) for pattern in topics]
    wanted = [
        lane
        for lane in state.lanes.values()
        if not patterns or any(pattern.fullmatch(lane.source_topic) for pattern in patterns)
    ]
    names = ({lane.source_topic for lane in wanted}, {lane.target_topic for lane in wanted})
    source, target = await asyncio.gather(
        *(_ids(config, alias, each) for alias, each in zip((flow.source, flow.target), names, strict=True))
    )
    there = [
        lane for lane in wanted if (source.get(lane.source_topic), target.get(lane.target_topic)) == lane.key.topics
    ]
    return sorted(there, key=lambda lane: (lane.source_topic, lane.partition))


async def _ids(config: Config, alias: str, topics: set[str]) -> dict[str, str]:
    admin = KafkaTopicAdmin(config.clusters[alias], PATIENCE_S, alias)
    try:
        return {name: topic.topic_id for name, topic in (await admin.describe(topics)).topics.items()}
    finally:
        await admin.close()


def _ours(state: FlowState, lane: LaneState) -> frozenset[int]:
    """Return the producer ids of all lanes that write to the same target topic as this lane. Batches from these
    producers are copies, even those above the last known resume position."""
    return frozenset(
        each.producer_id for each in state.lanes.values() if each.key.target_topic_id == lane.key.target_topic_id
    )


Since = tuple[dict[TopicPartition, tuple[int, int] | None] | None, dict[TopicPartition, tuple[int, int] | None] | None]


async def _since(
    config: Config,
    flow: FlowConfig,
    lanes: Sequence[LaneState],
    waiting: Sequence[TopicPartition],
    since_ms: int | None,
) -> Since:
    """Return two maps from partition to (offset, timestamp), one for the source and one for the target. Each entry
    describes the partition's first record with a timestamp of at least `since_ms`, or is None if there is no such
    record. If `since_ms` is None, return (None, None)."""
    if since_ms is None:
        return None, None
    source = {TopicPartition(lane.source_topic, lane.partition) for lane in lanes} | set(waiting)
    target = {TopicPartition(lane.target_topic, lane.partition) for lane in lanes}
    return (
        await offsets_at(config.clusters[flow.source], source, since_ms),
        await offsets_at(config.clusters[flow.target], target, since_ms),
    )


def _later(
    bounds: Interval, since: dict[TopicPartition, tuple[int, int] | None] | None, named: TopicPartition
) -> Interval:
    if since is None:
        return bounds
    first = since.get(named)
    return (bounds[1] if first is None else max(bounds[0], first[0])), bounds[1]


async def _read(
    flow: FlowConfig,
    log: LogReader,
    named: TopicPartition,
    stretch: OneSidedRange,
    ours: frozenset[int],
    rows: AtomicParquetFile | None,
    *,
    committed: bool,
) -> Diverging:
    """Read the records of a range as a consumer would, but ignore the copies that mirrord wrote. Return the number of
    remaining records, and the range of offsets from the first of them to the last. If `rows` is given, add each
    remaining record to that file."""
    stretch_columns: dict[str, object] = {"flow": flow.name, "side": stretch.side, "why": stretch.why}
    stretch_columns |= {"topic": named.topic, "partition": named.partition}
    count, first, last = 0, stretch.start, stretch.start - 1
    async with aclosing(_records(log, named, stretch, ours, committed=committed)) as records:
        async for record in records:
            first = record.offset if not count else first
            count, last = count + 1, record.offset
            if rows is not None:
                rows.take(stretch_columns, record)
    return Diverging(
        flow=flow.name,
        side=stretch.side,
        topic=named.topic,
        partition=named.partition,
        why=stretch.why,
        start=first,
        end=last + 1,
        records=count,
    )


async def _records(
    log: LogReader, named: TopicPartition, stretch: OneSidedRange, ours: frozenset[int], *, committed: bool
) -> AsyncGenerator[DecodedRecord]:
    async with aclosing(log.read(named, stretch.start, stretch.end, committed=committed)) as batches:
        async for batch in batches:
            header = batch.header
            if batch.aborted or (not batch.is_old and header.attributes & CONTROL):
                continue
            if not batch.is_old and header.producer_id in ours and not header.attributes & TRANSACTIONAL:
                continue
            try:
                records = batch.records()
            except ValueError as error:
                where = f"{named}, the batch at offset {header.base_offset}"
                raise EnvironmentFault(f"{where}: its records cannot be read: {error}") from error
            for record in records:
                if stretch.start <= record.offset < stretch.end:
                    yield record
