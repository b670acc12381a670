"""Reads and changes the topic configs and the ACLs of one cluster, reads its client quotas, and deletes topics.

A caller that reads the configs of the same topics repeatedly sets the argument `watch`. The topics are then requested
in groups, which stay the same from call to call. If the answer for a group is byte-for-byte identical to the previous
one, it is not decoded again, and the caller gets the same objects as from the previous call.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

import msgspec

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.admin_requests import Asker
from mirrord.kafka.protocol import acls, configs, delete_topics, metadata, quotas
from mirrord.kafka.protocol.api_versions import (
    CREATE_ACLS,
    DELETE_ACLS,
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    Api,
)
from mirrord.kafka.protocol.configs import Setting
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.primitives import Reader
from mirrord.model.acls import AclRule, ResourceKind
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicId
from mirrord.model.quotas import ClientQuota
from mirrord.model.shown_text import LONGEST_MESSAGE, printable

GROUP_SIZE = 100
"""Maximum number of topics in one request."""
RULES_AT_ONCE = 200
_THROTTLE_BYTES = 4
"""Size of the throttle time field in bytes. The field is at the beginning of an answer, and is ignored when the answer
is compared with the previous one."""

Settings = Mapping[str, Setting]
T = TypeVar("T")


class NoAuthorizer(EnvironmentFault):
    """Raised when the cluster has no authorizer and therefore stores no ACLs."""


class RequestRefused(EnvironmentFault):
    """Raised when the cluster refuses a request because mirrord lacks a permission or because the cluster cannot
    fulfill the request."""


class SeenSettings(msgspec.Struct, frozen=True):
    """The configs of the topics in a request. Topics whose configs mirrord cannot read are listed separately."""

    topics: Mapping[str, Settings]
    """The configs of each topic. With `watch`, a topic with unchanged configs has the same object as in the previous
    result."""
    refused: Mapping[str, str]
    """Kafka's error for each topic whose configs mirrord cannot read, usually because it lacks the permission. A topic
    that does not exist is in neither of the two mappings."""


class UpkeepAdmin(Protocol):
    """The operations on a cluster that are needed to sync topic configs, ACLs and topic deletions, and to compare
    client quotas.

    Every method that sends a request raises an EnvironmentFault if the cluster does not answer. If the brokers do not
    support the request, the method raises `mirrord.kafka.client.admin_requests.NotOffered`.
    """

    async def settings(self, topics: Collection[str], *, watch: bool = False) -> SeenSettings:
        """Return all configs of these topics. If `watch` is set and the configs of a topic have not changed since the
        previous call with `watch`, the result contains the same object for this topic as the previous result."""
        ...

    async def alter(self, changes: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
        """Set topic configs. The value None removes a config. Return each refused topic with the reason. No config of a
        refused topic is changed."""
        ...

    async def rules(self, resources: Iterable[ResourceKind]) -> frozenset[AclRule]:
        """Return all ACLs on resources of these types. Raises NoAuthorizer or RequestRefused."""
        ...

    async def add_rules(self, rules: Sequence[AclRule]) -> dict[AclRule, str]:
        """Create ACLs. Return each refused ACL with the reason."""
        ...

    async def remove_rules(self, rules: Sequence[AclRule]) -> dict[AclRule, str]:
        """Delete exactly these ACLs. Return each refused ACL with the reason."""
        ...

    async def quotas(self) -> frozenset[ClientQuota]:
        """Return all client quotas. Raises RequestRefused."""
        ...

    async def missing(self, topics: Collection[str]) -> frozenset[str]:
        """Return which of these topics do not exist, according to the cluster. Topics that mirrord is not allowed to
        describe are not returned."""
        ...

    async def delete(self, topics: Collection[TopicId]) -> dict[TopicId, str]:
        """Delete topics by id. Return each refused topic with the reason. A topic that is already gone is not an
        error."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class KafkaUpkeepAdmin:
    """The `UpkeepAdmin` for a real cluster."""

    def __init__(self, config: ClusterConfig, timeout_s: float) -> None:
        self._asker = Asker(config, timeout_s)
        self._timeout_s = timeout_s
        self._groups: list[_Group] = []

    async def settings(self, topics: Collection[str], *, watch: bool = False) -> SeenSettings:
        """Return all configs of these topics. If `watch` is set and the configs of a topic have not changed since the
        previous call with `watch`, the result contains the same object for this topic as the previous result."""
        if watch:
            self._groups = regrouped(self._groups, topics)
            groups = self._groups
        else:
            groups = regrouped([], topics)
        seen: dict[str, Settings] = {}
        refused: dict[str, str] = {}
        for group in groups:
            await self._describe(group)
            seen |= group.seen
            refused |= group.refused
        return SeenSettings(seen, refused)

    async def _describe(self, group: "_Group") -> None:
        def decode(version: int, reader: Reader) -> None:  # noqa: ARG001
            encoded = bytes(reader.buffer[reader.position + _THROTTLE_BYTES : reader.end])
            if encoded != group.encoded:
                group.take(configs.decode_describe(reader))
                group.encoded = encoded

        await self._asker.ask(DESCRIBE_CONFIGS, lambda _: configs.encode_describe(group.topics), decode)

    async def alter(self, changes: Mapping[str, Mapping[str, str | None]]) -> dict[str, str]:
        """Set topic configs. The value None removes a config. Return each refused topic with the reason. No config of a
        refused topic is changed."""
        refused: dict[str, str] = {}
        for part in _parts(list(changes), GROUP_SIZE):
            body = configs.encode_alter({topic: changes[topic] for topic in part})
            answers = await self._asker.ask(
                INCREMENTAL_ALTER_CONFIGS, lambda _, body=body: body, lambda _, reader: configs.decode_alter(reader)
            )
            refused |= {each.topic: _reason(each.error, each.message) for each in answers if each.error}
        return refused

    async def rules(self, resources: Iterable[ResourceKind]) -> frozenset[AclRule]:
        """Return all ACLs on resources of these types. Raises NoAuthorizer or RequestRefused."""
        found: frozenset[AclRule] = frozenset()
        for resource in resources:
            body = acls.encode_describe(resource)
            seen = await self._asker.ask(
                DESCRIBE_ACLS, lambda _, body=body: body, lambda _, reader: acls.decode_describe(reader)
            )
            if seen.error == ErrorCode.SECURITY_DISABLED:
                raise NoAuthorizer("the cluster has no authorizer")
            if seen.error:
                raise RequestRefused(_reason(seen.error, seen.message))
            found = found.union(seen.rules)
        return found

    async def add_rules(self, rules: Sequence[AclRule]) -> dict[AclRule, str]:
        """Create ACLs. Return each refused ACL with the reason."""
        return await self._change(rules, CREATE_ACLS, acls.encode_create, acls.decode_create)

    async def remove_rules(self, rules: Sequence[AclRule]) -> dict[AclRule, str]:
        """Delete exactly these ACLs. Return each refused ACL with the reason."""
        return await self._change(rules, DELETE_ACLS, acls.encode_delete, acls.decode_delete)

    async def _change(
        self,
        rules: Sequence[AclRule],
        api: Api,
        encode: Callable[[Sequence[AclRule]], bytes],
        decode: Callable[[Reader], list[acls.AclAnswer]],
    ) -> dict[AclRule, str]:
        refused: dict[AclRule, str] = {}
        for part in _parts(rules, RULES_AT_ONCE):
            body = encode(part)
            answers = await self._asker.ask(api, lambda _, body=body: body, lambda _, reader: decode(reader))
            refused |= _refused(part, answers)
        return refused

    async def quotas(self) -> frozenset[ClientQuota]:
        """Return all client quotas. Raises RequestRefused."""
        seen = await self._asker.ask(
            DESCRIBE_CLIENT_QUOTAS, lambda _: quotas.encode_describe(), lambda _, reader: quotas.decode_describe(reader)
        )
        if seen.error:
            unauthorized = seen.error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            need = "; DESCRIBE_CONFIGS on the cluster is missing" if unauthorized else ""
            raise RequestRefused(f"{_reason(seen.error, seen.message)}{need}")
        return frozenset(seen.quotas)

    async def missing(self, topics: Collection[str]) -> frozenset[str]:
        """Return which of these topics do not exist, according to the cluster. Topics that mirrord is not allowed to
        describe are not returned."""
        answer = await self._metadata(topics)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        missing = {topic.name for topic in answer.topics if topic.name and topic.error == unknown}
        elsewhere = await self._asker.known_elsewhere(missing, answer.cluster_id) if missing else {}
        return frozenset(missing - elsewhere.keys())

    async def delete(self, topics: Collection[TopicId]) -> dict[TopicId, str]:
        """Delete topics by id. Return each refused topic with the reason. A topic that is already gone is not an
        error."""
        answer = await self._metadata([])
        # On a cluster with ZooKeeper, only the controller deletes topics. On other clusters, every broker forwards the
        # request.
        at = next(((each.host, each.port) for each in answer.brokers if each.node == answer.controller), None)
        answers = await self._asker.ask(
            DELETE_TOPICS,
            lambda _: delete_topics.encode_delete_topics(topics, int(self._timeout_s * 1000)),
            lambda _, reader: delete_topics.decode_delete_topics(reader),
            at,
        )
        fine = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID)
        return {TopicId(name): _reason(*outcome) for name, outcome in answers.items() if outcome[0] not in fine}

    async def close(self) -> None:
        """Close the connection."""
        self._asker.close()

    async def _metadata(self, topics: Collection[str]) -> metadata.Metadata:
        answer = await self._asker.ask_metadata(topics)
        self._asker.brokers = tuple((broker.host, broker.port) for broker in answer.brokers)
        return answer


class _Group:
    """A group of topics for which configs are requested together, and the latest answer for these topics."""

    def __init__(self, topics: Iterable[str]) -> None:
        self.topics = tuple(topics)
        self.encoded = b""
        self.seen: dict[str, Settings] = {}
        self.refused: dict[str, str] = {}

    def take(self, answers: Iterable[configs.TopicSettings]) -> None:
        """Store an answer that differs from the previous one. For topics with unchanged configs, the earlier objects
        are kept."""
        former, self.seen, self.refused = self.seen, {}, {}
        for each in answers:
            if not each.error:
                known = former.get(each.topic, each.settings)
                self.seen[each.topic] = known if known == each.settings else each.settings
            elif each.error != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self.refused[each.topic] = _reason(each.error, each.message)


def regrouped(groups: Sequence[_Group], topics: Collection[str]) -> list[_Group]:
    """Return groups that together contain exactly these topics.

    Existing groups are kept, without the topics that are no longer wanted. New topics are added to the last group until
    it has `GROUP_SIZE` topics. The remaining new topics form new groups.
    """
    wanted = set(topics)
    kept: list[_Group] = []
    for group in groups:
        if wanted.issuperset(group.topics):
            kept.append(group)
        elif left := [topic for topic in group.topics if topic in wanted]:
            kept.append(_Group(left))
        wanted.difference_update(group.topics)
    new = sorted(wanted)
    if new and kept and len(kept[-1].topics) < GROUP_SIZE:
        new = [*kept.pop().topics, *new]
    return [*kept, *(_Group(part) for part in _parts(new, GROUP_SIZE))]


def _parts(items: Sequence[T], size: int) -> Iterable[Sequence[T]]:
    return (items[first : first + size] for first in range(0, len(items), size))


def _refused(rules: Sequence[AclRule], answers: Sequence[acls.AclAnswer]) -> dict[AclRule, str]:
    return {
        rule: _reason(answer.error, answer.message)
        for rule, answer in zip(rules, answers, strict=False)
        if answer.error
    }


def _reason(error: int, message: str | None) -> str:
    name = ErrorCode.name_of(error)
    return f"{name}: {printable(message, LONGEST_MESSAGE)}" if message else name
