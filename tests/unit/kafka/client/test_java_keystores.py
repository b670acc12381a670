"""Java's key stores. Those in tests/golden/stores were made by keytool 17; a JDK, if there is one, makes more."""

import os
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from mirrord.config.security import Secret, Security
from mirrord.kafka.client.credentials import pem_lines, tls_context
from mirrord.kafka.client.java_keystores import read_store
from mirrord.model.errors import EnvironmentFault

STORES = Path(__file__).parents[3] / "golden" / "stores"
PASSWORD, KEY_PASSWORD = "swordfish", "marlin22"


def secret(value: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Secret:
    monkeypatch.setenv(f"MIRRORD_TEST_{name}", value)
    return Secret.parse(f"env:MIRRORD_TEST_{name}")


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_a_trust_store_holds_authorities(name: str) -> None:
    store = read_store(str(STORES / name), PASSWORD)
    assert (store.chain, store.key) == ("", "")
    assert store.authorities.count("BEGIN CERTIFICATE") == 1


def test_a_jks_trust_store_can_be_read_without_its_password() -> None:
    path = str(STORES / "trust.jks")
    assert read_store(path, None) == read_store(path, PASSWORD)


@pytest.mark.parametrize(("name", "key_password"), [("key.jks", KEY_PASSWORD), ("key.p12", None)])
def test_a_key_store_holds_a_chain_and_its_key(name: str, key_password: str | None) -> None:
    store = read_store(str(STORES / name), PASSWORD, key_password)
    assert store.chain.count("BEGIN CERTIFICATE") == 1
    assert store.key.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert "PRIVATE" not in f"{store} {store!r}"


def test_both_kinds_hold_the_same() -> None:
    jks, pkcs12 = (read_store(str(STORES / f"key.{kind}"), PASSWORD, KEY_PASSWORD) for kind in ("jks", "p12"))
    assert jks.chain == pkcs12.chain
    certificate = ssl.PEM_cert_to_DER_cert(jks.chain)
    for kind in ("jks", "p12"):
        assert ssl.PEM_cert_to_DER_cert(read_store(str(STORES / f"trust.{kind}"), PASSWORD).authorities) == certificate


@pytest.mark.parametrize(("key", "trust"), [("key.jks", "trust.p12"), ("key.p12", "trust.jks")])
def test_a_handshake_with_what_the_stores_hold(key: str, trust: str, monkeypatch: pytest.MonkeyPatch) -> None:
    password = secret(PASSWORD, "STORE", monkeypatch)
    key_password = secret(KEY_PASSWORD, "KEY", monkeypatch) if key.endswith("jks") else None
    client = tls_context(
        Security(
            "SSL",
            truststore=str(STORES / trust),
            truststore_password=password,
            keystore=str(STORES / key),
            keystore_password=password,
            key_password=key_password,
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    pkcs12 = read_store(str(STORES / "key.p12"), PASSWORD)
    server.load_verify_locations(cadata=pkcs12.chain)
    load(server, pkcs12.chain + pkcs12.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="client.example")
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (ours, theirs):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert theirs.getpeercert(binary_form=True) == ours.getpeercert(binary_form=True)


def load(context: ssl.SSLContext, pem: str) -> None:
    path = Path(f"/proc/self/fd/{(descriptor := os.memfd_create('test'))}")
    path.write_text(pem)
    context.load_cert_chain(path)
    os.close(descriptor)


@pytest.mark.parametrize("name", ["key.jks", "trust.jks", "key.p12", "trust.p12"])
def test_a_wrong_password_is_reported(name: str) -> None:
    with pytest.raises(
        EnvironmentFault, match=rf"{name} cannot be read: its password is wrong, or it is damaged"
    ) as raised:
        read_store(str(STORES / name), "salmon99")
    assert "salmon99" not in str(raised.value)


def test_a_wrong_password_of_the_key_is_reported() -> None:
    with pytest.raises(EnvironmentFault, match=r"key.jks cannot be read: the password of its key is wrong"):
        read_store(str(STORES / "key.jks"), PASSWORD)


def test_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="none cannot be read: No such file"):
        read_store(str(tmp_path / "none"), PASSWORD)
    path = tmp_path / "store"
    for data, reason in [
        (b"hello", "is neither a JKS nor a PKCS12 store; `keytool"),
        (b"\xce\xce\xce\xce", "is a JCEKS store; `keytool"),
        (b"\xfe\xed\xfe\xed\x00\x00\x00\x02\x00\x00\x00\x09", "cannot be read: it is truncated"),
        (b"0\x03abc", "cannot be read: its password is wrong, or it is damaged"),
    ]:
        path.write_bytes(data)
        with pytest.raises(EnvironmentFault, match=reason):
            read_store(str(path), None)


def test_a_store_of_another_purpose_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    password = secret(PASSWORD, "STORE", monkeypatch)
    with pytest.raises(EnvironmentFault, match=r"trust.p12 holds no private key"):
        tls_context(Security("SSL", keystore=str(STORES / "trust.p12"), keystore_password=password))


def test_pem_in_one_line_is_understood() -> None:
    pem = read_store(str(STORES / "trust.jks"), None).authorities
    assert pem_lines(" ".join(pem.split("\n"))) == pem_lines(pem) == pem
    assert pem_lines("no pem") == "no pem"


@pytest.mark.skipif(shutil.which("keytool") is None, reason="a JDK makes the stores")
@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_what_keytool_makes_here(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "store"
    command = ["keytool", "-genkeypair", "-alias", "a", "-keyalg", "RSA", "-dname", "CN=x", "-storetype", kind]
    subprocess.run([*command, "-keystore", path, "-storepass", PASSWORD], check=True, capture_output=True)
    store = read_store(str(path), PASSWORD)
    assert store.key
    assert store.chain
