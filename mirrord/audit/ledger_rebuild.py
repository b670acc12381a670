"""Rebuilds a flow's ledger from the logs on both clusters.

A daemon must not use a partly written ledger, because it would again copy every record that the ledger does not mention
yet. The first step therefore writes a marker to the state topic. While the marker is present, every client that opens
the ledger stops with the error `LedgerWentBack`. The last step replaces the marker with the topic id and the log end
offset of the new ledger. An interrupted rebuild has to be restarted from the beginning.
"""

import asyncio
import re
import secrets
from collections.abc import Iterator, Sequence

import msgspec
import structlog

from mirrord.audit.lost_ledger import survey_of
from mirrord.audit.rebuild_scan import LaneLook, LaneRebuilt, Rules
from mirrord.audit.rules.rebuild_facts import GRANT, LaneNames, facts
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.bulk_log_reader import LogReader, open_logs
from mirrord.ledger.codec import encode_entry, encode_state
from mirrord.ledger.errors import LedgerCorrupt, LedgerGone, LedgerMissing, LedgerUnavailable, LedgerWentBack
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, Entry, FlowOpened, LeaseReleased, LeaseTaken, Progress
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.fold import fold, writer_text
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LEDGER_END_KEY, LedgerEnd, state_key
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.process_identity import this_process
from mirrord.ledger.store.topics import LedgerTopics
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, TopicId, TopicPartition
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.operations.hazard_survey import producers_back
from mirrord.replication.host.record_policies import RecordPolicies
from mirrord.runtime.clock import SystemClock
from mirrord.topics.rules.topic_plan import PlannedLane
from policies.flow_policies import record_filter_of

PATIENCE_S = 30.0
LEASE_EPOCH = 1
BY = "mirrord rebuild"
BEING_MADE = LedgerEnd(TopicId("being rebuilt"), (1 << 63) - 1, 0)
"""The marker for a rebuild that is in progress. It is stored as if it were the end of the ledger, but no real ledger
has this topic id or reaches this offset. A client that reads the marker from the state topic raises
`LedgerWentBack`."""
TOGETHER = 500
"""Maximum number of facts in one ledger entry. Once its facts exceed 256 KiB in total, an entry gets no further
facts."""
STEP_S = 0.1
DRAINED = "drained"
"""The lane state in the progress records that a rebuild writes. It means that no batch of the lane is in flight."""

log = structlog.get_logger()


class FlowRebuilt(msgspec.Struct, frozen=True, kw_only=True):
    """The reconstructed lanes of a flow, from which its new ledger is written."""

    flow: str
    lost: str
    """What is wrong with the old ledger."""
    source_cluster: ClusterId
    target_cluster: ClusterId
    lanes: tuple[LaneRebuilt, ...]


async def find_positions(config: Config, flow: FlowConfig, why: str) -> FlowRebuilt:
    """Determine the position of each lane of a flow from the source log and the target log. Nothing is written. `why`
    says what is wrong with the old ledger. Raises EnvironmentFault."""
    survey = await survey_of(config, flow)
    lanes = survey.preview.plan.lanes
    rules = {lane.lane: rule for lane, rule in zip(lanes, await _rules(config, survey), strict=True)}
    source, target = survey.preview.source, survey.preview.target
    made: list[LaneRebuilt] = []
    if lanes:
        topics = ({lane.source_topic for lane in lanes}, {lane.target_topic for lane in lanes})
        limit = flow.limits.rebuild_bytes
        async with (
            open_logs(flow.source, config.clusters[flow.source], topics[0], rebuild_bytes=limit) as source_log,
            open_logs(flow.target, config.clusters[flow.target], topics[1], rebuild_bytes=limit) as target_log,
        ):
            looking = LaneLook(source_log, target_log)
            for lane in lanes:
                made.append(await looking.at(lane, rules[lane.lane]))
                log.info("lane_looked_at", lane=lane.lane, outcome=made[-1].outcome)
    return FlowRebuilt(
        flow=flow.name,
        lost=why,
        source_cluster=source.cluster_id,
        target_cluster=target.cluster_id,
        lanes=tuple(made),
    )


async def _rules(config: Config, survey: FlowSurvey) -> list[Rules]:
    flow = survey.flow
    shaping = RecordPolicies(flow)
    wanted = record_filter_of(flow)
    foreign = await producers_back(config, flow, ClusterAccess(config, PATIENCE_S).ledger)
    return [
        Rules(
            committed=flow.isolation == "read_committed",
            begins_late=flow.start_at(lane.source_topic) == "latest",
            refused=_refused(survey, lane, shaping),
            keeps=wanted.keeps if wanted is not None and shaping.concerns(lane.source_topic) else None,
            foreign=foreign,
        )
        for lane in survey.preview.plan.lanes
    ]


def _refused(survey: FlowSurvey, lane: PlannedLane, shaping: RecordPolicies) -> str:
    flow = survey.flow
    if flow.records.transform and shaping.concerns(lane.source_topic):
        return "its records are transformed: their content proves nothing"
    later = re.compile(re.escape(lane.target_topic + flow.separator) + r"\d+")
    again = [name for name in survey.preview.target.topics if later.fullmatch(name)]
    if flow.on_recreated == "fresh" and again:
        return (
            f"{again[0]} also exists, and only the ledger recorded which of them belongs to the current "
            f"{lane.source_topic}"
        )
    return ""


async def apply(config: Config, flow: FlowConfig, found: FlowRebuilt) -> None:
    """Replace the flow's ledger with the rebuilt one. Raises EnvironmentFault.

    After an error, the flow has no usable ledger until the rebuild has been repeated successfully.
    """
    runtime = config.runtime
    await _until_still(config, flow, found, (runtime.lease_ttl_ms + runtime.request_timeout_ms) / 1000)
    entries = list(_entries(flow, found, runtime.lease_ttl_ms, config.instance))
    _check(entries)
    cluster = config.clusters[flow.target]
    first = KafkaLog(flow.name, cluster, deadline_seconds=PATIENCE_S)
    await first.open(create=True, again=True)
    try:
        await _forbid(first)
        ends = await first.ends()
    finally:
        await first.close()
    if ends.end > 0:
        await _delete(config, flow, ends.topic_id)
    ledger = KafkaLog(flow.name, cluster, deadline_seconds=PATIENCE_S)
    await ledger.open(create=True, again=True)
    try:
        if (await ledger.ends()).end:
            raise EnvironmentFault(f"another client is writing to {ledger.topic}: a daemon of {flow.name} is running")
        for entry in entries:
            await ledger.append([encode_entry(entry)])
        ends = await ledger.ends()
        if ends.end != len(entries):
            raise EnvironmentFault(f"another client is writing to {ledger.topic}: a daemon of {flow.name} is running")
        records = [*_progress_records(found), LedgerEnd(ends.topic_id, ends.end, ends.leader_epoch)]
        await ledger.save([StateRow(state_key(record), encode_state(record)) for record in records])
    finally:
        await ledger.close()
    log.info("ledger_rebuilt", flow=flow.name, entries=len(entries), lanes=len(found.lanes))


async def _until_still(config: Config, flow: FlowConfig, found: FlowRebuilt, wait_s: float) -> None:
    """Wait until no more records of the flow can arrive at the target.

    A daemon that lost its ledger stops when its lease expires. Its last requests complete or time out within one
    request timeout after that. Raises EnvironmentFault if a daemon is still renewing the lease, or if records have
    arrived since the lanes were examined.
    """
    before = await _beat(config, flow)
    await asyncio.sleep(wait_s)
    if before is not None and await _beat(config, flow) != before:
        raise EnvironmentFault(f"a daemon of {flow.name} is running: stop it and try again")
    topics = {lane.planned.target_topic for lane in found.lanes}
    if not topics:
        return
    async with open_logs(flow.target, config.clusters[flow.target], topics) as logs:
        for lane in found.lanes:
            named = TopicPartition(lane.planned.target_topic, lane.planned.key.partition)
            if await _came(logs, named, lane):
                raise EnvironmentFault(
                    f"records of {flow.name} are still arriving in {named}: stop its daemon and try again"
                )


async def _beat(config: Config, flow: FlowConfig) -> tuple[int, int] | None:
    """Return the newest renewal of the lease as (lease epoch, renewal number). Return None if no daemon holds the
    lease, or if the ledger cannot be read."""
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    try:
        await store.open(read_only=True)
    except (LedgerMissing, LedgerWentBack, LedgerCorrupt):
        return None
    try:
        renewal = store.renewal
        return None if store.state.released or renewal is None else (renewal.epoch, renewal.beat)
    finally:
        await store.close()


async def _came(logs: LogReader, named: TopicPartition, lane: LaneRebuilt) -> bool:
    """Return whether a batch that may belong to the lane has arrived at the target since the lane was examined."""
    _, end = await logs.bounds(named, committed=False)
    async for batch in logs.read(named, lane.target_end, end, committed=False):
        header = batch.header
        if header.base_offset < lane.target_end or header.producer_id < 0:
            continue
        if lane.reconstructed is None or (header.producer_id, header.producer_epoch) == lane.producer:
            return True
    return False


async def _forbid(ledger: KafkaLog) -> None:
    """Mark the ledger as invalid in the state topic, so that no client uses it, and delete all other state records."""
    stale = {row.key async for row in ledger.load_state()} - {LEDGER_END_KEY}
    await ledger.save([StateRow(LEDGER_END_KEY, encode_state(BEING_MADE))])
    if stale:
        await ledger.save([StateRow(key, None) for key in sorted(stale)])


async def _delete(config: Config, flow: FlowConfig, topic_id: TopicId) -> None:
    """Delete the old ledger topic, and wait until the topic no longer exists. Raises EnvironmentFault."""
    upkeep = ClusterAccess(config, PATIENCE_S).upkeep(flow.target)
    try:
        refused = (await upkeep.delete([topic_id])).get(topic_id, "")
    finally:
        await upkeep.close()
    topics = LedgerTopics(flow.name, config.clusters[flow.target], PATIENCE_S)
    if refused:
        raise EnvironmentFault(f"the topic {topics.ledger} cannot be deleted: {refused}")
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await topics.find(create=False)
                except (LedgerMissing, LedgerGone):
                    return
                await asyncio.sleep(STEP_S)
    except TimeoutError:
        raise LedgerUnavailable(f"the topic {topics.ledger} was deleted but still exists") from None
    finally:
        topics.close()


def _entries(flow: FlowConfig, found: FlowRebuilt, ttl_ms: int, instance: str) -> Iterator[Entry]:
    """Yield all entries of the new ledger, in order."""
    now_ms = SystemClock().wall_ms()
    writer = secrets.token_hex(6)
    opened = FlowOpened(found.flow, found.source_cluster, found.target_cluster)
    yield Entry(0, now_ms, (opened,), writer_text(writer, 0))
    opening_facts = [LeaseTaken(LEASE_EPOCH, this_process(instance, ""), ttl_ms), *_facts(flow, found, now_ms)]
    number = 1
    for together in _together([*opening_facts, LeaseReleased(LEASE_EPOCH)]):
        yield Entry(LEASE_EPOCH, now_ms, together, writer_text(writer, number))
        number += 1


def _facts(flow: FlowConfig, found: FlowRebuilt, now_ms: int) -> Iterator[AnyFact]:
    shaping = RecordPolicies(flow)
    for lane in found.lanes:
        planned = lane.planned
        if lane.outcome == "refused":
            origin = Origin(BY, lane.why, now_ms)
            yield CopyingPaused(planned.source_topic, planned.key.partition, origin)
        if lane.reconstructed is not None:
            named = LaneNames(
                lane=planned.lane,
                source_topic=planned.source_topic,
                target_topic=planned.target_topic,
                partition=planned.key.partition,
                producer_id=lane.producer[0],
                producer_epoch=lane.producer[1],
                policy=shaping.fingerprint if shaping.concerns(planned.source_topic) else flow.isolation,
                by=BY,
            )
            yield from facts(named, lane.reconstructed)


def _together(all_facts: Sequence[AnyFact]) -> Iterator[tuple[AnyFact, ...]]:
    """Divide the facts into groups that are small enough for one ledger entry each."""
    some: list[AnyFact] = []
    size = 0
    for fact in all_facts:
        some.append(fact)
        size += len(encode_entry(Entry(0, 0, (fact,))))
        if len(some) >= TOGETHER or size > 1 << 18:
            yield tuple(some)
            some, size = [], 0
    if some:
        yield tuple(some)


def _check(entries: Sequence[Entry]) -> None:
    """Check that every fact will take effect. This check runs before any entry is written. Raises EnvironmentFault if a
    fact would have no effect."""
    state = FlowState()
    for offset, entry in enumerate(entries):
        for fact, binds in zip(entry.facts, fold(state, entry, offset), strict=True):
            if not binds:
                raise EnvironmentFault(f"the new ledger would be wrong, because this has no effect: {fact}")


def _progress_records(found: FlowRebuilt) -> Iterator[Progress]:
    """Yield the progress record of each reconstructed lane."""
    now_ms = SystemClock().wall_ms()
    for lane in found.lanes:
        reconstructed = lane.reconstructed
        if reconstructed is not None:
            yield Progress(
                lane=lane.planned.lane,
                lease_epoch=LEASE_EPOCH,
                grant=GRANT,
                ordinal=reconstructed.ordinal,
                target_offset=reconstructed.target_offset,
                leader_epoch=reconstructed.target_epoch,
                source_offset=reconstructed.source_offset,
                source_end=lane.source_end,
                last_record_ms=-1,
                at_ms=now_ms,
                protected=False,
                state=DRAINED,
                source_epoch=reconstructed.source_epoch,
                epochs_told=True,
            )
