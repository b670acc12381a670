"""server.properties of the lab's nodes, and the credentials beside them."""

import base64
import json
from pathlib import Path

import pytest

from mirrord.config.security import Mechanism
from mirrord.lab.security import security_table, unsigned_token
from mirrord.lab.server_properties import CONTROLLER_ID, LabOptions, Ports, node_properties, render, scram_credentials

FOLDER = Path("/lab")


def properties(options: LabOptions, node_id: int = 1) -> dict[str, str]:
    ports = {each: Ports(*(each * 10 + at for at in range(1, 5))) for each in options.node_ids}
    return node_properties(options, node_id, ports, FOLDER)


def test_one_broker_is_its_own_controller() -> None:
    found = properties(LabOptions())
    assert found["process.roles"] == "broker,controller"
    assert found["controller.quorum.voters"] == "1@127.0.0.1:13"
    assert found["listeners"] == "CLIENT://127.0.0.1:11,INTERNAL://127.0.0.1:12,CONTROLLER://127.0.0.1:13"
    assert found["offsets.topic.replication.factor"] == "1"


def test_several_brokers_have_a_separate_controller() -> None:
    options = LabOptions(brokers=2)
    assert options.node_ids == (CONTROLLER_ID, 1, 2)
    broker, controller = properties(options, 2), properties(options, CONTROLLER_ID)
    assert (broker["process.roles"], controller["process.roles"]) == ("broker", "controller")
    assert broker["listeners"] == "CLIENT://127.0.0.1:21,INTERNAL://127.0.0.1:22"
    assert controller["listeners"] == "CONTROLLER://127.0.0.1:1003"
    assert broker["controller.quorum.voters"] == controller["controller.quorum.voters"] == "100@127.0.0.1:1003"
    assert broker["log.dirs"] != controller["log.dirs"]
    assert broker["offsets.topic.replication.factor"] == "2"


def test_a_second_listener_for_clients_stands_aside() -> None:
    found = properties(LabOptions(brokers=2, aside=True), 2)
    assert found["listeners"] == "CLIENT://127.0.0.1:21,INTERNAL://127.0.0.1:22,ASIDE://127.0.0.1:24"
    assert found["listener.security.protocol.map"].endswith(",ASIDE:PLAINTEXT")
    assert "ASIDE" not in properties(LabOptions(brokers=2, aside=True), CONTROLLER_ID)["listeners"]


def test_replicas_stop_at_three() -> None:
    assert properties(LabOptions(brokers=5), 1)["default.replication.factor"] == "3"


def test_what_the_caller_says_wins() -> None:
    assert properties(LabOptions(properties={"log.dirs": "/elsewhere"}))["log.dirs"] == "/elsewhere"


def test_plaintext_needs_no_files() -> None:
    assert not [name for name in properties(LabOptions()) if "ssl" in name or "sasl" in name or "authorizer" in name]
    assert scram_credentials(LabOptions()) == []


def test_sasl_knows_every_user_and_mechanism() -> None:
    options = LabOptions(protocol="SASL_PLAINTEXT", users={"a": 'q"uo\\te', "b": "two"}, authorizer=True)
    found = properties(options)
    assert 'user_a="q\\"uo\\\\te" user_b="two";' in found["listener.name.client.plain.sasl.jaas.config"]
    assert found["authorizer.class.name"].endswith("StandardAuthorizer")
    assert len(scram_credentials(options)) == 4


@pytest.mark.parametrize(("required", "expected"), [(True, "required"), (False, "none")])
def test_client_certificates(required: bool, expected: str) -> None:
    found = properties(LabOptions(protocol="SSL", client_certificates=required))
    assert found["listener.name.client.ssl.client.auth"] == expected


def test_render_escapes_what_java_would_read_otherwise() -> None:
    assert render({"a": "b=c", "d": "back\\slash\nline é"}) == "a=b=c\nd=back\\\\slash\\nline \\u00e9\n"


@pytest.mark.parametrize(
    ("options", "mechanism", "expected"),
    [
        (LabOptions(), "PLAIN", {"protocol": "PLAINTEXT"}),
        (
            LabOptions(protocol="SASL_PLAINTEXT"),
            "PLAIN",
            {
                "protocol": "SASL_PLAINTEXT",
                "mechanism": "PLAIN",
                "username": "ann",
                "password": "file:/lab/ann.password",
            },
        ),
        (
            LabOptions(protocol="SASL_SSL"),
            "OAUTHBEARER",
            {
                "protocol": "SASL_SSL",
                "mechanism": "OAUTHBEARER",
                "password": "file:/lab/ann.token",
                "ca": "file:/lab/ca.pem",
            },
        ),
        (
            LabOptions(protocol="SSL", client_certificates=True),
            "PLAIN",
            {
                "protocol": "SSL",
                "ca": "file:/lab/ca.pem",
                "certificate": "file:/lab/client.pem",
                "key": "file:/lab/client.key",
            },
        ),
    ],
)
def test_security_table_is_what_a_conf_holds(
    options: LabOptions, mechanism: Mechanism, expected: dict[str, str]
) -> None:
    assert security_table(options, FOLDER, "ann", mechanism) == expected


def test_unsigned_token() -> None:
    head, claims, signature = unsigned_token("ann", 1000.5).split(".")
    assert json.loads(base64.urlsafe_b64decode(head + "==")) == {"alg": "none"}
    assert json.loads(base64.urlsafe_b64decode(claims + "==")) == {"sub": "ann", "iat": 1000, "exp": 87_400}
    assert signature == ""
