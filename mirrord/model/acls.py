"""ACLs as Kafka's authorizer stores them, with Kafka's names (org.apache.kafka.common.acl, .resource)."""

from typing import Literal

import msgspec

ResourceKind = Literal["TOPIC", "GROUP"]
RESOURCE_KINDS: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")
PatternKind = Literal["LITERAL", "PREFIXED"]
WILDCARD = "*"
"""As the name of a literal pattern, it means every resource of the kind."""


class AclRule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One ACL binding: it allows or denies a principal an operation on resources.

    Facts contain this struct, so new fields may only be added at the end.

    `operation` and `permission` are Kafka's names (READ, WRITE, ALL, ...; ALLOW, DENY). If this version of mirrord does
    not know the name, they are Kafka's number, and the rule is synced unchanged.
    """

    resource: ResourceKind
    """Kind of the resource."""
    pattern: PatternKind
    """Whether `name` is the whole name of a resource, or a prefix."""
    name: str
    """Name of the resource, or prefix of the names of resources."""
    principal: str
    """Kafka principal, such as `User:ada`."""
    host: str
    """Host from which the principal connects, or `*`."""
    operation: str
    """Kafka's name of the operation."""
    permission: str
    """ALLOW or DENY."""

    def __str__(self) -> str:
        where = self.name if self.pattern == "LITERAL" else f"{self.name}*"
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.permission} {self.operation} on {self.resource.lower()} {where} for {self.principal}{host}"
