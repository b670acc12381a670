"""The findings of `mirrord check` about permissions: which permissions a flow needs, and which of them are missing."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, cast

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.admin_requests import Asker, NotOffered
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.kafka.client.topic_admin import Admin, TopicAdmin
from mirrord.kafka.protocol.api_versions import END_TXN, OFFSET_COMMIT
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import CommittedOffset, decode_commit, encode_commit
from mirrord.kafka.protocol.transactions import decode_end_txn, encode_end_txn
from mirrord.kafka.rules.topic import TopicShape
from mirrord.ledger.state import FlowState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.findings import Finding
from mirrord.model.names import Alias, TopicPartition
from mirrord.operations.advertised_brokers import ClusterSeen, any_node
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.operations.config_findings import expiry_ms
from mirrord.operations.granted_acls import UNAUTHORIZED, RightSeen, see_rights
from mirrord.operations.rules.required_acls import (
    CODES,
    KAFKA_CLUSTER,
    LeftByMm2,
    Right,
    flows_into_source,
    flows_into_target,
    needed_rights,
)
from mirrord.replication.host.mm2_positions import default_topic, workers_group
from mirrord.topics.rules.topic_configs import replication_factor
from policies.flow_policies import selection_of

_ANYBODY = "mirrord-check"
"""Replaces the `*` in a test request if a permission applies to all group names or transactional ids with a certain
prefix. The resulting name has this prefix, and no client uses it, so the test request affects no client."""
_NO_TOPIC = ":"
"""A name that no topic can have (org.apache.kafka.common.internals.Topic). A test request that commits an offset for
this name therefore changes nothing."""


async def rights_findings(
    config: Config,
    admin: Callable[[Alias], TopicAdmin],
    survey: FlowSurvey,
    ledger: FlowState | None,
    seen: Mapping[Alias, ClusterSeen],
) -> tuple[list[RightSeen], list[Finding]]:
    """Return all permissions that the flow needs, and a finding for each missing one. Raises EnvironmentFault if a
    cluster does not answer.

    `ledger` is the folded state of the flow's ledger, or None if the ledger cannot be read. Without the ledger,
    permissions for topics that the source hides from mirrord are not included (see `_hidden`).
    """
    flow, plan = survey.flow, survey.preview.plan
    admins = {alias: admin(alias) for alias in dict.fromkeys((flow.source, flow.target))}
    try:
        hidden = await _hidden(survey, ledger, admins[flow.source])
        left = await _left_by_mm2(config, survey, ledger)
        source, target = survey.preview.source.topics, survey.preview.target.topics
        into_source = flows_into_source(flow, config.all_flows, source)
        into_target = flows_into_target(flow, config.all_flows, target)
        needs = needed_rights(
            flow, plan, target, hidden=hidden, left=left, into_source=into_source, into_target=into_target
        )
        rule = flow.replication_factor
        shapes = {
            step.target_topic: TopicShape(step.source.partitions, replication_factor(rule, step.source.replicas))
            for step in plan.create
        }
        others = [need.right for need in needs if need.right.resource != "topic"]
        answers = await asyncio.gather(*(_is_allowed(config, right, seen[right.cluster]) for right in others))
        allowed = dict(zip(others, answers, strict=True))
        rights, refused = await see_rights(flow, needs, admins, shapes, allowed)
    finally:
        await asyncio.gather(*(each.close() for each in admins.values()))
    return rights, [*map(_missing, (right for right in rights if right.held is False)), *_not_created(flow, refused)]


def _missing(seen: RightSeen) -> Finding:
    right = seen.right
    return Finding(
        severity=seen.missing,
        flow=seen.flow,
        where=f"{right.cluster}: {right.resource} {right.name}",
        what=f"{right.operation} is missing: it is needed {seen.purpose}",
        do=f"allow {right.operation} on {right.resource} {right.name}",
    )


def _not_created(flow: FlowConfig, refused: Mapping[str, str]) -> list[Finding]:
    return [
        Finding(
            # mirrord lowers an invalid replication factor to a value that the brokers allow. Any other error prevents
            # the creation.
            severity="warning" if "INVALID_REPLICATION_FACTOR" in line else "error",
            flow=flow.name,
            where=f"{flow.target}: topic {topic}",
            what=f"it cannot be created as it should be: {line}",
        )
        for topic, line in refused.items()
    ]


async def _hidden(survey: FlowSurvey, ledger: FlowState | None, source: TopicAdmin) -> list[str]:
    """Return the source topics for which mirrord lacks the permission DESCRIBE, although it has already copied them and
    the configuration still selects them.

    Their names come from the ledger, because the source cluster does not list topics without this permission.
    """
    there, copies = survey.preview.source.topics, survey.preview.target.topics
    selection = selection_of(survey.flow)
    ids = {topic.topic_id for topic in copies.values()}
    lanes = ledger.lanes.values() if ledger else ()
    copied = {lane.source_topic for lane in lanes if lane.key.target_topic_id in ids}
    gone = sorted(topic for topic in copied - there.keys() if selection.copy_of(topic) is not None)
    if not gone:
        return []
    refused = (await source.describe(gone)).refused
    return [topic for topic in gone if UNAUTHORIZED in refused.get(topic, "")]


async def _left_by_mm2(config: Config, survey: FlowSurvey, ledger: FlowState | None) -> LeftByMm2 | None:
    """Return the names of the topic that holds MirrorMaker 2's positions and of the consumer group that shows whether
    MirrorMaker 2 is still running. New lanes read both if they may take over from MirrorMaker 2
    (`mirrord.replication.host.mm2_takeover`). Return None if no lane will read them."""
    flow = survey.flow
    if flow.from_mm2.takeover == "off" or ledger is None:
        return None
    known = {key for key, lane in ledger.lanes.items() if len(lane.source_runs)}
    fresh = [
        TopicPartition(lane.target_topic, lane.key.partition)
        for lane in survey.preview.plan.lanes
        if lane.lane not in known
    ]
    try:
        ends = await log_offsets(config.clusters[flow.target], fresh, "end") if fresh else {}
    except EnvironmentFault:
        ends = dict.fromkeys(fresh, 1)  # unknown, so there may be records
    if not any(ends.values()):
        return None
    return LeftByMm2(
        flow.from_mm2.offsets_topic or default_topic(flow.source),
        flow.from_mm2.workers_group or workers_group(flow.source),
    )


async def _is_allowed(config: Config, right: Right, cluster: ClusterSeen) -> bool | None:
    """Return whether mirrord has the permission `right`, or None if that cannot be determined.

    For operations on the cluster, the answer is in the list of allowed operations that the broker has reported. The
    broker reports this list only if mirrord has the permission DESCRIBE on the cluster. For the cluster's configs, for
    groups and for transactional ids, mirrord sends a test request instead.
    """
    if right.resource == "group":
        return await _may_use_group(config, right, cluster)
    if right.resource == "transactional-id":
        return await _may_write_under(config, right)
    if right.name == KAFKA_CLUSTER and right.operation == "DESCRIBE_CONFIGS":
        return (await expiry_ms(config, cluster)) is not None
    if cluster.allowed is None:
        return None
    return bool(cluster.allowed >> CODES[right.operation] & 1)


async def _may_use_group(config: Config, right: Right, cluster: ClusterSeen) -> bool | None:
    """Return whether mirrord may use a group, or None if that cannot be determined.

    The test request can be sent to any broker. Each broker checks the permission first, even if another broker is the
    group's coordinator (kafka.server.KafkaApis). mirrord does not look up the coordinator, because the lookup could
    create the topic `__consumer_offsets`. Raises EnvironmentFault if the request is not answered.
    """
    node = any_node(cluster)
    if node is None:
        return None
    group = right.name.replace("*", _ANYBODY)
    timeout_s = config.runtime.request_timeout_ms / 1000
    if right.operation == "DESCRIBE":
        async with Admin(config.clusters[right.cluster], timeout_s) as admin:
            # The client library's answers are untyped.
            (answer,) = cast(Any, await admin.describe_consumer_groups([group], node))
        return answer.groups[0][0] != ErrorCode.GROUP_AUTHORIZATION_FAILED
    asker = Asker(config.clusters[right.cluster], timeout_s)
    body = encode_commit(group, {(_NO_TOPIC, 0): CommittedOffset(0, -1, "")})
    try:
        errors = await asker.ask(OFFSET_COMMIT, lambda _: body, lambda _, reader: decode_commit(reader))
    except NotOffered:
        return None
    finally:
        asker.close()
    return ErrorCode.GROUP_AUTHORIZATION_FAILED not in errors.values()


async def _may_write_under(config: Config, right: Right) -> bool | None:
    """Return whether mirrord may write with a transactional id, or None if that cannot be determined.

    The test request ends a transaction under an id that no client uses, so it changes nothing and always fails. A
    broker checks the permission first (kafka.server.KafkaApis). If the error does not concern the permission, mirrord
    has the permission. In that case, the error says that the broker is not the coordinator, or that it does not know
    the producer (TransactionCoordinator).
    """
    asker = Asker(config.clusters[right.cluster], config.runtime.request_timeout_ms / 1000)
    body = encode_end_txn(right.name.replace("*", _ANYBODY))
    try:
        error = await asker.ask(END_TXN, lambda _: body, lambda _, reader: decode_end_txn(reader))
    except NotOffered:
        return None
    finally:
        asker.close()
    return error != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
