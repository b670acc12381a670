"""What there is to audit, by a flow's ledger: the lanes, their ranges, and what is to be known to read them."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from mirrord.audit.by_ledger import compare_ledger
from mirrord.audit.model import WITHHELD, AuditRange, RangeResult
from mirrord.audit.ranges import ranges
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.prune import floor
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.audit_facts import RangeAudited, RangeRepaired
from mirrord.model.config import Config, FlowConfig
from mirrord.model.config_checks import goes_back
from mirrord.model.facts import AnyFact, Verdict
from mirrord.model.letters import Returned
from mirrord.model.names import Alias, LaneId, TopicPartition
from mirrord.shell.attic import run_memory
from mirrord.shell.auditing import AuditedLane, is_compacted
from mirrord.shell.brought_back import brought_back
from mirrord.shell.effective import topic_settings
from mirrord.shell.ledger_kafka import KafkaLog
from mirrord.shell.ledger_reading import LedgerReading, read_gaps
from mirrord.shell.log_offsets import log_offsets, offsets_at
from mirrord.shell.supervise import Surroundings
from mirrord.shell.topics import KafkaTopicAdmin

PATIENCE_S = 10.0
RANGE_RECORDS = 100_000
"""Of one range: when its records have to be compared, those of both sides are held at once."""
_POLICY = "cleanup.policy"


class PlannedLane(msgspec.Struct, frozen=True, kw_only=True):
    """A lane that is audited, or why it is not."""

    lane: LaneId
    audited: AuditedLane
    ranges: tuple[AuditRange, ...] = ()
    verdicts_are_known: bool = False
    """All that the ledger ever told of this lane; else it was trimmed."""
    target_log: tuple[int, int] = (0, 0)
    """Where it begins and ends; looked at after the ledger."""
    source_start: int = 0
    """Where the source's log begins."""
    skipped: str = ""
    """Why nothing of it is audited; empty when it is."""
    proven: RangeAudited | None = None
    """What earlier audits have proven; the ranges go on behind it."""
    is_from_begin: bool = True
    """The first range goes on where the lane is proven to, or is the first one of the lane."""
    lost: int = 0
    """Records that were copied into a target topic that is not there any more."""
    repaired: tuple[RangeRepaired, ...] = ()
    """What of its source offsets lies in a topic of its own."""


class FlowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A flow that is audited."""

    flow: str
    source: Alias
    target: Alias
    lanes: tuple[PlannedLane, ...]
    history: tuple[RangeAudited, ...] = ()
    """What audits have proven before, as far as the ledger still tells."""


async def plan_flow(
    config: Config,
    flow: FlowConfig,
    level: str,
    topics: Sequence[str] = (),
    since_ms: int | None = None,
    *,
    again: bool = False,
) -> FlowPlan:
    """What of a flow is to be audited: all below its marks, of topics that match one of the regexes, if any; of a topic
    that was made anew the newest copy alone.

    What earlier audits have proven as closely as `level` would is left out, if that is "digest" or "records" and not
    `again`. With `since_ms` only what the source held behind its first record of that time. Raises LedgerMissing and
    other EnvironmentFaults.
    """
    state, gaps, history = await read_told(config, flow)
    verdicts: dict[LaneId, list[Verdict]] = {}
    for gap in gaps:
        verdicts.setdefault(gap.lane, []).append(Verdict(gap.start, gap.end, gap.reason))
    patterns = [re.compile(pattern) for pattern in topics]
    newest: dict[TopicPartition, LaneState] = {}
    for lane in sorted(state.lanes.values(), key=lambda each: each.age):
        if not patterns or any(pattern.fullmatch(lane.source_topic) for pattern in patterns):
            newest[TopicPartition(lane.source_topic, lane.partition)] = lane
    lanes = list(newest.values())
    there = await _Clusters.look(config, flow, lanes, since_ms)
    returned, _ = await brought_back(config, flow, state)
    told = [(verdicts.get(lane.key.id, []), gaps.forgotten_below(lane.key.id)) for lane in lanes]
    planned = [
        _plan(flow, state, lane, each, there, level, again=again) for lane, each in zip(lanes, told, strict=True)
    ]
    planned = [_with(each, returned.get(each.lane, [])) for each in planned]
    planned = [msgspec.structs.replace(each, repaired=state.lanes[each.lane].repaired) for each in planned]
    planned.sort(key=lambda each: each.audited.source)
    return FlowPlan(
        flow=flow.name, source=flow.source, target=flow.target, lanes=tuple(planned), history=tuple(history)
    )


def _with(lane: PlannedLane, returned: Iterable[Returned]) -> PlannedLane:
    """The same, and it is known what was brought back to this very copy."""
    there = [each.standing for each in returned]
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


def audit_by_ledger(lane: PlannedLane) -> list[RangeResult]:
    """What the ledger alone proves."""
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
    """What both clusters say of the lanes' topics."""

    source_ids: Mapping[str, str]
    target_ids: Mapping[str, str]
    source_compacted: Collection[str]
    target_compacted: Collection[str]
    target_logs: Mapping[TopicPartition, tuple[int, int]]
    source_starts: Mapping[TopicPartition, int]
    since: Mapping[TopicPartition, int] | None
    others_write: bool

    @staticmethod
    async def look(config: Config, flow: FlowConfig, lanes: Sequence[LaneState], since_ms: int | None) -> "_Clusters":
        """Ask both. Raises EnvironmentFault."""
        sources = {TopicPartition(lane.source_topic, lane.partition) for lane in lanes}
        targets = {TopicPartition(lane.target_topic, lane.partition) for lane in lanes}
        source_ids = await _ids(config, flow.source, {each.topic for each in sources})
        target_ids = await _ids(config, flow.target, {each.topic for each in targets})
        # The marks were read before: the target's end is behind them, or something is lost.
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
            since,
            # Under the same names both ways the target has writers of its own.
            any(goes_back(flow, other) for other in config.all_flows),
        )


async def _ids(config: Config, alias: Alias, topics: Collection[str]) -> dict[str, str]:
    admin = KafkaTopicAdmin(config.clusters[alias], PATIENCE_S)
    try:
        return {name: topic.topic_id for name, topic in (await admin.look(topics)).topics.items()}
    finally:
        await admin.close()


async def _compacted(config: Config, alias: Alias, topics: Collection[str]) -> frozenset[str]:
    settings = await topic_settings(config.clusters[alias], sorted(topics), [_POLICY], PATIENCE_S)
    return frozenset(name for name, each in settings.items() if is_compacted(each.values.get(_POLICY, "")))


def _plan(
    flow: FlowConfig,
    state: FlowState,
    lane: LaneState,
    told: tuple[Sequence[Verdict], int],
    there: _Clusters,
    level: str,
    *,
    again: bool,
) -> PlannedLane:
    verdicts, forgotten_below = told
    source = TopicPartition(lane.source_topic, lane.partition)
    target = TopicPartition(lane.target_topic, lane.partition)
    audited = AuditedLane(
        source=source,
        target=target,
        committed=flow.isolation == "read_committed",
        source_compacted=source.topic in there.source_compacted,
        target_compacted=target.topic in there.target_compacted,
        others_write=there.others_write,
    )
    planned = PlannedLane(lane=lane.key.id, audited=audited)
    mark = state.progress.get(lane.key.id)
    skipped, lost = "", 0
    if there.source_ids.get(source.topic) != lane.key.source_topic_id:
        skipped = "the source topic is gone, or was made anew"
    elif there.target_ids.get(target.topic) != lane.key.target_topic_id or target not in there.target_logs:
        skipped, lost = "the target topic is gone, or was made anew", mark.ordinal if mark is not None else 0
    elif level != "ledger" and _is_transformed(flow, source.topic):
        skipped = "its records are transformed on the way, which an audit does not follow yet"
    elif mark is None or not len(lane.source_runs) or not len(lane.target_runs):
        skipped = "nothing of it is copied yet"
    if skipped or mark is None:
        return msgspec.structs.replace(planned, skipped=skipped, lost=lost)
    proven = lane.audited if not again and _is_enough(lane.audited, level) else None
    first = max(floor(lane), proven.end if proven else 0)
    if not _has_forgotten(lane, verdicts, audited):
        forgotten_below = 0
    found = every = list(ranges(lane, first, mark.ordinal, RANGE_RECORDS, verdicts, forgotten_below))
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
        target_log=there.target_logs[target],
        source_start=there.source_starts.get(source, 0),
    )


def _has_forgotten(lane: LaneState, verdicts: Sequence[Verdict], audited: AuditedLane) -> bool:
    """Whether the ledger held verdicts by which records were left out that the source may hold, and was trimmed."""
    withheld = WITHHELD.union({"compacted"} if audited.source_compacted else ())
    withheld = withheld.union(() if audited.committed else {"aborted"})
    known = sum(verdict.end - verdict.start for verdict in verdicts if verdict.reason in withheld)
    return known < sum(count for reason, count in lane.verdicts.counts.items() if reason in withheld)


def _is_transformed(flow: FlowConfig, topic: str) -> bool:
    wanted = flow.records
    return bool(wanted.transform) and any(re.fullmatch(pattern, topic) for pattern in wanted.topics)


def _is_enough(proven: RangeAudited | None, level: str) -> bool:
    return proven is not None and level in {"digest", proven.level}


async def read_told(config: Config, flow: FlowConfig) -> tuple[FlowState, Gaps, list[RangeAudited]]:
    """The ledger with its marks, and every verdict that it still holds. The marks come first: what lies below them is
    explained by what the ledger held by then."""
    store = Surroundings(config, PATIENCE_S).ledger(flow)
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
