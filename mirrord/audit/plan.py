"""Plans an audit from a flow's ledger: the lanes, the ranges of each lane, and the data needed to compare these
ranges."""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from mirrord.audit.range_audit import AuditedLane
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.ledger_audit import compare_ledger
from mirrord.audit.rules.range_division import ProvenTo, ranges
from mirrord.audit.rules.results import WITHHELD, Explained, RangeResult
from mirrord.audit.uncopied_partitions import NO_LEDGER, Uncopied, uncopied
from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.effective_configs import topic_settings
from mirrord.kafka.client.log_offsets import log_offsets, offsets_at
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.audit import RangeAudited, RangeRepaired
from mirrord.ledger.facts.core import LOSSES, AnyFact, Verdict
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.prune import floor
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.model.intervals import uncovered
from mirrord.model.names import Alias, LaneId, TopicPartition
from mirrord.replication.dead_letters.records import Returned
from mirrord.replication.dead_letters.replayed import brought_back
from mirrord.topics.rules.retention import is_compacted

PATIENCE_S = 10.0
RANGE_RECORDS = 100_000
"""Maximum number of records in a range. It limits memory use: if the records have to be compared one by one, all
source records and target records of the range are in memory at the same time."""
BEGIN_S = 5.0
"""The interval at which the audit checks whether a daemon has begun to copy a partition. If no record has been copied
after two intervals, the audit reports the partition as not copied."""
_POLICY = "cleanup.policy"


class LaneAuditPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan for one lane, or the reason why the lane is not audited."""

    lane: LaneId
    audited: AuditedLane
    ranges: tuple[AuditRange, ...] = ()
    verdicts_are_known: bool = False
    """Whether the ledger still holds every verdict that was ever recorded for this lane. A trimmed ledger may lack old
    verdicts."""
    target_log: tuple[int, int] = (0, 0)
    """The log start offset and the log end offset of the target partition, requested after the ledger was read."""
    source_start: int = 0
    """The log start offset of the source partition."""
    skipped: str = ""
    """Why the lane is not audited; empty if it is audited."""
    proven: RangeAudited | None = None
    """The newest proof that an earlier audit recorded for this lane, if its level is sufficient. The ranges begin where
    the proven part ends. None if there is no such proof, or if everything is audited again."""
    is_from_begin: bool = True
    """Whether the audit includes the first unproven range of the lane. False if `since_ms` excludes this range. The
    range begins where the proven part ends or, if nothing is proven, at the first record of the offset map."""
    left_out: int = 0
    """Number of ranges that the audit omits because they are older than `since_ms`."""
    lost: int = 0
    """Number of records that were copied to a target topic that no longer exists."""
    uncopied: tuple[int, int] = (0, 0)
    """The source offsets [start, end) of the partition, if none of its records have been copied; otherwise (0, 0)."""
    losses: tuple[Explained, ...] = ()
    """Losses that the ledger records for source offsets outside all ranges."""
    waiting: int = 0
    """Number of source offsets from the resume position to the log end offset. They have not been copied yet."""
    beyond: int = 0
    """Number of target offsets from the resume position to the log end offset. They are not audited."""
    has_nothing: bool = False
    """Whether the source partition holds nothing to copy."""
    repaired: tuple[RangeRepaired, ...] = ()
    """The ranges of source offsets whose records a repair has copied to a separate topic."""


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A flow to audit, with the plans for its lanes."""

    flow: str
    source: Alias
    target: Alias
    lanes: tuple[LaneAuditPlan, ...]
    history: tuple[RangeAudited, ...] = ()
    """The results of all earlier audits that the ledger still holds."""
    trouble: str = ""
    """Why the flow cannot be audited, as one line for operators; empty if it can be audited."""


async def plan_flow(
    config: Config,
    flow: FlowConfig,
    level: str,
    topics: Sequence[str] = (),
    since_ms: int | None = None,
    *,
    again: bool = False,
) -> FlowPlan:
    """Return the parts of a flow that have to be audited.

    The plan contains all offsets below the resume positions of the flow's lanes, and every selected partition from
    which no record has been copied. If `topics` holds regexes, the plan contains only source topics that match one of
    them. If a topic was deleted and re-created, only the newest topic with that name is audited.

    If `level` is "digest" or "records", ranges that an earlier audit has proven at this level or a stricter one are
    skipped. With `again`, they are audited again. With `since_ms`, the audit begins with the range that contains the
    first source record with a timestamp of at least `since_ms`. Raises EnvironmentFault.
    """
    for tries_left in (2, 1, 0):
        plan, may_begin = await _plan_now(config, flow, level, topics, since_ms, again=again)
        if not may_begin or not tries_left:
            return plan
        # A daemon may be about to create the target topic of a new topic, or to copy its first records.
        await asyncio.sleep(BEGIN_S)
    raise AssertionError


async def _plan_now(
    config: Config, flow: FlowConfig, level: str, topics: Sequence[str], since_ms: int | None, *, again: bool
) -> tuple[FlowPlan, bool]:
    """Return the plan for the current state of the ledger, and whether a daemon may begin to copy an uncopied partition
    at any moment."""
    try:
        state, gaps, history = await read_ledger(config, flow)
    except LedgerMissing:
        rows = _with_uncopied([], await uncopied(config, flow, None, topics, PATIENCE_S))
        plan = FlowPlan(flow=flow.name, source=flow.source, target=flow.target, lanes=tuple(rows), trouble=NO_LEDGER)
        return plan, False
    verdicts: dict[LaneId, list[Verdict]] = {}
    for gap in gaps:
        verdicts.setdefault(gap.lane, []).append(Verdict(gap.start, gap.end, gap.reason))
    patterns = [re.compile(pattern) for pattern in topics]
    newest: dict[TopicPartition, LaneState] = {}
    for lane in sorted(state.lanes.values(), key=lambda each: each.age):
        if not patterns or any(pattern.fullmatch(lane.source_topic) for pattern in patterns):
            newest[TopicPartition(lane.source_topic, lane.partition)] = lane
    lanes = list(newest.values())
    missing = await uncopied(config, flow, state, topics, PATIENCE_S)
    there = await _Clusters.read(config, flow, lanes, since_ms)
    returned, _ = await brought_back(config, flow, state)
    verdicts_by_lane = [(verdicts.get(lane.key.id, []), gaps.forgotten_below(lane.key.id)) for lane in lanes]
    planned = [
        _plan(flow, state, lane, each, there, level, again=again)
        for lane, each in zip(lanes, verdicts_by_lane, strict=True)
    ]
    planned = [_with(each, returned.get(each.lane, [])) for each in planned]
    planned = [msgspec.structs.replace(each, repaired=state.lanes[each.lane].repaired) for each in planned]
    former = _former_losses(state, planned, verdicts)
    planned = [_with_losses(each, verdicts.get(each.lane, []), former, there.since) for each in planned]
    planned = _with_uncopied(planned, missing)
    planned.sort(key=lambda each: each.audited.source)
    names = (flow.name, flow.source, flow.target)
    plan = FlowPlan(flow=names[0], source=names[1], target=names[2], lanes=tuple(planned), history=tuple(history))
    return plan, any(each.start < each.end and not each.why for each in missing)


def _with_uncopied(planned: Sequence[LaneAuditPlan], missing: Sequence[Uncopied]) -> list[LaneAuditPlan]:
    """Return the planned lanes, plus one entry for each partition from which no record has been copied. Such an entry
    lists the source offsets that have not been copied and, if known, the reason."""
    rows = {each.audited.source: each for each in planned}
    for each in missing:
        audited = AuditedLane(source=each.source, target=each.target, committed=True)
        row = rows.get(each.source) or LaneAuditPlan(lane=LaneId(str(each.source)), audited=audited)
        why = f": {each.why}" if each.why else ""
        has_nothing = each.start >= each.end
        said = f"there is nothing to copy yet{why}" if has_nothing else f"none of it has been copied{why}"
        rows[each.source] = msgspec.structs.replace(
            row, skipped=said, uncopied=(each.start, each.end), has_nothing=has_nothing
        )
    return list(rows.values())


def _former_losses(
    state: FlowState, planned: Sequence[LaneAuditPlan], verdicts: Mapping[LaneId, Sequence[Verdict]]
) -> dict[TopicPartition, list[Explained]]:
    """Return the losses that the ledger records for older lanes, by source partition. An older lane copied an earlier
    source topic with the same name, or copied to an earlier target topic."""
    newest = {each.lane for each in planned}
    found: dict[TopicPartition, list[Explained]] = {}
    for lane in state.lanes.values():
        if lane.key.id not in newest:
            place = TopicPartition(lane.source_topic, lane.partition)
            found.setdefault(place, []).extend(
                Explained(each.reason, "source", each.start, each.end)
                for each in verdicts.get(lane.key.id, ())
                if each.reason in LOSSES
            )
    return found


def _with_losses(
    lane: LaneAuditPlan,
    verdicts: Sequence[Verdict],
    former: Mapping[TopicPartition, Sequence[Explained]],
    since: Mapping[TopicPartition, int] | None,
) -> LaneAuditPlan:
    """Return the lane with its remaining losses: those that are outside all of its ranges and that no earlier audit has
    counted. The first audit of a partition also counts the losses of its older lanes (`former`)."""
    proven_to = lane.proven.source_offset if lane.proven else 0
    begin = max(proven_to, since.get(lane.audited.source, 0) if since is not None else 0)
    looked = [(each.source_start, each.source_end) for each in lane.ranges]
    losses = [
        Explained(each.reason, "source", *part)
        for each in verdicts
        if each.reason in LOSSES and each.reason != "truncated" and not lane.left_out
        for part in uncovered((max(each.start, begin), each.end), looked)
    ]
    if lane.proven is None and since is None:
        losses += former.get(lane.audited.source, ())
    return msgspec.structs.replace(lane, losses=tuple(losses))


def _with(lane: LaneAuditPlan, returned: Iterable[Returned]) -> LaneAuditPlan:
    """Return the lane with its replayed records: each range lists the target offsets of the skipped records that
    `mirrord quarantine replay` has appended within it."""
    there = [each.position for each in returned]
    offsets = sorted(each.offset for each in there if each is not None and each.partition == lane.audited.target)
    if not offsets:
        return lane
    return msgspec.structs.replace(
        lane,
        ranges=tuple(
            msgspec.structs.replace(
                each, brought_back=tuple(at for at in offsets if each.target_start <= at < each.target_end)
            )
            for each in lane.ranges
        ),
    )


def audit_by_ledger(lane: LaneAuditPlan) -> list[RangeResult]:
    """Return, for each range of the lane, the result that follows from the ledger and from the start and end offsets of
    the logs. No records are read."""
    return [
        RangeResult(
            lane=lane.lane,
            first=each.first,
            end=each.end,
            by="ledger",
            compared=compare_ledger(
                each,
                *lane.target_log,
                verdicts_are_known=lane.verdicts_are_known,
                others_write=lane.audited.others_write,
                source_start=lane.source_start,
            ),
        )
        for each in lane.ranges
    ]


class _Clusters(msgspec.Struct, frozen=True):
    """The properties of the lanes' topics and partitions, as the two clusters report them."""

    source_ids: Mapping[str, str]
    target_ids: Mapping[str, str]
    source_compacted: Collection[str]
    target_compacted: Collection[str]
    target_logs: Mapping[TopicPartition, tuple[int, int]]
    source_starts: Mapping[TopicPartition, int]
    source_ends: Mapping[TopicPartition, int]
    since: Mapping[TopicPartition, int] | None
    others_write: bool

    @staticmethod
    async def read(config: Config, flow: FlowConfig, lanes: Sequence[LaneState], since_ms: int | None) -> "_Clusters":
        """Request topic ids, cleanup policies and log offsets from both clusters. Raises EnvironmentFault."""
        sources = {TopicPartition(lane.source_topic, lane.partition) for lane in lanes}
        targets = {TopicPartition(lane.target_topic, lane.partition) for lane in lanes}
        source_ids = await _ids(config, flow.source, {each.topic for each in sources})
        target_ids = await _ids(config, flow.target, {each.topic for each in targets})
        # The resume positions have already been read when these offsets are requested. Each log end offset is therefore
        # at or above the resume position in its partition, unless the target has lost records.
        starts = await log_offsets(config.clusters[flow.target], targets, "start")
        ends = await log_offsets(config.clusters[flow.target], targets, "end")
        since = None
        if since_ms is not None:
            found = await offsets_at(config.clusters[flow.source], sources, since_ms)
            since = {place: first[0] for place, first in found.items() if first is not None}
        return _Clusters(
            source_ids,
            target_ids,
            await _compacted(config, flow.source, source_ids),
            await _compacted(config, flow.target, target_ids),
            {place: (starts.get(place, 0), end) for place, end in ends.items()},
            await log_offsets(config.clusters[flow.source], sources, "start"),
            await log_offsets(config.clusters[flow.source], sources, "end"),
            since,
            # If two flows copy topics with the same names in opposite directions, other clients also write to the
            # target.
            any(goes_back(flow, other) for other in config.all_flows),
        )


async def _ids(config: Config, alias: Alias, topics: Collection[str]) -> dict[str, str]:
    admin = KafkaTopicAdmin(config.clusters[alias], PATIENCE_S, alias)
    try:
        return {name: topic.topic_id for name, topic in (await admin.describe(topics)).topics.items()}
    finally:
        await admin.close()


async def _compacted(config: Config, alias: Alias, topics: Collection[str]) -> frozenset[str]:
    settings = await topic_settings(config.clusters[alias], sorted(topics), [_POLICY], PATIENCE_S)
    return frozenset(name for name, each in settings.items() if is_compacted(each.values.get(_POLICY, "")))


def _plan(
    flow: FlowConfig,
    state: FlowState,
    lane: LaneState,
    known_verdicts: tuple[Sequence[Verdict], int],
    there: _Clusters,
    level: str,
    *,
    again: bool,
) -> LaneAuditPlan:
    verdicts, forgotten_below = known_verdicts
    source = TopicPartition(lane.source_topic, lane.partition)
    target = TopicPartition(lane.target_topic, lane.partition)
    audited = AuditedLane(
        source=source,
        target=target,
        committed=flow.isolation == "read_committed",
        source_compacted=source.topic in there.source_compacted,
        target_compacted=target.topic in there.target_compacted,
        others_write=there.others_write,
        rebuild_bytes=flow.limits.rebuild_bytes,
    )
    planned = LaneAuditPlan(lane=lane.key.id, audited=audited)
    progress = state.progress.get(lane.key.id)
    skipped, lost = "", 0
    if there.source_ids.get(source.topic) != lane.key.source_topic_id:
        skipped = "the source topic no longer exists, or was re-created"
    elif there.target_ids.get(target.topic) != lane.key.target_topic_id or target not in there.target_logs:
        skipped = "the target topic no longer exists, or was re-created"
        lost = progress.ordinal if progress is not None else 0
    elif level != "ledger" and _is_transformed(flow, source.topic):
        skipped = "its records are transformed, which an audit does not support yet"
    elif progress is None or not len(lane.source_runs):
        skipped = "none of it has been copied yet"
    if skipped or progress is None:
        return msgspec.structs.replace(planned, skipped=skipped, lost=lost)
    proven = lane.audited if not again and _is_enough(lane.audited, level) else None
    first = max(floor(lane), proven.end if proven else 0)
    if not _has_forgotten(lane, verdicts, audited):
        forgotten_below = 0
    found = every = list(
        ranges(lane, first, progress.ordinal, RANGE_RECORDS, verdicts, forgotten_below, _proven_to(lane, proven))
    )
    if there.since is not None:
        begin = there.since.get(source)
        found = [each for each in found if begin is not None and each.source_end > begin]
    known = sum(verdict.end - verdict.start for verdict in verdicts if verdict.reason != "truncated")
    counted = sum(count for reason, count in lane.verdicts.counts.items() if reason != "truncated")
    return msgspec.structs.replace(
        planned,
        ranges=tuple(found),
        proven=proven,
        is_from_begin=found[:1] == every[:1],
        verdicts_are_known=known == counted,
        left_out=len(every) - len(found),
        waiting=max(0, there.source_ends.get(source, 0) - progress.source_offset),
        beyond=max(0, there.target_logs[target][1] - max(progress.target_offset, there.target_logs[target][0])),
        target_log=there.target_logs[target],
        source_start=there.source_starts.get(source, 0),
    )


def _proven_to(lane: LaneState, proven: RangeAudited | None) -> ProvenTo:
    """Return the source offset and the target offset up to which an earlier audit has proven a lane."""
    if proven is None:
        return None, None
    last = lane.target_runs.offset_of(proven.end - 1)
    return proven.source_offset, None if last is None else last + 1


def _has_forgotten(lane: LaneState, verdicts: Sequence[Verdict], audited: AuditedLane) -> bool:
    """Return whether the ledger was trimmed and therefore lacks verdicts on records that the source may still hold."""
    withheld = WITHHELD.union({"compacted"} if audited.source_compacted else ())
    withheld = withheld.union(() if audited.committed else {"aborted"})
    known = sum(verdict.end - verdict.start for verdict in verdicts if verdict.reason in withheld)
    return known < sum(count for reason, count in lane.verdicts.counts.items() if reason in withheld)


def _is_transformed(flow: FlowConfig, topic: str) -> bool:
    wanted = flow.records
    return bool(wanted.transform) and any(re.fullmatch(pattern, topic) for pattern in wanted.topics)


def _is_enough(proven: RangeAudited | None, level: str) -> bool:
    return proven is not None and level in {"digest", proven.level}


async def read_ledger(config: Config, flow: FlowConfig) -> tuple[FlowState, Gaps, list[RangeAudited]]:
    """Return the flow's state with its resume positions, every verdict that the ledger still holds, and the results of
    earlier audits.

    The resume positions are read first, and the ledger is read to its end afterwards. The ledger therefore explains
    every offset below the resume positions.
    """
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    await store.open(read_only=True)
    try:
        progress = dict(store.state.progress)
    finally:
        await store.close()
    reading = LedgerReading(KafkaLog(flow.name, config.clusters[flow.target]), run_memory(flow))
    history: list[RangeAudited] = []

    def see(fact: AnyFact) -> None:
        if isinstance(fact, RangeAudited):
            history.append(fact)

    gaps = await read_gaps(reading, see)
    reading.state.progress = progress
    return reading.state, gaps, history
