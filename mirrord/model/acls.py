"""Rights as Kafka's authorizer keeps them, by Kafka's own names (org.apache.kafka.common.acl, .resource)."""

from typing import Literal

import msgspec

ResourceKind = Literal["TOPIC", "GROUP"]
RESOURCE_KINDS: tuple[ResourceKind, ...] = ("TOPIC", "GROUP")
PatternKind = Literal["LITERAL", "PREFIXED"]
WILDCARD = "*"
"""As the name of a literal pattern: every resource of the kind."""


class AclRule(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One binding: who may, or may not, do what with which resources. It stands in facts, so fields only join the end.

    `operation` and `permission` are Kafka's names (READ, WRITE, ALL, ...; ALLOW, DENY), or a number where this program
    knows no name: such a rule is carried over as it is.
    """

    resource: ResourceKind
    pattern: PatternKind
    name: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        where = self.name if self.pattern == "LITERAL" else f"{self.name}*"
        host = "" if self.host == WILDCARD else f" from {self.host}"
        return f"{self.permission} {self.operation} on {self.resource.lower()} {where} for {self.principal}{host}"
