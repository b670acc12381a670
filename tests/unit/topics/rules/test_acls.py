"""Which ACLs are replicated, which are deleted, and which are left to their owners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.model.acls import AclRule, PatternKind, ResourceKind
from mirrord.model.errors import ConfigError
from mirrord.topics.rules.acls import AclsPlan, plan_acls
from policies.acls import AclPolicy, TopicNames, Untold, acl_policy
from policies.naming import naming

READ_ONLY, EXACT = acl_policy("read-only"), acl_policy("exact")
TOPICS = ("orders", "orders-2", "payments")


def names(rule: str = "prefix") -> TopicNames:
    chosen = naming(rule, "eu")
    return TopicNames(
        lambda topic: topic.startswith(("orders", "payments")),
        lambda prefix: any(topic.startswith(prefix) for topic in TOPICS),
        chosen.target_topic,
        chosen.target_prefix,
    )


def rule(
    name: str = "orders",
    operation: str = "READ",
    permission: str = "ALLOW",
    pattern: PatternKind = "LITERAL",
    resource: ResourceKind = "TOPIC",
) -> AclRule:
    return AclRule(resource, pattern, name, "User:a", "*", operation, permission)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (rule(), rule("eu.orders")),
        (rule(operation="WRITE"), None),
        (rule(operation="WRITE", permission="DENY"), rule("eu.orders", "WRITE", "DENY")),
        (rule(operation="ALL"), rule("eu.orders", "READ")),
        (rule(operation="ALL", permission="DENY"), rule("eu.orders", "ALL", "DENY")),
        (rule(operation="DESCRIBE_CONFIGS"), rule("eu.orders", "DESCRIBE_CONFIGS")),
        (rule("other"), None),
        (rule("*"), None),
        (rule("orders", pattern="PREFIXED"), None),
        (rule("billing", resource="GROUP"), None),
    ],
)
def test_read_only_is_the_rule_of_mirrormaker_2(source: AclRule, expected: AclRule | None) -> None:
    assert READ_ONLY.carried(source, names()) == expected


@pytest.mark.parametrize(
    ("naming_rule", "source", "expected"),
    [
        ("prefix", rule(operation="WRITE"), rule("eu.orders", "WRITE")),
        ("prefix", rule(operation="ALL"), rule("eu.orders", "ALL")),
        ("prefix", rule("ord", pattern="PREFIXED"), rule("eu.ord", pattern="PREFIXED")),
        ("prefix", rule("other", pattern="PREFIXED"), None),
        ("prefix", rule("other"), None),
        ("prefix", rule("*"), rule("eu.", pattern="PREFIXED")),
        ("prefix", rule("billing", resource="GROUP"), rule("billing", resource="GROUP")),
        ("prefix", rule("b", resource="GROUP", pattern="PREFIXED"), rule("b", resource="GROUP", pattern="PREFIXED")),
        ("identity", rule("ord", pattern="PREFIXED"), rule("ord", pattern="PREFIXED")),
        ("identity", rule("*"), rule("*")),
        ("dr-{topic}", rule("ord", pattern="PREFIXED"), rule("dr-ord", pattern="PREFIXED")),
        ("{topic}-dr", rule("orders"), rule("orders-dr")),
    ],
)
def test_exact_carries_everything_under_the_flows_names(
    naming_rule: str, source: AclRule, expected: AclRule | None
) -> None:
    assert EXACT.carried(source, names(naming_rule)) == expected


@pytest.mark.parametrize("source", [rule("ord", pattern="PREFIXED"), rule("*")])
def test_no_prefix_fits_names_followed_by_text(source: AclRule) -> None:
    carried = EXACT.carried(source, names("{topic}-dr"))
    assert isinstance(carried, Untold)
    plan = plan_acls([source], frozenset(), frozenset(), EXACT, names("{topic}-dr"), ())
    assert plan == AclsPlan(uncopyable=((source, carried.reason),))


def test_only_what_mirrord_granted_is_removed_and_the_rest_is_reported() -> None:
    given_by_us, by_hand = rule("eu.orders", "WRITE"), rule("eu.orders", "ALTER")
    elsewhere, group = rule("other"), rule("billing", resource="GROUP")
    below = rule("eu.", pattern="PREFIXED")
    target = frozenset({given_by_us, by_hand, elsewhere, group, below})
    copies = ["eu.orders"]
    plan = plan_acls([rule()], target, frozenset({given_by_us, rule("eu.gone")}), EXACT, names(), copies)
    assert plan == AclsPlan(add=(rule("eu.orders"),), remove=(given_by_us,), foreign=(by_hand, below))
    plan = plan_acls([rule()], target, frozenset({by_hand}), READ_ONLY, names(), copies)
    assert plan == AclsPlan(add=(rule("eu.orders"),))


def test_read_only_takes_back_what_only_exact_gives() -> None:
    """Like MirrorMaker 2, it deletes no ACL for being gone on the source; but one that it never creates must go."""
    kept = {rule("eu.orders"), rule("eu.gone"), rule("eu.orders", "WRITE", "DENY")}
    left = {
        rule("eu.orders", "WRITE"),
        rule("eu.orders-2", "ALL"),
        rule("eu.", pattern="PREFIXED"),
        rule("*"),
        rule("billing", resource="GROUP"),
    }
    by_hand = {rule("eu.payments", "WRITE"), rule("shipping", resource="GROUP")}
    target = frozenset(kept | left | by_hand)
    source = [rule(), rule(operation="WRITE"), rule("orders-2", "ALL"), rule("billing", resource="GROUP")]
    plan = plan_acls(source, target, frozenset(kept | left), READ_ONLY, names(), ["eu.orders", "eu.orders-2"])
    assert plan == AclsPlan(add=(rule("eu.orders-2"),), remove=tuple(sorted(left)))


A_RULE = st.builds(
    AclRule,
    st.sampled_from(["TOPIC", "GROUP"]),
    st.sampled_from(["LITERAL", "PREFIXED"]),
    st.sampled_from(["orders", "eu.orders", "ord", "*", "other", "eu."]),
    st.sampled_from(["User:a", "User:b"]),
    st.just("*"),
    st.sampled_from(["READ", "WRITE", "ALL"]),
    st.sampled_from(["ALLOW", "DENY"]),
)
RULES = st.frozensets(A_RULE)


@given(st.sampled_from(["prefix", "identity", "dr-{topic}"]), st.sampled_from([READ_ONLY, EXACT]), st.data())
def test_what_a_policy_carries_it_gives(naming_rule: str, policy: AclPolicy, data: st.DataObject) -> None:
    carried = policy.carried(data.draw(A_RULE), names(naming_rule))
    assert not isinstance(carried, AclRule) or policy.gives(carried)


@given(RULES, RULES, RULES, st.sampled_from(["prefix", "identity", "{topic}-dr"]), st.sampled_from([READ_ONLY, EXACT]))
def test_a_plan_takes_nothing_that_is_not_ours_and_is_done_at_once(  # type: ignore[no-untyped-def]
    source, target, ours, naming_rule, policy
) -> None:
    copies = [names(naming_rule).target_topic(topic) for topic in TOPICS]
    plan = plan_acls(source, target, ours, policy, names(naming_rule), copies)
    assert ours >= set(plan.remove)
    assert target >= set(plan.remove)
    assert not target & set(plan.add)
    after = target.union(plan.add).difference(plan.remove)
    mine = ours.union(plan.add).difference(plan.remove)
    again = plan_acls(source, after, mine, policy, names(naming_rule), copies)
    assert (again.add, again.remove, again.foreign) == ((), (), plan.foreign)


def test_an_unknown_mode_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match='acls: found "exakt"; allowed: "read-only" or "exact"; did you mean'):
        acl_policy("exakt")
