"""ACLs as Kafka's authorizer stores them. The names are those in org.apache.kafka.common.acl and
org.apache.kafka.common.resource."""

from typing import Literal

import msgspec

ResourceKind = Literal["TOPIC", "GROUP"]
RESOURCE_KINDS: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")
PatternKind = Literal["LITERAL", "PREFIXED"]
WILDCARD = "*"
"""As a resource name in a LITERAL pattern, `*` matches every resource of the kind. As a host, `*` matches every
host."""


class AclRule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One ACL binding. It allows or denies a principal an operation on resources.

    This struct is stored in facts, so new fields may only be added at the end.

    `operation` and `permission` are Kafka's names (READ, WRITE, ALL, ...; ALLOW, DENY), or a number if this version of
    mirrord does not know the name. A rule with such a number is synced unchanged.
    """

    resource: ResourceKind
    """The kind of the resource."""
    pattern: PatternKind
    """Whether `name` is the full name of a resource, or a prefix of names."""
    name: str
    """The name of the resource, or a prefix of the names of resources."""
    principal: str
    """The Kafka principal, such as `User:ada`."""
    host: str
    """The host from which the principal connects, or `*`."""
    operation: str
    """Kafka's name of the operation."""
    permission: str
    """ALLOW or DENY."""

    def __str__(self) -> str:
        where = self.name if self.pattern == "LITERAL" else f"{self.name}*"
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.permission} {self.operation} on {self.resource.lower()} {where} for {self.principal}{host}"
