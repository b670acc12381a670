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
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.acls import AclRule, ResourceKind
from mirrord.model.errors import MirrordError
from mirrord.model.names import TopicPartition
from mirrord.model.quotas import ClientQuota
from mirrord.recovery.rules.groups import Commits, TargetBounds
from policies.acls import acl_policy

COORDINATOR_S, AGAIN_S = 2.0, 0.1
"""How long groups are asked about again whose coordinators are just moving or loading, and the pause in between."""

T = TypeVar("T")


class TargetCommits(NamedTuple):
    """The committed offsets of the groups on the target."""

    offsets: Commits
    refused: Mapping[str, str]
    """Kafka's error for each group whose offsets are not known."""


class TargetSurvey(NamedTuple):
    """What the target has. Instead of a part that cannot be read, there is a line that says why."""

    topics: ClusterTopics | str
    bounds: TargetBounds | str
    commits: TargetCommits | str
    settings: SeenSettings | str
    acls: frozenset[AclRule] | str
    quotas: frozenset[ClientQuota] | str


class TargetClients(NamedTuple):
    """The clients that a survey of the target needs."""

    cluster: ClusterConfig
    topics: TopicAdmin
    upkeep: UpkeepAdmin
    reads_acls: bool = False
    """Whether the ACLs on topics are needed even if the flow does not sync ACLs."""


async def survey_target(
    flow: FlowConfig, state: FlowState, lanes: Sequence[LaneState], clients: TargetClients
) -> TargetSurvey:
    """Read all parts at the same time. `lanes` are the lanes whose target topics are read. Raises nothing that concerns
    the cluster."""
    names = sorted({lane.target_topic for lane in lanes})
    partitions = [TopicPartition(lane.target_topic, lane.partition) for lane in lanes]
    return TargetSurvey(
        *await asyncio.gather(
            _part(clients.topics.describe(names)),
            _part(_bounds(clients.cluster, partitions)),
            _part(_commits(flow, state, clients.cluster)),
            _part(clients.upkeep.settings(names if flow.sync.configs else ())),
            _part(_acls(flow, clients)),
            _part(clients.upkeep.quotas()),
        )
    )


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
