"""From the rights at the source and those at the target to the few that are added and removed."""

from collections.abc import Iterable

import msgspec

from mirrord.model.acls import WILDCARD, AclRule
from mirrord.model.errors import PolicyFault
from policies.acls import AclPolicy, TopicNames, Untold


class AclsPlan(msgspec.Struct, frozen=True):
    """What is to be done, and what people should know."""

    add: tuple[AclRule, ...] = ()
    remove: tuple[AclRule, ...] = ()
    foreign: tuple[AclRule, ...] = ()
    """Rights on the flow's copies that neither the source has nor mirrord gave: they stay."""
    untold: tuple[tuple[AclRule, str], ...] = ()
    """Rights of the source that cannot be carried over, and why."""


def plan_acls(
    source: Iterable[AclRule],
    target: frozenset[AclRule],
    ours: frozenset[AclRule],
    policy: AclPolicy,
    names: TopicNames,
    copies: Iterable[str],
) -> AclsPlan:
    """`ours` are the rules at the target that mirrord added; `copies` the flow's target topics."""
    wanted: set[AclRule] = set()
    untold: list[tuple[AclRule, str]] = []
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
                untold.append((rule, reason))
            case None:
                pass
    # Where a name is not known, nobody knows what is surplus.
    surplus: frozenset[AclRule] = frozenset() if unanswered else target - wanted
    remove = {rule for rule in surplus & ours if policy.removes or not policy.gives(rule)}
    foreign: set[AclRule] = set()
    if policy.removes:
        known = frozenset(copies)
        foreign = {rule for rule in surplus - ours if rule.resource == "TOPIC" and _concerns(rule, known)}
    return AclsPlan(
        tuple(sorted(wanted - target)), tuple(sorted(remove)), tuple(sorted(foreign)), tuple(sorted(untold))
    )


def _concerns(rule: AclRule, copies: frozenset[str]) -> bool:
    if rule.pattern == "LITERAL":
        return rule.name in copies
    return any(topic.startswith(rule.name) for topic in copies)
