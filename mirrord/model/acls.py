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

    `operation` and `permission` are Kafka's names (READ, WRITE, ALL, ...; ALLOW, DENY), or a number if this program
    knows no name. Such a rule is synced unchanged.
    """

    resource: ResourceKind
    """Kind of the resource."""
    pattern: PatternKind
    """How `name` is matched."""
    name: str
    """Name of the resource, or its prefix."""
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
