"""What ACLs allow a principal, as Kafka's authorizer decides."""

import pytest

from mirrord.model.acls import AclRule
from mirrord.recovery.rules.access import access, faults

ADA = "User:ada"


def rule(
    operation: str = "READ",
    permission: str = "ALLOW",
    name: str = "orders",
    pattern: str = "LITERAL",
    principal: str = ADA,
    host: str = "*",
) -> AclRule:
    return AclRule("TOPIC", pattern, name, principal, host, operation, permission)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("rules", "answer"),
    [
        ([], "no rules"),
        ([rule()], "allowed"),
        ([rule("ALL")], "allowed"),
        ([rule("WRITE")], "not granted"),
        ([rule(name="*")], "allowed"),
        ([rule(name="ord", pattern="PREFIXED")], "allowed"),
        ([rule(name="ord")], "no rules"),
        ([rule(name="orders-2")], "no rules"),
        ([rule(principal="User:*")], "allowed"),
        ([rule(principal="User:bob")], "not granted"),
        ([rule(host="10.0.0.1")], "not granted"),
        ([rule(), rule(permission="DENY", name="*", operation="ALL")], "denied"),
        ([rule(), rule(permission="DENY", principal="User:*")], "denied"),
        ([rule(), rule(permission="DENY", host="10.0.0.1")], "denied"),
        ([rule(), rule(permission="DENY", principal="User:bob")], "allowed"),
        ([rule(), rule(permission="DENY", operation="WRITE")], "allowed"),
    ],
)
def test_read(rules: list[AclRule], answer: str) -> None:
    assert access(rules, ADA, "READ", "TOPIC", "orders") == answer
    assert access(rules, ADA, "READ", "GROUP", "orders") == "no rules"


def test_describe_is_implied_but_not_its_denial() -> None:
    assert access([rule("WRITE")], ADA, "DESCRIBE", "TOPIC", "orders") == "allowed"
    assert access([rule("WRITE"), rule("READ", "DENY")], ADA, "DESCRIBE", "TOPIC", "orders") == "allowed"


def test_each_operation_gets_one_line() -> None:
    assert faults([rule("ALL", name="*")], ADA, ["a", "b"]) == []
    assert faults([rule(name="*")], ADA, ["a", "b"]) == [
        "User:ada may not WRITE a and 1 more topics: no ACL allows it, unless it is a super user"
    ]
    assert len(faults([], ADA, ["a"])) == 2


def test_rules_of_all_kinds_count_for_many_topics() -> None:
    rules = [rule("ALL", name="ord", pattern="PREFIXED"), rule("ALL", "DENY", name="orders-2"), rule(name="b")]
    assert faults(rules, ADA, ["orders", "orders-2", "or", "b"]) == [
        "User:ada may not READ orders-2: an ACL denies it",
        "User:ada may not READ or: there are no ACLs, unless the brokers have allow.everyone.if.no.acl.found",
        "User:ada may not WRITE orders-2: an ACL denies it",
        "User:ada may not WRITE b: no ACL allows it, unless it is a super user",
        "User:ada may not WRITE or: there are no ACLs, unless the brokers have allow.everyone.if.no.acl.found",
    ]
    assert faults([rule("ALL", name="", pattern="PREFIXED")], ADA, ["a"]) == []
