"""Checks which of the permissions that a flow needs are granted to mirrord's principals on the two clusters.

Nothing is altered. To find out whether a topic can be created, mirrord asks the cluster to validate the creation
without creating the topic.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import ClusterTopics, TopicAdmin
from mirrord.kafka.rules.topic import TopicShape
from mirrord.model.findings import Severity
from mirrord.model.names import Alias
from mirrord.operations.rules.required_acls import CODES, Need, Right

UNAUTHORIZED = "AUTHORIZATION_FAILED"
"""The part of a Kafka error name that indicates that a permission is missing."""
_IMPLIES_DESCRIBE = {"READ", "WRITE", "DELETE", "ALTER", "DESCRIBE"}


class RightSeen(msgspec.Struct, frozen=True):
    """A permission that a flow needs, and whether mirrord holds the permission."""

    flow: str
    right: Right
    held: bool | None
    """Whether mirrord holds the permission. None if the cluster does not report this or was not asked."""
    missing: Severity
    purpose: str


async def see_rights(
    flow: FlowConfig,
    needs: Sequence[Need],
    admins: Mapping[Alias, TopicAdmin],
    shapes: Mapping[str, TopicShape],
    allowed: Mapping[Right, bool | None],
) -> tuple[list[RightSeen], dict[str, str]]:
    """Return, for each needed permission, whether mirrord holds it. Also return the reasons why target topics cannot be
    created. The reasons do not include missing permissions.

    `shapes` describes the missing target topics. `allowed` holds the known permissions on resources other than topics.
    Raises EnvironmentFault if a cluster does not answer.
    """
    topics = [need.right for need in needs if need.right.resource == "topic"]
    names = {
        alias: sorted({right.name for right in topics if right.cluster == alias})
        for alias in (flow.source, flow.target)
    }
    answers = await asyncio.gather(*(admins[alias].describe(names[alias], rights=True) for alias in names))
    seen = dict(zip(names, answers, strict=True))
    creating = {need.right for need in needs if need.right.operation == "CREATE"}
    refused = await _refused(creating, admins, seen, shapes)
    rights: list[RightSeen] = []
    for need in needs:
        right = need.right
        if right.resource != "topic":
            held = allowed.get(right)
        elif right.operation == "CREATE":
            # The operation bits of the topic are not sufficient, because the permission to create topics can also be
            # granted on the cluster.
            held = UNAUTHORIZED not in refused.get(right, "")
        else:
            held = _held(right, seen[right.cluster])
        rights.append(RightSeen(flow.name, right, held, need.missing, need.purpose))
    others = {right.name: line for right, line in refused.items() if UNAUTHORIZED not in line}
    return rights, others


def lacking_lines(rights: Iterable[RightSeen]) -> list[str]:
    """Return one readable line for each resource on which permissions are known to be missing."""
    missing: dict[tuple[str, Alias, str], list[RightSeen]] = {}
    for seen in rights:
        if seen.held is False:
            missing.setdefault((seen.flow, seen.right.cluster, seen.right.resource_name), []).append(seen)
    return [
        f"flow {flow}: cluster {cluster}: {_and([f'{each.right.operation} ({each.purpose})' for each in seen])} "
        f"on {resource} {'is' if len(seen) == 1 else 'are'} missing"
        for (flow, cluster, resource), seen in missing.items()
    ]


def _and(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _held(right: Right, seen: ClusterTopics) -> bool | None:
    if right.name in seen.allowed:
        return bool(seen.allowed[right.name] >> CODES[right.operation] & 1)
    if UNAUTHORIZED in seen.refused.get(right.name, "") and right.operation in _IMPLIES_DESCRIBE:
        return False
    return None


async def _refused(
    creating: set[Right],
    admins: Mapping[Alias, TopicAdmin],
    seen: Mapping[Alias, ClusterTopics],
    shapes: Mapping[str, TopicShape],
) -> dict[Right, str]:
    """Return why topics in `creating` cannot be created at the moment. Topics that already exist are omitted."""
    refused: dict[Right, str] = {}
    for alias, there in seen.items():
        missing = {right.name: right for right in creating if right.cluster == alias and right.name not in there.topics}
        if missing:
            wanted = {name: shapes.get(name, TopicShape()) for name in missing}
            answer = await admins[alias].create(wanted, validate_only=True)
            refused |= {missing[name]: line for name, line in answer.items()}
    return refused
