"""Who may write to the topics of a ledger, according to the cluster's ACLs."""

from collections.abc import Iterable
from typing import cast

import pytest

from mirrord.config.ledger import LedgerConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.kafka.client.config_and_acl_admin import NoAuthorizer, RequestRefused, UpkeepAdmin
from mirrord.model.acls import AclRule
from mirrord.model.findings import Finding
from mirrord.model.names import Alias
from mirrord.operations.ledger_writers_survey import ledger_writer_findings
from mirrord.operations.rules.ledger_writers import own_principal, writer_findings, writers

TOPICS = ("mirrord.eu-us.ledger", "mirrord.eu-us.state")


def rule(
    principal: str, name: str, operation: str = "WRITE", permission: str = "ALLOW", pattern: str = "LITERAL"
) -> AclRule:
    return AclRule("TOPIC", cast("str", pattern), name, f"User:{principal}", "*", operation, permission)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        ([rule("ada", "mirrord.eu-us.ledger")], ["User:ada"]),
        ([rule("ada", "mirrord.", "ALL", pattern="PREFIXED"), rule("bob", "*", "DELETE")], ["User:ada", "User:bob"]),
        ([rule("ada", "mirrord.eu-us.state", "ALTER_CONFIGS")], ["User:ada"]),
        ([rule("ada", "mirrord.us-eu.ledger"), rule("ada", "mirrord."), rule("bob", "*", "READ")], []),
        ([rule("ada", "*"), rule("ada", "mirrord.", permission="DENY", pattern="PREFIXED")], []),
        ([rule("ada", "*", "ALL"), rule("*", "mirrord.", permission="DENY", pattern="PREFIXED")], ["User:ada"]),
        ([rule("ada", "*"), rule("ada", "mirrord.eu-us.state", permission="DENY")], ["User:ada"]),
    ],
)
def test_writers_are_found_in_acls(rules: list[AclRule], found: list[str]) -> None:
    assert writers(rules, TOPICS) == found


@pytest.mark.parametrize(
    ("found", "own", "said"),
    [
        ([], "User:m", "note: no ACL permits anybody"),
        (["User:m"], "User:m", ""),
        (["User:m", "User:x"], "User:m", "warning: not only mirrord, but also User:x may write"),
        (["User:m"], None, "note: only User:m may write"),
        (["User:*"], None, "warning: User:* may write"),
        (["User:m", "User:x"], None, "warning: User:m, User:x may write"),
        (["User:ANONYMOUS"], "User:ANONYMOUS", "warning: every client that is not authenticated"),
        ([f"User:{n}" for n in range(7)], "User:m", "User:4 and 2 more may write"),
    ],
)
def test_others_than_mirrord_are_reported(found: list[str], own: str | None, said: str) -> None:
    findings = writer_findings("eu-us", "us", found, own, signed=False)
    assert said in "".join(f"{each.severity}: {each.what}" for each in findings)
    assert bool(findings) == bool(said)


def test_the_own_principal_is_known_where_the_file_says_it() -> None:
    assert own_principal(Security()) == "User:ANONYMOUS"
    assert own_principal(Security(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="m")) == "User:m"
    assert own_principal(Security(protocol="SSL", certificate=Secret("env:A"))) is None


class Acls:
    def __init__(self, answer: frozenset[AclRule] | Exception) -> None:
        self.answer = answer
        self.closed = False

    async def rules(self, _: Iterable[str]) -> frozenset[AclRule]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True


async def ask(answer: frozenset[AclRule] | Exception, ledger: LedgerConfig | None = None) -> list[Finding]:
    flow = FlowConfig("eu-us", Alias("eu"), Alias("us"), ())
    acls = Acls(answer)
    found = await ledger_writer_findings(flow, ClusterConfig((), Security(), ledger), cast(UpkeepAdmin, acls))
    assert acls.closed
    return found


async def test_what_cannot_be_determined_is_said() -> None:
    (found,) = await ask(NoAuthorizer("x"))
    assert (found.severity, "has no authorizer" in found.what) == ("warning", True)
    (found,) = await ask(NoAuthorizer("x"), LedgerConfig(Secret("env:A")))
    assert found.severity == "note"
    (found,) = await ask(RequestRefused("CLUSTER_AUTHORIZATION_FAILED"))
    assert "cannot be determined: the ACLs cannot be listed (CLUSTER_AUTHORIZATION_FAILED)" in found.what
    (found,) = await ask(frozenset({rule("ada", "*")}))
    assert "also User:ada may write" in found.what
