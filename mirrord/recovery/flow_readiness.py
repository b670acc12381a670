"""Determines how ready one flow is for the loss of its source cluster. Nothing is changed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mirrord.config.schema import FlowConfig
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.last_seen.configs_and_acls import SeenSourceConfigs, seen_acls, seen_configs
from mirrord.ledger.last_seen.group_positions import SeenGroups, seen_groups
from mirrord.ledger.last_seen.quotas import seen_quotas
from mirrord.ledger.last_seen.source_ends import SeenEnd, SeenEnds, SeenFaults
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.acls import AclRule
from mirrord.model.names import TopicPartition
from mirrord.model.readiness import Comparison, FlowReadiness, GroupsReadiness, PartitionReadiness
from mirrord.model.status import LaneStatus
from mirrord.recovery.rules.access import faults
from mirrord.recovery.rules.comparisons import NOT_RECORDED, compare_acls, compare_configs, compare_quotas
from mirrord.recovery.rules.groups import PositionTally
from mirrord.recovery.rules.headroom import limits_of, summary, target_headroom
from mirrord.recovery.rules.judgement import DEFAULT_RPO_S, judge, late
from mirrord.recovery.rules.partitions import SourceRetention, has_expired, observed_lanes, partitions_of, proof_of
from mirrord.recovery.target_survey import TargetClients, TargetSurvey, survey_target
from mirrord.recovery.turns import Turns
from mirrord.supervision.failover.ended_flow import ended_line, is_ended
from mirrord.supervision.lane_status import present_lanes
from mirrord.topics.acl_sync import topic_names
from mirrord.topics.rules.recreated_topic_names import copy_names
from policies.acls import TopicNames
from policies.flow_policies import selection_of


class ReadinessOptions(NamedTuple):
    """What an operator wants to know about the readiness."""

    rpo_s: float | None = None
    """The largest acceptable lag. None means that of the flow."""
    principals: tuple[str, ...] = ()
    """Principals that must be allowed to read and write the target topics."""


class Live(NamedTuple):
    """What is known beyond the ledger."""

    reported: Sequence[LaneStatus] | None = None
    """The lanes as the flow's daemon reports them. None if it does not answer."""
    ends: Mapping[TopicPartition, SeenEnd] = {}
    """High watermarks that the source has just reported, if no daemon answers."""


class FlowAssessment(NamedTuple):
    """What was found out about a flow. Answers with different options derive from it without another request."""

    found: FlowReadiness
    """The answer without the blockers that depend on the options."""
    rpo_s: float
    """The largest acceptable lag of the flow."""
    acls: frozenset[AclRule] | str
    """The ACLs of the target, or why they cannot be read."""
    target_topics: tuple[str, ...]

    def answer(self, asked: ReadinessOptions) -> FlowReadiness:
        """Return the readiness of the flow with these options."""
        blockers = (
            *self.found.blockers,
            *late(self.found.partitions, self.rpo_s if asked.rpo_s is None else asked.rpo_s),
            *_refused(asked.principals, self.acls, self.target_topics),
        )
        return replace(self.found, ready=not blockers, blockers=blockers)


async def assess(
    flow: FlowConfig, state: FlowState, live: Live, clients: TargetClients, now_ms: int, turns: Turns
) -> FlowAssessment:
    """Find out how ready a flow is. `state` may change in the meantime.

    What the target does not answer is reported as a blocker.
    """
    known = SeenEnds(state)
    await turns.pause()
    lanes = observed_lanes(known, present_lanes(state, state.lanes), live.reported)
    # Before the target is asked: otherwise, what is recorded may be newer than the answers, and seem to be missing.
    configs, groups = seen_configs(state), seen_groups(state)
    retention = source_retention(flow, configs, now_ms)
    partitions = await turns.collect(partitions_of(known, lanes, live.ends, live.reported, retention))
    partitions.sort(key=lambda each: (each.topic, each.partition))
    survey = await turns.outside(survey_target(flow, state, lanes, clients, now_ms))
    partitions = await turns.collect(_with_target_headroom(partitions, survey))
    copies = {lane.source_topic: lane.target_topic for lane in lanes}
    found = FlowReadiness(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        ready=False,
        at_ms=now_ms,
        grounds="ledger" if live.reported is None else "daemon",
        partitions=tuple(partitions),
        lag_records=_total([each.lag_records for each in partitions]),
        lag_s=_largest([each.lag_s for each in partitions]),
        seen_ms=min((each.seen_ms for each in partitions if each.seen_ms is not None), default=None),
        groups=await _groups(flow, known, groups, lanes, survey, turns),
        quotas=compare_quotas(seen_quotas(state), survey.quotas),
        proof=proof_of(state, lanes),
        retention=summary(partitions, None if configs.at_ms < 0 else configs.at_ms),
    )
    await turns.pause()
    found = replace(found, configs=_configs(flow, configs, survey, copies), acls=_acls(flow, state, survey, copies))
    await turns.pause()
    found = _judged(found, state, lanes, survey, known.faults)
    await turns.pause()
    rpo_s = DEFAULT_RPO_S if flow.rpo_ms is None else flow.rpo_ms / 1000
    return FlowAssessment(found, rpo_s, survey.acls, tuple(copies.values()))


def _judged(
    found: FlowReadiness, state: FlowState, lanes: Sequence[LaneState], survey: TargetSurvey, faulty: SeenFaults
) -> FlowReadiness:
    targets = None
    if not isinstance(survey.topics, str):
        targets = {name: topic.topic_id for name, topic in survey.topics.topics.items()}
    blockers, remarks = judge(found, state, lanes, targets)
    blockers = (
        *sorted({part for part in (survey.topics, survey.bounds, survey.commits) if isinstance(part, str)}),
        *((ended_line(state),) if is_ended(state) else ()),
        *(() if found.partitions else ("nothing is copied yet",)),
        *_faults(faulty),
        *blockers,
        *_unanswered(survey),
    )
    return replace(found, blockers=blockers, remarks=remarks)


def source_retention(flow: FlowConfig, seen: SeenSourceConfigs, now_ms: int) -> SourceRetention:
    """Return the retention of the source topics according to the configs that were last seen."""
    why = NOT_RECORDED if flow.sync.configs else "sync.configs is false, so the configs of the source are not read"
    if seen.at_ms >= 0 and flow.sync.configs:
        why = "the configs of the topic on the source were never read"
    limits = {topic: limits_of({each.name: each.value for each in configs}) for topic, configs in seen.topics.items()}
    return SourceRetention(now_ms, limits if flow.sync.configs else {}, limits_of(why))


def _with_target_headroom(
    partitions: Iterable[PartitionReadiness], survey: TargetSurvey
) -> Iterator[PartitionReadiness]:
    positions, limits, kept_s = survey.unread
    for each in partitions:
        place = (each.target_topic, each.partition)
        unread = positions.get(place)
        if unread is None or isinstance(survey.bounds, str):
            yield each
        else:
            kept = kept_s if isinstance(kept_s, str) else kept_s.get(place)
            headroom = target_headroom(unread, survey.bounds[place][0], limits[place[0]], kept)
            yield replace(each, target_headroom=headroom)


def _configs(flow: FlowConfig, seen: SeenSourceConfigs, survey: TargetSurvey, copies: Mapping[str, str]) -> Comparison:
    if isinstance(survey.settings, str):
        return compare_configs(flow, seen, copies, survey.settings, {})
    return compare_configs(flow, seen, copies, survey.settings.topics, survey.settings.refused)


def _acls(flow: FlowConfig, state: FlowState, survey: TargetSurvey, copies: Mapping[str, str]) -> Comparison:
    def names() -> TopicNames:
        sources = {target: source for source, target in copies.items()}
        return topic_names(flow, selection_of(flow).selects, sources, copy_names(state, flow))

    return compare_acls(flow, state, seen_acls(state), survey.acls, names, copies.values())


def _faults(seen: SeenFaults) -> Iterator[str]:
    """Yield one line for each selected topic that is not copied, or not completely."""
    yield from (f"{topic}: {line}" for topic, line in sorted(seen.lines.items()))
    if seen.omitted:
        yield f"{seen.omitted} more topics are not copied, or not completely"


def _unanswered(survey: TargetSurvey) -> Iterator[str]:
    if isinstance(survey.commits, str):
        return
    if refused := survey.commits.refused:
        group, why = min(refused.items())
        more = f" and {len(refused) - 1} more groups" if len(refused) > 1 else ""
        yield f"the target does not return the positions of group {group}{more}: {why}"


def _refused(principals: Sequence[str], acls: frozenset[AclRule] | str, topics: Collection[str]) -> Iterator[str]:
    """Yield one line for each principal and operation that is not allowed on all target topics."""
    if principals and isinstance(acls, str):
        yield f"it is not known what {', '.join(principals)} may do: {acls}"
    elif principals and not isinstance(acls, str):
        rules = sorted(acls)
        for principal in principals:
            yield from faults(rules, principal, topics)


async def _groups(
    flow: FlowConfig, known: SeenEnds, seen: SeenGroups, lanes: Sequence[LaneState], survey: TargetSurvey, turns: Turns
) -> GroupsReadiness:
    if not flow.follows_groups:
        return GroupsReadiness(note='positions of consumer groups are not synced: groups.mode is "off"')
    if isinstance(survey.commits, str) or isinstance(survey.bounds, str):
        return GroupsReadiness(note="the target does not show the positions of consumer groups")
    lane_of = {(lane.target_topic, lane.partition): lane for lane in lanes}
    copies = {target: (lane.source_topic, lane.partition) for target, lane in lane_of.items()}

    def is_expired(target: TopicAndPartition, offset: int) -> bool:
        return has_expired(known, lane_of[target], offset)

    tally = PositionTally(seen, survey.commits.offsets, copies, survey.bounds, is_expired)
    for _ in tally.groups():
        await turns.pause()
    return tally.result()


def _total(lags: Sequence[int | None]) -> int | None:
    known = [each for each in lags if each is not None]
    return sum(known) if len(known) == len(lags) else None


def _largest(lags: Sequence[float | None]) -> float | None:
    known = [each for each in lags if each is not None]
    return max(known, default=0.0) if len(known) == len(lags) else None
