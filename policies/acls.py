"""Decides which of the source's ACLs are synced, and to which resources on the target they apply.

`read-only` is the policy of MirrorMaker 2 (MirrorSourceConnector.shouldReplicateAcl and targetAclBinding). It syncs
only ACLs whose resource pattern names exactly one topic. It does not grant any permission to write on the target. An
ACL that is deleted on the source remains on the target.

`exact` syncs all ACLs that clients need after a failover, including ACLs on consumer groups. Principals that may write
on the source may also write on the target. ACLs that are deleted on the source are deleted on the target.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from mirrord.config.value_parsers import choice
from mirrord.model.acls import WILDCARD, AclRule, ResourceKind
from mirrord.model.errors import ConfigError


class TopicNames(NamedTuple):
    """What an ACL policy needs to know about a flow: which topics the flow copies, and their names on the target."""

    selects: Callable[[str], bool]
    """Returns whether the flow copies a topic with this name."""
    selects_below: Callable[[str], bool]
    """Returns whether the flow copies any topic whose name begins with this prefix."""
    target_topic: Callable[[str], str]
    target_prefix: Callable[[str], str | None]
    """The method `policies.naming.Naming.target_prefix` of the flow's naming."""
    beside: Callable[[str], Iterable[str]] = lambda _: ()
    """Returns the names of the separate target topics of this source topic. With `on_recreated = "fresh"`, a source
    topic that was deleted and re-created gets a separate target topic."""


class Untold(NamedTuple):
    """The result for an ACL that cannot be synced, with the reason."""

    reason: str


class AclPolicy(Protocol):
    """The policy that decides which ACLs a flow syncs."""

    resources: tuple[ResourceKind, ...]
    """The resource types for which ACLs are synced."""
    removes: bool
    """Whether mirrord deletes an ACL on the target after the ACL has been deleted on the source. Only ACLs that mirrord
    has created are deleted."""

    def gives(self, rule: AclRule) -> bool:
        """Return whether this policy could have created this ACL on the target. An ACL that mirrord created under an
        earlier policy is deleted if the current policy could not have created it.
        """
        ...

    def carried(self, rule: AclRule, names: TopicNames) -> AclRule | Untold | None:
        """Return the ACL for the target that corresponds to an ACL on the source. Return None if this policy does not
        sync the ACL, and `Untold` if the ACL should be synced but cannot be."""
        ...


class ReadOnly:
    """Syncs only ACLs whose resource pattern names exactly one topic, and grants no permission to write."""

    resources: tuple[ResourceKind, ...] = ("TOPIC",)
    removes = False

    def gives(self, rule: AclRule) -> bool:
        if rule.resource != "TOPIC" or rule.pattern != "LITERAL" or rule.name == WILDCARD:
            return False
        return rule.permission != "ALLOW" or rule.operation not in ("WRITE", "ALL")

    def carried(self, rule: AclRule, names: TopicNames) -> AclRule | Untold | None:
        if rule.resource != "TOPIC" or rule.pattern != "LITERAL" or rule.name == WILDCARD:
            return None
        if not names.selects(rule.name) or (rule.permission, rule.operation) == ("ALLOW", "WRITE"):
            return None
        operation = "READ" if (rule.permission, rule.operation) == ("ALLOW", "ALL") else rule.operation
        return msgspec.structs.replace(rule, name=names.target_topic(rule.name), operation=operation)


class Exact:
    """Syncs all ACLs on the flow's topics and on consumer groups."""

    resources: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")
    removes = True

    def gives(self, rule: AclRule) -> bool:  # noqa: ARG002 - every ACL is synced
        return True

    def carried(self, rule: AclRule, names: TopicNames) -> AclRule | Untold | None:
        if rule.resource == "GROUP":
            return rule
        if rule.pattern == "LITERAL" and rule.name != WILDCARD:
            if not names.selects(rule.name):
                return None
            return msgspec.structs.replace(rule, name=names.target_topic(rule.name))
        # An ACL on all topics (`*`) is equivalent to an ACL on the empty prefix.
        prefix = "" if rule.pattern == "LITERAL" else rule.name
        if not names.selects_below(prefix):
            return None
        mapped = names.target_prefix(prefix)
        if mapped is None:
            return Untold("the flow's naming has no prefix that matches only the copies")
        if not mapped:
            return rule
        return msgspec.structs.replace(rule, pattern="PREFIXED", name=mapped)


ACLS: dict[str, Callable[[], AclPolicy]] = {"read-only": ReadOnly, "exact": Exact}


def acl_policy(name: str) -> AclPolicy:
    """Return the ACL policy with this name. Raises ConfigError if the name is unknown."""
    try:
        return ACLS[choice(*ACLS)(name)]()
    except ValueError as rule:
        raise ConfigError(f'acls: found "{name}"; allowed: {rule}') from None
