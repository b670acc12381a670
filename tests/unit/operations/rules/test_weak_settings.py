"""Weak settings are reported, strong ones are not."""

import pytest
from msgspec.structs import replace

from mirrord.config.http import HttpConfig, HttpTls
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from mirrord.operations.rules.weak_settings import is_loopback, weak_lines, weak_settings

PASSWORD = Secret("env:PASSWORD")
STRONG = Security("SASL_SSL", "PLAIN", "mirror", PASSWORD)
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))


def config(security: Security = STRONG, http: HttpConfig | None = None) -> Config:
    clusters = {"eu": security, "us": STRONG, "unused": Security("SASL_PLAINTEXT", "PLAIN", "mirror", PASSWORD)}
    made = {alias: ClusterConfig((f"{alias}:9092",), each) for alias, each in clusters.items()}
    return Config(made, (FLOW,), http=http or HttpConfig())


@pytest.mark.parametrize(
    ("security", "what"),
    [
        (replace(STRONG, protocol="SASL_PLAINTEXT"), "sends the password unencrypted"),
        (Security("SASL_PLAINTEXT", "OAUTHBEARER", None, PASSWORD), "sends the token unencrypted"),
        (
            Security("SASL_SSL", "OAUTHBEARER", "id", PASSWORD, token_url="http://login.example.org/token"),
            "token_url sends the client secret unencrypted",
        ),
        (replace(STRONG, check_hostname=False), "can pose as a broker"),
        (Security("SASL_SSL", "OAUTHBEARER", "id", unsigned=True), "can claim to be this principal"),
    ],
)
def test_weak_settings_of_a_cluster(security: Security, what: str) -> None:
    (finding,) = weak_settings(config(security))
    assert (finding.severity, finding.where) == ("warning", "clusters.eu.security")
    assert what in finding.what
    assert finding.do
    assert weak_lines(config(security)) == [f"clusters.eu.security: {finding.what}; {finding.do}"]


@pytest.mark.parametrize(
    "security",
    [
        STRONG,
        Security(),
        Security("SSL"),
        Security("SASL_PLAINTEXT", "SCRAM-SHA-512", "mirror", PASSWORD),
        Security("SASL_SSL", "OAUTHBEARER", "id", PASSWORD, token_url="https://login.example.org/token"),
        Security("SASL_SSL", "OAUTHBEARER", "id", PASSWORD, token_url="http://[::1]:8080/token"),
    ],
)
def test_other_settings_are_not_reported(security: Security) -> None:
    assert weak_settings(config(security)) == []


@pytest.mark.parametrize(("host", "is_weak"), [("0.0.0.0", True), ("10.0.0.1", True), ("127.0.0.1", False)])
def test_an_address_that_other_machines_reach(host: str, *, is_weak: bool) -> None:
    lines = weak_lines(config(http=HttpConfig(listen=HostPort(host, 8182))))
    assert [line.partition(":")[0] for line in lines] == ["http.listen"] * is_weak
    tls = HttpTls(Secret("file:server.pem"), Secret("file:server.key"))
    assert weak_lines(config(http=HttpConfig(listen=HostPort(host, 8182), tls=tls))) == []


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert not is_loopback("mirror.example.org")
