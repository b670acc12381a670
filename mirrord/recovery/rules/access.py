"""Determines from ACLs what a principal may do, as Kafka's StandardAuthorizer does
(org.apache.kafka.metadata.authorizer.StandardAuthorizerData).

A DENY rule takes precedence over every ALLOW rule. A rule for the operation ALL applies to every operation. If a
principal is allowed to READ, WRITE, DELETE or ALTER a resource, it is also allowed to DESCRIBE it. If no rule concerns
a resource, the broker config `allow.everyone.if.no.acl.found` decides, which brokers do not reveal. The same is true
for `super.users`.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from mirrord.model.acls import WILDCARD, AclRule, ResourceKind

Access = Literal["allowed", "denied", "not granted", "no rules"]
"""Whether an operation is allowed. "denied": a DENY rule forbids it. "not granted": rules concern the resource, but
none allows the operation. "no rules": no rule concerns the resource."""

ANYBODY = "User:*"
_WHY: dict[Access, str] = {
    "denied": "an ACL denies it",
    "not granted": "no ACL allows it, unless it is a super user",
    "no rules": "there are no ACLs, unless the brokers have allow.everyone.if.no.acl.found",
}
_IMPLY_DESCRIBE = frozenset({"READ", "WRITE", "DELETE", "ALTER"})


def access(rules: Iterable[AclRule], principal: str, operation: str, resource: ResourceKind, name: str) -> Access:
    """Return whether a principal may perform an operation on the resource with this name, from any host.

    Rules for particular hosts do not allow an operation, but they forbid it.
    """
    found, is_allowed = False, False
    for rule in rules:
        if rule.resource != resource or not _concerns(rule, name):
            continue
        found = True
        if rule.principal not in {principal, ANYBODY}:
            continue
        if rule.permission == "DENY" and rule.operation in {operation, "ALL"}:
            return "denied"
        if rule.permission == "ALLOW" and rule.host == WILDCARD and _allows(rule.operation, operation):
            is_allowed = True
    if is_allowed:
        return "allowed"
    return "not granted" if found else "no rules"


def faults(rules: Sequence[AclRule], principal: str, topics: Iterable[str]) -> list[str]:
    """Return one line for each operation, READ and WRITE, that the principal may not perform on all of these topics."""
    lines, concerning = list[str](), _by_topic(rules, sorted(topics))
    for operation in ("READ", "WRITE"):
        answers = {name: access(found, principal, operation, "TOPIC", name) for name, found in concerning.items()}
        for kind, why in _WHY.items():
            refused = [name for name, answer in answers.items() if answer == kind]
            if refused:
                more = f" and {len(refused) - 1} more topics" if len(refused) > 1 else ""
                lines.append(f"{principal} may not {operation} {refused[0]}{more}: {why}")
    return lines


def _by_topic(rules: Iterable[AclRule], topics: Iterable[str]) -> dict[str, list[AclRule]]:
    """Return the rules that concern each of these topics. With thousands of both, comparing each rule with each topic
    would take seconds."""
    literal, prefixed = dict[str, list[AclRule]](), dict[str, list[AclRule]]()
    for rule in rules:
        if rule.resource == "TOPIC":
            (prefixed if rule.pattern == "PREFIXED" else literal).setdefault(rule.name, []).append(rule)
    lengths, everywhere = sorted({len(prefix) for prefix in prefixed}), literal.pop(WILDCARD, [])
    found: dict[str, list[AclRule]] = {}
    for topic in topics:
        found[topic] = [*everywhere, *literal.get(topic, ())]
        for length in lengths:
            if length <= len(topic):
                found[topic] += prefixed.get(topic[:length], ())
    return found


def _concerns(rule: AclRule, name: str) -> bool:
    if rule.pattern == "PREFIXED":
        return name.startswith(rule.name)
    return rule.name in {name, WILDCARD}


def _allows(granted: str, operation: str) -> bool:
    return granted in {operation, "ALL"} or (operation == "DESCRIBE" and granted in _IMPLY_DESCRIBE)
