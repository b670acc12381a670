"""The commands that grant what a flow needs: exactly that, for the principals of the file."""

import shlex

import pytest

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.operations.rules.acl_commands import acl_commands, principal_of
from mirrord.operations.rules.required_acls import Right, needed_rights
from mirrord.topics.rules.topic_plan import TopicsPlan

SCRAM = Security("SASL_SSL", "SCRAM-SHA-512", "mirror", Secret("env:PASSWORD"))
CLUSTERS = {"eu": ClusterConfig(("eu1:9092", "eu2:9092"), SCRAM), "us": ClusterConfig(("us1:9092",), Security())}
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))
OPERATIONS = {
    name.replace("_", " ").title().replace(" ", ""): name
    for name in ("READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS")
}


def granted(lines: list[str]) -> set[Right]:
    """What the commands grant, read as Kafka's tool reads them."""
    found: set[Right] = set()
    aliases = {",".join(cluster.bootstrap): alias for alias, cluster in CLUSTERS.items()}
    for line in lines:
        if not line or line.startswith("#"):
            continue
        words = iter(shlex.split(line))
        assert next(words) == "kafka-acls.sh"
        options = [(word, "" if word in {"--add", "--cluster"} else next(words)) for word in words]
        given = dict(options)
        tail = "*" if given.get("--resource-pattern-type") == "prefixed" else ""
        names = [(flag[2:], name) for flag, name in options if flag in {"--topic", "--group", "--transactional-id"}]
        names += [("cluster", "kafka-cluster")] if "--cluster" in given else []
        for resource, name in names:
            for operation in (value for flag, value in options if flag == "--operation"):
                right = (aliases[given["--bootstrap-server"]], resource, name + tail, OPERATIONS[operation])
                found.add(Right(*right))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("match", [(".*",), ("team-.*", "billing")])
def test_the_commands_grant_what_is_needed_and_nothing_else(match: tuple[str, ...]) -> None:
    groups = FLOW.groups.__class__(match=match, reverse=True)
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders", "bills"), groups=groups)
    rights = [need.right for need in needed_rights(flow, TopicsPlan(), {})]
    assert {right.resource for right in rights} == {"topic", "group", "transactional-id", "cluster"}
    assert granted(acl_commands(rights, [flow], CLUSTERS)) == set(rights)


def test_resources_that_need_the_same_share_a_command() -> None:
    rights = [Right("eu", "topic", name, operation) for name in ("a", "b") for operation in ("READ", "DESCRIBE")]
    assert acl_commands(rights, [FLOW], CLUSTERS) == [
        "# cluster eu: principal User:mirror (from the key username)",
        "kafka-acls.sh --bootstrap-server eu1:9092,eu2:9092 --command-config admin-eu.properties --add "
        "--allow-principal User:mirror --operation Describe --operation Read --topic a --topic b",
    ]


def test_topics_that_a_regex_may_select_later_are_commented_out() -> None:
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(r"orders\..*", "bills"))
    lines = acl_commands([Right("eu", "topic", "bills", "READ")], [flow], CLUSTERS)
    assert [line for line in lines if "prefixed" in line] == [
        "# kafka-acls.sh --bootstrap-server eu1:9092,eu2:9092 --command-config admin-eu.properties --add "
        "--allow-principal User:mirror --operation Read --operation DescribeConfigs --topic orders. "
        "--resource-pattern-type prefixed",
        "# kafka-acls.sh --bootstrap-server us1:9092 --command-config admin-us.properties --add "
        "--allow-principal User:ANONYMOUS --operation Create --operation Read --operation Write --operation Alter "
        "--operation DescribeConfigs --operation AlterConfigs --topic eu.orders. --resource-pattern-type prefixed",
    ]
    assert granted(lines) == {Right("eu", "topic", "bills", "READ")}


def test_everything_that_a_shell_could_interpret_is_quoted() -> None:
    (_, command) = acl_commands([Right("eu", "group", "*", "READ")], [FLOW], CLUSTERS)
    assert command.endswith("--operation Read --group '*'")


@pytest.mark.parametrize(
    ("security", "principal"),
    [
        (SCRAM, "User:mirror"),
        (Security(), "User:ANONYMOUS"),
        (Security("SSL"), "User:ANONYMOUS"),
        (Security("SSL", keystore="k.jks"), "User:<distinguished name in the client certificate>"),
        (Security("SASL_SSL", "OAUTHBEARER", "id"), "User:<subject of the OAuth token>"),
        (Security("SASL_SSL", "OAUTHBEARER", "id", unsigned=True), "User:id"),
    ],
)
def test_principals(security: Security, principal: str) -> None:
    assert principal_of(security)[0] == principal


def test_what_a_fence_needs_is_a_comment() -> None:
    """It permits much more, and is optional. If ALTER is needed anyway, nothing has to be added."""
    lines = acl_commands([Right("us", "topic", "a", "READ")], [FLOW], CLUSTERS)
    command = "# kafka-acls.sh --bootstrap-server us1:9092 --command-config admin-us.properties --add --allow-principal"
    assert lines[2:] == [
        "# Optional: to fence off late batches of a suspended process at a failover; it also permits ACL changes",
        f"{command} User:ANONYMOUS --operation Alter --cluster",
        "# The same before Kafka 3.8. It also permits acting as a broker:",
        f"{command} User:ANONYMOUS --operation ClusterAction --cluster",
    ]
    anyway = Right("us", "cluster", "kafka-cluster", "ALTER")
    assert not any(line.startswith("# Optional") for line in acl_commands([anyway], [FLOW], CLUSTERS))
