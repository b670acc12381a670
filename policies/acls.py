"""Which ACLs of the source are synced to the target, and to which resources there.

`read-only` is the rule of MirrorMaker 2 (MirrorSourceConnector.shouldReplicateAcl and targetAclBinding): ACLs on single
topics, without write permissions. An ACL that no longer exists at the source stays at the target. `exact` syncs
everything that a failover needs: principals that may write at the source may write at the target, groups are included,
and permissions revoked at the source are revoked at the target.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from mirrord.config.value_parsers import choice
from mirrord.model.acls import WILDCARD, AclRule, ResourceKind
from mirrord.model.errors import ConfigError


class TopicNames(NamedTuple):
    """The properties of a flow that a rule about topics depends on."""

    selects: Callable[[str], bool]
    """Whether the flow copies a topic of this name."""
    selects_below: Callable[[str], bool]
    """Whether the flow copies any topic whose name begins with this prefix."""
    target_topic: Callable[[str], str]
    target_prefix: Callable[[str], str | None]
    """`policies.naming.Naming.target_prefix`."""
    beside: Callable[[str], Iterable[str]] = lambda _: ()
    """Additional target topics that hold records of this topic: those of topics that were recreated."""


class Untold(NamedTuple):
    """A rule that cannot be synced, and the reason."""

    reason: str


class AclPolicy(Protocol):
    """The ACL rule of one flow."""

    resources: tuple[ResourceKind, ...]
    """The kinds of resources whose ACLs are synced."""
    removes: bool
    """Whether ACLs that the source no longer has are removed at the target, if mirrord added them."""

    def gives(self, rule: AclRule) -> bool:
        """Return whether this policy could have added an ACL of this kind at the target. mirrord removes its other
        ACLs, which are left over from another policy."""
        ...

    def carried(self, rule: AclRule, names: TopicNames) -> AclRule | Untold | None:
        """Return the rule at the target, or None for a rule that does not concern the flow."""
        ...


class ReadOnly:
    """ACLs on single topics, without write permissions."""

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
    """All ACLs on topics and groups."""

    resources: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")
    removes = True

    def gives(self, rule: AclRule) -> bool:  # noqa: ARG002 - it gives everything
        return True

    def carried(self, rule: AclRule, names: TopicNames) -> AclRule | Untold | None:
        if rule.resource == "GROUP":
            return rule
        if rule.pattern == "LITERAL" and rule.name != WILDCARD:
            if not names.selects(rule.name):
                return None
            return msgspec.structs.replace(rule, name=names.target_topic(rule.name))
        # A rule on all topics equals a rule on the empty prefix.
        prefix = "" if rule.pattern == "LITERAL" else rule.name
        if not names.selects_below(prefix):
            return None
        mapped = names.target_prefix(prefix)
        if mapped is None:
            return Untold("the flow's naming knows no prefix that fits the copies alone")
        if not mapped:
            return rule
        return msgspec.structs.replace(rule, pattern="PREFIXED", name=mapped)


ACLS: dict[str, Callable[[], AclPolicy]] = {"read-only": ReadOnly, "exact": Exact}


def acl_policy(name: str) -> AclPolicy:
    """Return the policy of this name. Raises ConfigError if the name is unknown."""
    try:
        return ACLS[choice(*ACLS)(name)]()
    except ValueError as rule:
        raise ConfigError(f'acls: found "{name}"; allowed: {rule}') from None
