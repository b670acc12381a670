"""`tls_min` and `ciphers`: which handshakes succeed, and what is reported if one fails."""

import ssl
from contextlib import suppress
from pathlib import Path
from typing import get_args

import pytest
import trustme

from mirrord.config.security import Cipher, Secret, Security
from mirrord.kafka.client.credentials import tls_context
from mirrord.kafka.client.tls_diagnosis import tls_reason

AES_256, AES_128 = "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256"
HOST = "127.0.0.1"


@pytest.fixture
def ca(tmp_path: Path) -> Secret:
    return Secret(f"file:{tmp_path / 'ca.pem'}")


@pytest.fixture
def broker(tmp_path: Path) -> ssl.SSLContext:
    """A broker that supports no higher version than TLS 1.2."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert(HOST).configure_cert(context)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def handshake(security: Security, broker: ssl.SSLContext) -> tuple[str | None, str]:
    """Return the version of TLS and the cipher suite. Raises SSLError as a client sees it."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls_context(security).wrap_bio(back, there, server_hostname=HOST)
    server = broker.wrap_bio(there, back, server_side=True)
    for _ in range(3):
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        with suppress(ssl.SSLError):  # the client gets an alert
            server.do_handshake()
    cipher = client.cipher()
    assert cipher is not None
    return client.version(), cipher[0]


async def failure(security: Security, broker: ssl.SSLContext) -> str:
    with pytest.raises(ssl.SSLError) as error:
        handshake(security, broker)
    return await tls_reason(error.value, HOST, 1, security)


async def test_the_lowest_version_is_kept(ca: Secret, broker: ssl.SSLContext) -> None:
    security = Security("SSL", ca=ca, tls_min="1.3")
    assert (await failure(security, broker)).endswith('; tls_min = "1.3" allows no lower version of TLS')
    assert handshake(Security("SSL", ca=ca), broker)[0] == "TLSv1.2"
    broker.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert handshake(security, broker)[0] == "TLSv1.3"


async def test_only_the_listed_cipher_suites_are_used(ca: Secret, broker: ssl.SSLContext) -> None:
    security = Security("SSL", ca=ca, ciphers=(AES_128,))
    assert handshake(security, broker) == ("TLSv1.2", AES_128)
    broker.set_ciphers(AES_256)
    assert (await failure(security, broker)).endswith("; it may support none of the cipher suites in ciphers")
    broker.maximum_version = ssl.TLSVersion.MAXIMUM_SUPPORTED
    assert handshake(security, broker)[0] == "TLSv1.3"


def test_openssl_knows_each_cipher_suite() -> None:
    for cipher in get_args(Cipher):
        assert cipher in {each["name"] for each in tls_context(Security("SSL", ciphers=(cipher,))).get_ciphers()}


def test_without_these_keys_nothing_changes() -> None:
    usual, ours = ssl.create_default_context(), tls_context(Security("SSL"))
    assert ours.minimum_version == usual.minimum_version
    assert ours.get_ciphers() == usual.get_ciphers()
