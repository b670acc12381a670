"""The client settings of a cluster: every way to connect, and references instead of secrets."""

import json
from pathlib import Path

import pytest

from mirrord.config.loader import load_text
from mirrord.config.mm2.translate import translate
from mirrord.config.security import Secret, Security
from mirrord.config.writer import conf_toml
from mirrord.model.errors import ConfigError

HEAD = "clusters = eu, us\neu.bootstrap.servers = eu1:9092\nus.bootstrap.servers = us1:9092\neu->us.enabled = true\n"
COMMON = "org.apache.kafka.common.security"
PLAIN = f"{COMMON}.plain.PlainLoginModule"
SCRAM = f"{COMMON}.scram.ScramLoginModule"
BEARER = f"{COMMON}.oauthbearer.OAuthBearerLoginModule"


def security(more: str, file_name: str = "mm2.properties") -> Security:
    """The security of `us`; it survives a round trip through conf.toml, and nothing in it holds a secret."""
    found = translate(HEAD + more, file_name).config
    text = conf_toml(found)
    assert load_text(text, "conf.toml") == found
    assert "hunter2" not in text + json.dumps(found.describe()) + repr(found)
    return found.clusters["us"].security


def faults(more: str) -> str:
    with pytest.raises(ConfigError) as raised:
        translate(HEAD + more, "mm2.properties")
    assert "hunter2" not in str(raised.value)
    return str(raised.value)


def sasl(mechanism: str, jaas: str, more: str = "", protocol: str = "SASL_PLAINTEXT") -> str:
    return f"us.security.protocol = {protocol}\nus.sasl.mechanism = {mechanism}\nus.sasl.jaas.config = {jaas}\n{more}"


def of_file(path: Path, rest: str) -> Secret:
    return Secret.parse(f"properties:{path}#{rest}")


def test_nothing_is_plaintext() -> None:
    assert security("") == Security()
    assert security("us.security.protocol = plaintext\n") == Security()


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)]
)
def test_a_password_in_the_file(mechanism: str, module: str, tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    text = sasl(
        mechanism, f'{module} required \\\n  username="me" \\\n  password="hunter2";', protocol="sasl_plaintext"
    )
    path.write_text(HEAD + text)
    found = security(text, str(path))
    assert (found.protocol, found.mechanism, found.username) == ("SASL_PLAINTEXT", mechanism, "me")
    assert found.password == of_file(path, "us.sasl.jaas.config#password")
    assert found.password is not None
    assert found.password.resolve() == "hunter2"


def test_a_password_from_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORD_TEST", "hunter2")
    found = security(sasl("PLAIN", f'{PLAIN} required username="me" password="${{env:MIRRORD_TEST}}";'))
    assert found.password == Secret.parse("env:MIRRORD_TEST")
    secrets = tmp_path / "secrets.properties"
    secrets.write_text(f'pw = hunter2\njaas = {PLAIN} required username="me" password="hunter2";\n')
    found = security(sasl("PLAIN", f'{PLAIN} required username="me" password="${{file:{secrets}:pw}}";'))
    assert found.password == of_file(secrets, "pw")
    assert found.password is not None
    assert found.password.resolve() == "hunter2"
    # The whole entry, and a part of a password.
    for jaas in (f"${{file:{secrets}:jaas}}", f'{PLAIN} required username="me" password="${{file:{secrets}:pw}}";'):
        path = tmp_path / "mm2.properties"
        path.write_text(HEAD + sasl("PLAIN", jaas))
        found = security(sasl("PLAIN", jaas), str(path))
        assert found.username == "me"
        assert found.password is not None
        assert found.password.resolve() == "hunter2"


def test_a_secret_need_not_be_there_yet() -> None:
    jaas = f'{PLAIN} required username="me" password="${{env:MIRRORD_NONE}}";'
    more = "us.ssl.truststore.location = /t\nus.ssl.truststore.password = ${env:MIRRORD_NONE}\n"
    found = security(sasl("PLAIN", jaas, more, "SASL_SSL"))
    assert found.username == "me"
    assert found.password == found.truststore_password == Secret.parse("env:MIRRORD_NONE")


def test_what_all_clusters_have() -> None:
    jaas = f'{SCRAM} required username="me" password="hunter2";'
    found = translate(
        HEAD + f"security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={jaas}\n", "mm2.properties"
    ).config
    assert found.clusters["eu"].security == found.clusters["us"].security
    assert found.clusters["eu"].security.password == of_file(
        Path("mm2.properties").absolute(), "sasl.jaas.config#password"
    )


def test_what_only_the_clients_have() -> None:
    text = sasl("PLAIN", f'{PLAIN} required username="me" password="hunter2";').replace("us.", "us.consumer.")
    assert security(text).username == "me"
    more = text.replace("us.consumer.", "us.producer.").replace('"me"', '"you"')
    remarks = [notice.of("f") for notice in translate(HEAD + text + more, "mm2.properties").notices if notice.lines]
    assert remarks == [
        "f:10: us.producer.sasl.jaas.config: not used: in mirrord, a cluster has one identity, that of "
        "us.consumer.sasl.jaas.config"
    ]


def test_tokens_of_every_kind() -> None:
    entry = f'{BEARER} required clientId="me" clientSecret="hunter2" scope="kafka";'
    url = "us.sasl.oauthbearer.token.endpoint.url = https://login.example/token\n"
    handler = f"us.sasl.login.callback.handler.class = {COMMON}.oauthbearer.secured.OAuthBearerLoginCallbackHandler\n"
    found = security(sasl("OAUTHBEARER", entry, url + handler))
    assert (found.token_url, found.username, found.scope) == ("https://login.example/token", "me", "kafka")
    assert found.password == of_file(Path("mm2.properties").absolute(), "us.sasl.jaas.config#clientSecret")
    newer = (
        "us.sasl.oauthbearer.client.credentials.client.id = me\n"
        "us.sasl.oauthbearer.client.credentials.client.secret = hunter2\nus.sasl.oauthbearer.scope = kafka\n"
    )
    again = security("us.security.protocol = SASL_SSL\nus.sasl.mechanism = OAUTHBEARER\n" + url + newer)
    assert (again.token_url, again.username, again.scope) == (found.token_url, found.username, found.scope)
    from_file = security(
        sasl("OAUTHBEARER", f"{BEARER} required;", "us.sasl.oauthbearer.token.endpoint.url = file:///run/token\n")
    )
    assert (from_file.password, from_file.token_url) == (Secret.parse("file:/run/token"), None)
    unsigned = security(sasl("OAUTHBEARER", f'{BEARER} required unsecuredLoginStringClaim_sub="me";'))
    assert (unsigned.unsigned, unsigned.username, unsigned.password) == (True, "me", None)


def test_stores() -> None:
    found = security(
        "us.security.protocol = SSL\n"
        "us.ssl.truststore.location = /etc/trust.jks\nus.ssl.truststore.password = hunter2\n"
        "us.ssl.keystore.location = /etc/key.p12\nus.ssl.keystore.type = pkcs12\n"
        "us.ssl.keystore.password = ${env:HOME}\nus.ssl.key.password = hunter2\n"
        "us.ssl.endpoint.identification.algorithm =\n"
    )
    here = Path("mm2.properties").absolute()
    assert found == Security(
        "SSL",
        truststore="/etc/trust.jks",
        truststore_password=of_file(here, "us.ssl.truststore.password"),
        keystore="/etc/key.p12",
        keystore_password=Secret.parse("env:HOME"),
        key_password=of_file(here, "us.ssl.key.password"),
        check_hostname=False,
    )
    assert security("us.security.protocol=SSL\nus.ssl.endpoint.identification.algorithm=HTTPS\n").check_hostname


def test_pem() -> None:
    files = security(
        "us.security.protocol = SSL\n"
        "us.ssl.truststore.type = PEM\nus.ssl.truststore.location = /etc/ca.pem\n"
        "us.ssl.keystore.type = PEM\nus.ssl.keystore.location = /etc/key.pem\n"
    )
    key = Secret.parse("file:/etc/key.pem")
    assert files == Security("SSL", ca=Secret.parse("file:/etc/ca.pem"), certificate=key, key=key)
    texts = security(
        "us.security.protocol = SSL\nus.ssl.truststore.type = PEM\nus.ssl.keystore.type = PEM\n"
        "us.ssl.truststore.certificates = -----BEGIN CERTIFICATE----- hunter2\n"
        "us.ssl.keystore.certificate.chain = hunter2\nus.ssl.keystore.key = ${env:HOME}\n"
    )
    here = Path("mm2.properties").absolute()
    assert texts == Security(
        "SSL",
        ca=of_file(here, "us.ssl.truststore.certificates"),
        certificate=of_file(here, "us.ssl.keystore.certificate.chain"),
        key=Secret.parse("env:HOME"),
    )


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("us.security.protocol = SASL_SSL\n", "us.sasl.mechanism: missing with SASL_SSL (Kafka then uses GSSAPI)"),
        (
            "us.security.protocol = SASL_SSL\nus.sasl.mechanism = GSSAPI\n",
            'us.sasl.mechanism: found "GSSAPI"; allowed: "PLAIN" or',
        ),
        ("us.security.protocol = SASL_SSL\nus.sasl.mechanism = PLAIN\n", "us.sasl.jaas.config: missing with PLAIN"),
        (sasl("PLAIN", f'{PLAIN} required username="me" password="hunter2"'), "found ***; allowed: LOGIN-MODULE"),
        (sasl("PLAIN", f'{PLAIN} required password="hunter2";'), "us.sasl.jaas.config: username is missing from it"),
        (sasl("PLAIN", f'{PLAIN} required username="u";'), "us.sasl.jaas.config: password is missing from it"),
        (
            sasl("PLAIN", f'{SCRAM} required username="u" password="hunter2";'),
            f'found the login module "{SCRAM}"; with PLAIN allowed: {PLAIN}',
        ),
        (
            sasl("OAUTHBEARER", "com.example.Login required;"),
            'found the login module "com.example.Login"',
        ),
        (sasl("OAUTHBEARER", f"{BEARER} required;"), "OAUTHBEARER needs sasl.oauthbearer.token.endpoint.url"),
        (
            sasl("OAUTHBEARER", f"{BEARER} required;", "us.sasl.oauthbearer.token.endpoint.url = https://x\n"),
            "a token needs clientId and clientSecret",
        ),
        (
            sasl("OAUTHBEARER", f"{BEARER} required;", "us.sasl.oauthbearer.token.endpoint.url = ftp://x\n"),
            'an address that begins with "https://"',
        ),
        ("us.security.protocol = SSL\nus.ssl.keystore.location = a\n", "us.ssl.keystore.password: missing"),
        ("us.security.protocol = SSL\nus.ssl.keystore.type = BKS\n", 'allowed: "JKS" or "PKCS12" or "PEM"'),
        (
            "us.security.protocol = SSL\nus.ssl.keystore.key = hunter2\n",
            "us.ssl.keystore.certificate.chain: missing; ssl.keystore.key needs it",
        ),
        (sasl("PLAIN", "${env:MIRRORD_NONE}"), "the environment variable MIRRORD_NONE is not set"),
        (
            sasl("PLAIN", f'{PLAIN} required username="u" password="${{file:/a#b:c}}";'),
            "a secret cannot be referenced if the path or the key contains",
        ),
    ],
)
def test_faults(more: str, fault: str) -> None:
    assert fault in faults(more)
