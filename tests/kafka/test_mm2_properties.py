"""Files of MirrorMaker 2 on real brokers: every way to connect that they describe, and a copy with a converted file."""

import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.serialization import pkcs12

from mirrord.config.loader import load_file
from mirrord.config.security import Security
from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import Daemon, all_ends, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic
from tests.fixtures.wire import describe, open_to

COMMON = "org.apache.kafka.common.security"
PASSWORD = "swordfish"


def mm2(folder: Path, source: Cluster, target: Cluster, more: str) -> Path:
    path = folder / "mm2.properties"
    path.write_text(
        f"clusters = eu, us\neu.bootstrap.servers = {source.bootstrap}\nus.bootstrap.servers = {target.bootstrap}\n"
        f"eu->us.enabled = true\nreplication.factor = 1\n{more}"
    )
    return path


def target_security(folder: Path, target: Cluster, more: str) -> Security:
    config, remarks = load_file(str(mm2(folder, target, target, more)))
    assert not [line for line in remarks if "unknown" in line or "not used" in line]
    return config.clusters["us"].security


def jaas(target: Cluster, mechanism: str) -> str:
    if mechanism == "OAUTHBEARER":
        return f'{COMMON}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="mirrord";'
    module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    password = Path(target.security("mirrord")["password"].removeprefix("file:")).read_text()
    return f'{COMMON}.{module}LoginModule required \\\n  username="mirrord" \\\n  password="{password}";'


def sasl(target: Cluster, mechanism: str, prefix: str = "us.") -> str:
    authority = target.security("mirrord")["ca"].removeprefix("file:")
    return (
        f"{prefix}security.protocol = SASL_SSL\n{prefix}sasl.mechanism = {mechanism}\n"
        f"{prefix}sasl.jaas.config = {jaas(target, mechanism)}\n"
        f"{prefix}ssl.truststore.type = PEM\n{prefix}ssl.truststore.location = {authority}\n"
    )


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_a_login_module(lab_sasl: Cluster, mechanism: str, tmp_path: Path) -> None:
    connection = await open_to(lab_sasl, target_security(tmp_path, lab_sasl, sasl(lab_sasl, mechanism)))
    assert (await describe(connection)).brokers
    connection.close()


def make_stores(cluster: Cluster, folder: Path, kind: str) -> str:
    """The client's certificate and the cluster's CA in stores as keytool makes them."""
    files = {
        key: Path(value.removeprefix("file:")) for key, value in cluster.security("admin").items() if "file:" in value
    }
    certificates = x509.load_pem_x509_certificates(files["certificate"].read_bytes())
    key = form.load_pem_private_key(files["key"].read_bytes(), None)
    bundle = pkcs12.serialize_key_and_certificates(
        b"mirrord",
        key,  # pyright: ignore[reportArgumentType] - trustme makes elliptic keys
        certificates[0],
        certificates[1:],
        form.BestAvailableEncryption(PASSWORD.encode()),
    )
    (folder / "key.p12").write_bytes(bundle)
    keystore, truststore = folder / f"key.{kind}", folder / f"trust.{kind}"
    passwords = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD, "-destkeypass", PASSWORD]
    if kind == "jks":
        run("-importkeystore", "-srckeystore", folder / "key.p12", "-destkeystore", keystore, *passwords, kind=kind)
    run(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", files["ca"], "-keystore", truststore),
        *("-storepass", PASSWORD),
        kind=kind,
    )
    return (
        f"us.security.protocol = SSL\nus.ssl.truststore.location = {truststore}\n"
        f"us.ssl.truststore.password = {PASSWORD}\nus.ssl.keystore.location = {keystore}\n"
        f"us.ssl.keystore.password = {PASSWORD}\nus.ssl.key.password = {PASSWORD}\nus.ssl.keystore.type = {kind}\n"
    )


def run(*arguments: str | Path, kind: str) -> None:
    option = "-deststoretype" if arguments[0] == "-importkeystore" else "-storetype"
    form_name = "JKS" if kind == "jks" else "PKCS12"
    subprocess.run(["keytool", *arguments, option, form_name], check=True, capture_output=True)


@pytest.mark.parametrize("kind", ["jks", "p12"])
async def test_key_stores(lab_tls: Cluster, kind: str, tmp_path: Path) -> None:
    settings = make_stores(lab_tls, tmp_path, kind).replace("type = p12", "type = PKCS12")
    connection = await open_to(lab_tls, target_security(tmp_path, lab_tls, settings))
    assert (await describe(connection)).brokers
    connection.close()


def pem_texts(cluster: Cluster) -> str:
    files = {key: value.removeprefix("file:") for key, value in cluster.security("admin").items() if "file:" in value}
    lines = {key: " \\\n  ".join(Path(path).read_text().strip().splitlines()) for key, path in files.items()}
    return (
        "us.security.protocol = SSL\nus.ssl.truststore.type = PEM\nus.ssl.keystore.type = PEM\n"
        f"us.ssl.truststore.certificates = {lines['ca']}\n"
        f"us.ssl.keystore.certificate.chain = {lines['certificate']}\nus.ssl.keystore.key = {lines['key']}\n"
    )


async def test_pem_within_the_file(lab_tls: Cluster, tmp_path: Path) -> None:
    connection = await open_to(lab_tls, target_security(tmp_path, lab_tls, pem_texts(lab_tls)))
    assert (await describe(connection)).brokers
    connection.close()


def test_a_converted_file_copies(lab_pair: LabPair, lab_sasl: Cluster, tmp_path: Path) -> None:
    """The password remains in mm2.properties; the daemon finds it there."""
    topic = create_topic(lab_pair.source, unique("orders"), 3)
    fill(lab_pair.source, topic, 3, 3_000)
    login = sasl(lab_sasl, "SCRAM-SHA-512").replace('"mirrord"', '"admin"')
    admin = Path(lab_sasl.security("admin")["password"].removeprefix("file:")).read_text()
    mirrord_password = Path(lab_sasl.security("mirrord")["password"].removeprefix("file:")).read_text()
    path = mm2(
        tmp_path, lab_pair.source, lab_sasl, f"eu->us.topics = {topic}\n" + login.replace(mirrord_password, admin)
    )
    converted = mirrord("convert", path)
    assert converted.returncode == 0, converted.stderr
    assert admin not in converted.stdout
    conf = tmp_path / "conf.toml"
    flow = unique("mm2")
    text = converted.stdout.replace("[[flows]]", f'[[flows]]\nname = "{flow}"')
    conf.write_text(f'{text}\n[runtime]\nengine = "process"\n[logs]\ndir = "{tmp_path / "logs"}"\n')
    with Daemon(conf) as daemon:
        daemon.until_copied(all_ends(lab_pair.source, topic))
        assert daemon.stop() == 0
