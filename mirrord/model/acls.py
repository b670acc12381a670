"""ACLs as Kafka's authorizer stores them. The names are those in org.apache.kafka.common.acl and
org.apache.kafka.common.resource."""

from typing import Literal

import msgspec

ResourceKind = Literal["TOPIC", "GROUP"]
RESOURCE_KINDS: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")
PatternKind = Literal["LITERAL", "PREFIXED"]
WILDCARD = "*"
"""The name that matches everything. An ACL with this resource name and the pattern type LITERAL applies to all
resources of its resource type. An ACL with this host applies to all hosts."""


class AclRule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One ACL binding. It grants or denies a principal the right to perform an operation on one or more resources.

    This struct is stored in facts, so new fields may only be added at the end.

    `operation` and `permission` are Kafka's names (READ, WRITE, ALL, ...; ALLOW, DENY), or a number if this version of
    mirrord does not know the name. An ACL that contains such a number is synced unchanged.
    """

    resource: ResourceKind
    """The resource type."""
    pattern: PatternKind
    """The pattern type. "LITERAL": `name` is the full name of a resource. "PREFIXED": `name` is a prefix, and the ACL
    applies to all resources whose names begin with it."""
    name: str
    """The full name of a resource, or a prefix of the names of resources."""
    principal: str
    """The Kafka principal, such as `User:ada`."""
    host: str
    """The host from which the principal connects, or `*` if the ACL applies to all hosts."""
    operation: str
    """Kafka's name for the operation."""
    permission: str
    """ALLOW or DENY."""

    def __str__(self) -> str:
        where = self.name if self.pattern == "LITERAL" else f"{self.name}*"
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.permission} {self.operation} on {self.resource.lower()} {where} for {self.principal}{host}"
