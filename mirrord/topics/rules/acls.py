"""Compares the ACLs of the source with those of the target, and plans which ACLs must be created or deleted at the
target."""

from collections.abc import Iterable

import msgspec

from mirrord.model.acls import WILDCARD, AclRule
from mirrord.model.errors import PolicyFault
from policies.acls import AclPolicy, TopicNames, Untold


class AclsPlan(msgspec.Struct, frozen=True):
    """The ACLs to create and to delete on the target, and the ACLs that operators should know about."""

    add: tuple[AclRule, ...] = ()
    remove: tuple[AclRule, ...] = ()
    foreign: tuple[AclRule, ...] = ()
    """ACLs on the flow's target topics that do not exist on the source and that mirrord did not create. They are
    kept."""
    uncopyable: tuple[tuple[AclRule, str], ...] = ()
    """ACLs of the source that cannot be synced to the target, with the reasons."""


def plan_acls(
    source: Iterable[AclRule],
    target: frozenset[AclRule],
    ours: frozenset[AclRule],
    policy: AclPolicy,
    names: TopicNames,
    copies: Iterable[str],
) -> AclsPlan:
    """Plan the changes to the target's ACLs.

    `source` and `target` are the ACLs of the two clusters. `ours` are the ACLs on the target that mirrord has created.
    `copies` are the flow's target topics.
    """
    wanted: set[AclRule] = set()
    uncopyable: list[tuple[AclRule, str]] = []
    unanswered = False
    for rule in source:
        try:
            carried = policy.carried(rule, names)
        except PolicyFault as fault:
            unanswered = True
            carried = Untold(str(fault))
        match carried:
            case AclRule():
                wanted.add(carried)
                if rule.resource == "TOPIC" and carried.pattern == "LITERAL" and carried.name != WILDCARD:
                    wanted |= {msgspec.structs.replace(carried, name=name) for name in names.beside(rule.name)}
            case Untold(reason):
                uncopyable.append((rule, reason))
            case None:
                pass
    # If a policy has failed for a name, it is unknown which ACLs on the target are surplus.
    surplus: frozenset[AclRule] = frozenset() if unanswered else target - wanted
    remove = {rule for rule in surplus & ours if policy.removes or not policy.gives(rule)}
    foreign: set[AclRule] = set()
    if policy.removes:
        known = frozenset(copies)
        foreign = {rule for rule in surplus - ours if rule.resource == "TOPIC" and _concerns(rule, known)}
    return AclsPlan(
        tuple(sorted(wanted - target)), tuple(sorted(remove)), tuple(sorted(foreign)), tuple(sorted(uncopyable))
    )


def _concerns(rule: AclRule, copies: frozenset[str]) -> bool:
    if rule.pattern == "LITERAL":
        return rule.name in copies
    return any(topic.startswith(rule.name) for topic in copies)
