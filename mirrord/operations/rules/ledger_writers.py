"""Finds out from a cluster's ACLs who may write to the topics of a flow's ledger, apart from mirrord."""

from collections.abc import Collection, Iterable

from mirrord.config.security import Security
from mirrord.model.acls import WILDCARD, AclRule
from mirrord.model.findings import Finding

HARMFUL = ("WRITE", "DELETE", "ALTER", "ALTER_CONFIGS", "ALL")
"""Operations with which a principal can falsify, remove or lose records."""
EVERYBODY = "User:*"
SHOWN = 5


def own_principal(security: Security) -> str | None:
    """Return the principal under which mirrord connects with these settings, or None if only the brokers know it."""
    if security.protocol == "PLAINTEXT" or (security.protocol == "SSL" and not _has_certificate(security)):
        return "User:ANONYMOUS"
    if security.mechanism in {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} and security.username:
        return f"User:{security.username}"
    return None


def _has_certificate(security: Security) -> bool:
    return security.certificate is not None or security.keystore is not None


def writers(rules: Collection[AclRule], topics: Iterable[str]) -> list[str]:
    """Return the principals that may write to, delete or alter one of these topics, or change its configs."""
    found: set[str] = set()
    for topic in topics:
        about = [rule for rule in rules if rule.resource == "TOPIC" and _matches(rule, topic)]
        for rule in about:
            denied = any(_denies(other, rule) for other in about)
            if rule.permission == "ALLOW" and rule.operation in HARMFUL and not denied:
                found.add(rule.principal)
    return sorted(found)


def _matches(rule: AclRule, topic: str) -> bool:
    if rule.pattern == "PREFIXED":
        return topic.startswith(rule.name)
    return rule.name in {topic, WILDCARD}


def _denies(other: AclRule, rule: AclRule) -> bool:
    """Return whether `other` takes away everything that `rule` grants on a topic that both concern."""
    principals = other.principal in {rule.principal, EVERYBODY}
    return (
        other.permission == "DENY"
        and principals
        and other.host == WILDCARD
        and other.operation in {rule.operation, "ALL"}
    )


def writer_findings(flow: str, where: str, found: Collection[str], own: str | None, *, signed: bool) -> list[Finding]:
    """Return the findings about the principals in `found` (`writers`). `signed`: whether the ledger has a key."""
    others = [principal for principal in found if principal != own]
    limits = "they cannot falsify it, because it is signed, but can stop the flow" if signed else "they can falsify it"
    shown = ", ".join(others[:SHOWN]) + (f" and {len(others) - SHOWN} more" if len(others) > SHOWN else "")
    if not found:
        what = (
            "no ACL permits anybody to write to the ledger's topics: if mirrord is not a super user, the brokers allow "
            "everything to everybody where there is no ACL (allow.everyone.if.no.acl.found)"
        )
        return [Finding(severity="note", flow=flow, where=where, what=what)]
    if own is None and len(others) == 1 and EVERYBODY not in others:
        what = f"only {shown} may write to the ledger's topics; the configuration does not say whether this is mirrord"
        return [Finding(severity="note", flow=flow, where=where, what=what)]
    if not others and own != "User:ANONYMOUS":
        return []
    if not others:
        what = f"every client that is not authenticated may write to the ledger's topics: {limits}"
    elif own is None:
        what = f"{shown} may write to the ledger's topics; those that are not mirrord should not: {limits}"
    else:
        what = f"not only mirrord, but also {shown} may write to the ledger's topics: {limits}"
    do = "allow WRITE, DELETE and ALTER on topics with the prefix mirrord. only to mirrord's principals"
    return [Finding(severity="warning", flow=flow, where=where, what=what, do=do)]
