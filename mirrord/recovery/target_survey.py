"""Reads from the target cluster what `mirrord ready` compares with the ledger. Nothing is changed."""

import asyncio
from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, TypeVar

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.groups.rules.commit_plan import GroupFilter
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.config_and_acl_admin import NoAuthorizer, RequestRefused, SeenSettings, UpkeepAdmin
from mirrord.kafka.client.group_admin import LATER, GroupAdmin
from mirrord.kafka.client.log_offsets import LogOffsets
from mirrord.kafka.client.topic_admin import ClusterTopics, TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import GroupOffsets
from mirrord.kafka.protocol.list_offsets import EARLIEST, LATEST
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.acls import AclRule, ResourceKind
from mirrord.model.errors import MirrordError
from mirrord.model.names import TopicPartition
from mirrord.model.quotas import ClientQuota
from mirrord.recovery.rules.groups import Commits, TargetBounds
from mirrord.recovery.rules.headroom import STEPS, RetentionLimits, UnreadPosition, limits_of, oldest_unread
from policies.acls import acl_policy

COORDINATOR_S, AGAIN_S = 2.0, 0.1
"""How long groups are asked about again whose coordinators are just moving or loading, and the pause in between."""
MOST_LIMITS = 16
"""Maximum number of different values of `retention.ms` for which the target is asked how old unread records are."""

T = TypeVar("T")


class TargetCommits(NamedTuple):
    """The committed offsets of the groups on the target."""

    offsets: Commits
    refused: Mapping[str, str]
    """Kafka's error for each group whose offsets are not known."""


class UnreadRecords(NamedTuple):
    """The target partitions in which groups have unread records."""

    positions: Mapping[TopicAndPartition, UnreadPosition] = {}
    limits: Mapping[str, RetentionLimits] = {}
    """The retention of these topics."""
    kept_s: Mapping[TopicAndPartition, float] | str = {}
    """For how long the records after these positions are certainly kept. Partitions about which the target was not
    asked are omitted."""


class TargetSurvey(NamedTuple):
    """What the target has. Instead of a part that cannot be read, there is a line that says why."""

    topics: ClusterTopics | str
    bounds: TargetBounds | str
    commits: TargetCommits | str
    settings: SeenSettings | str
    acls: frozenset[AclRule] | str
    quotas: frozenset[ClientQuota] | str
    unread: UnreadRecords = UnreadRecords()


class TargetClients(NamedTuple):
    """The clients that a survey of the target needs."""

    cluster: ClusterConfig
    topics: TopicAdmin
    upkeep: UpkeepAdmin
    reads_acls: bool = False
    """Whether the ACLs on topics are needed even if the flow does not sync ACLs."""


async def survey_target(
    flow: FlowConfig, state: FlowState, lanes: Sequence[LaneState], clients: TargetClients, now_ms: int
) -> TargetSurvey:
    """Read all parts at the same time, and then for how long unread records are kept. `lanes` are the lanes whose
    target topics are read. Raises nothing that concerns the cluster."""
    names = sorted({lane.target_topic for lane in lanes})
    partitions = [TopicPartition(lane.target_topic, lane.partition) for lane in lanes]
    survey = TargetSurvey(
        *await asyncio.gather(
            _part(clients.topics.describe(names)),
            _part(_bounds(clients.cluster, partitions)),
            _part(_commits(flow, state, clients.cluster)),
            _part(clients.upkeep.settings(names)),
            _part(_acls(flow, clients)),
            _part(clients.upkeep.quotas()),
        )
    )
    return survey._replace(unread=await _unread(survey, partitions, clients.cluster, now_ms))


async def _part(work: Awaitable[T]) -> T | str:
    try:
        return await work
    except (NoAuthorizer, NotOffered, RequestRefused) as fault:
        return f"the target: {fault}"
    except MirrordError as fault:
        return f"the target does not answer: {fault}"


async def _bounds(cluster: ClusterConfig, partitions: Collection[TopicPartition]) -> TargetBounds:
    with closing(LogOffsets(cluster)) as one, closing(LogOffsets(cluster)) as other:
        starts, ends = await asyncio.gather(one.of(partitions, EARLIEST), other.of(partitions, LATEST))
    return {
        (where.topic, where.partition): (start.offset, ends[where].offset)
        for where, start in starts.items()
        if where in ends
    }


async def _unread(
    survey: TargetSurvey, partitions: Sequence[TopicPartition], cluster: ClusterConfig, now_ms: int
) -> UnreadRecords:
    if isinstance(survey.commits, str) or isinstance(survey.bounds, str):
        return UnreadRecords()
    positions = oldest_unread(
        survey.commits.offsets, survey.bounds, [(each.topic, each.partition) for each in partitions]
    )
    settings, limits = survey.settings, dict[str, RetentionLimits]()
    for topic, _ in positions:
        if topic not in limits:
            why = settings if isinstance(settings, str) else settings.refused.get(topic, "the target does not show it")
            known = None if isinstance(settings, str) else settings.topics.get(topic)
            limits[topic] = limits_of(why if known is None else {name: each.value for name, each in known.items()})
    ages = {place: limit for place in positions if (limit := limits[place[0]].ms) is not None}
    offsets = {place: each.offset for place, each in positions.items()}
    return UnreadRecords(positions, limits, await _part(kept(cluster, offsets, ages, now_ms)))


async def kept(
    cluster: ClusterConfig,
    positions: Mapping[TopicAndPartition, int],
    limits_ms: Mapping[TopicAndPartition, int],
    now_ms: int,
) -> dict[TopicAndPartition, float]:
    """Return for at least how many seconds `retention.ms` keeps the records after these positions. Raises
    EnvironmentFault.

    Retention deletes segments from the beginning of the log. It keeps all records from the first one on that is newer
    than a given time, for as long as it keeps records of that time. So the target is asked for the offset of that
    record, which must not be above the position.
    """
    asked = sorted(set(limits_ms.values()))[:MOST_LIMITS]
    left = {place: limit for place, limit in limits_ms.items() if limit in asked}
    found: dict[TopicAndPartition, float] = {}
    with closing(LogOffsets(cluster)) as client:
        for step in STEPS:
            for limit in sorted(set(left.values())):
                places = [TopicPartition(*place) for place, its in left.items() if its == limit]
                answers = await client.of(places, max(0, now_ms - limit + int(limit * step)))
                for place, first in answers.items():
                    key = (place.topic, place.partition)
                    found[key] = 0.0
                    if 0 <= first.offset <= positions[key]:
                        found[key] = limit * step / 1000
                        del left[key]
    return found


async def _commits(flow: FlowConfig, state: FlowState, cluster: ClusterConfig) -> TargetCommits:
    if not flow.follows_groups:
        return TargetCommits({}, {})
    passes = GroupFilter(flow.groups).passes
    async with view_of(flow.target, cluster, state.target_cluster) as view:
        admin = GroupAdmin(view)
        listed = [name for name, each in (await admin.listed()).items() if each.kind != "Share" and passes(name)]
        answers = await _answers(admin, listed)
    found = {
        group: {place: commit.offset for place, commit in answer.offsets.items()}
        for group, answer in answers.items()
        if not answer.error
    }
    refused = {group: ErrorCode.name_of(answer.error) for group, answer in answers.items() if answer.error}
    return TargetCommits(found, refused)


async def _answers(admin: GroupAdmin, groups: Collection[str]) -> dict[str, GroupOffsets]:
    """Return the committed offsets. Groups whose coordinators are just moving or loading are asked again for a
    while."""
    loop = asyncio.get_running_loop()
    until = loop.time() + COORDINATOR_S
    found = await admin.offsets(groups)
    while (later := [group for group in groups if found[group].error in LATER]) and loop.time() < until:
        await asyncio.sleep(AGAIN_S)
        found |= await admin.offsets(later)
    return found


async def _acls(flow: FlowConfig, clients: TargetClients) -> frozenset[AclRule]:
    mode = flow.sync.acls_mode
    resources = set[ResourceKind]() if mode == "off" else set(acl_policy(mode).resources)
    if clients.reads_acls:
        resources.add("TOPIC")
    return await clients.upkeep.rules(sorted(resources)) if resources else frozenset()
