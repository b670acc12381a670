"""Which rights of the source are given at the target, and about what there.

`read-only` is the rule of MirrorMaker 2 (MirrorSourceConnector.shouldReplicateAcl and targetAclBinding): rights on
single topics, without those to write; a right that the source has no more stays. `exact` carries what a fail-over
needs: whoever may write at the source may write at the target, groups included, and who may no longer, may no longer.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import msgspec

from mirrord.config.toml_reader import choice
from mirrord.model.acls import WILDCARD, AclRule, ResourceKind
from mirrord.model.errors import ConfigError


class TopicNames(NamedTuple):
    """What a rule about topics needs to know of a flow."""

    selects: Callable[[str], bool]
    """Whether the flow copies a topic of this name."""
    selects_below: Callable[[str], bool]
    """Whether it copies any topic whose name begins so."""
    target_topic: Callable[[str], str]
    target_prefix: Callable[[str], str | None]
    """`policies.naming.Naming.target_prefix`."""
    beside: Callable[[str], Iterable[str]] = lambda _: ()
    """Target topics that hold topics of this name, too: those that were created again."""


class Untold(NamedTuple):
    """A rule that cannot be carried over, and why."""

    reason: str


class AclPolicy(Protocol):
    """The rule of one flow."""

    resources: tuple[ResourceKind, ...]
    """What is looked at."""
    removes: bool
    """Whether rights that the source has no more are taken away at the target, if mirrord gave them."""

    def gives(self, rule: AclRule) -> bool:
        """Whether a right at the target is of a kind that this policy gives. mirrord takes its own others away: they
        are left from another policy."""
        ...

    def carried(self, rule: AclRule, names: TopicNames) -> AclRule | Untold | None:
        """The rule at the target; None for one that does not concern the flow."""
        ...


class ReadOnly:
    """Rights on single topics, and none to write."""

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
    """All rights on topics and groups."""

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
        # Every topic is the same as every topic whose name begins with nothing.
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
    """The policy of this name. Raises ConfigError when the name is unknown."""
    try:
        return ACLS[choice(*ACLS)(name)]()
    except ValueError as rule:
        raise ConfigError(f'acls: found "{name}"; allowed: {rule}') from None
