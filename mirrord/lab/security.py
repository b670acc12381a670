"""Writes the certificates and credentials of a lab cluster to files. The `security` table of a conf.toml can refer to
these files."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from mirrord.config.security import Mechanism
from mirrord.lab.ports import LOOPBACK
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

_TOKEN_SECONDS = 86_400


def write_certificates(options: LabOptions, folder: Path) -> None:
    """Write the certificate of a CA (`ca.pem`), and the key and certificate of the brokers (`store.pem`). If clients
    need certificates, also write the key and certificate of a client (`client.key`, `client.pem`)."""
    try:
        import trustme  # noqa: PLC0415 - a development dependency; `mirrord lab up` works without trustme
    except ImportError:
        raise EnvironmentFault("a lab cluster with TLS needs trustme, which is not installed") from None
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    broker = authority.issue_cert(LOOPBACK, "localhost")
    _write_secret(folder / "store.pem", _pkcs8(broker) + b"".join(blob.bytes() for blob in broker.cert_chain_pems))
    if options.client_certificates:
        client = authority.issue_cert("client.lab", common_name="mirrord")
        _write_secret(folder / "client.key", _pkcs8(client))
        (folder / "client.pem").write_bytes(b"".join(blob.bytes() for blob in client.cert_chain_pems))


def write_passwords(options: LabOptions, folder: Path) -> None:
    """Write the password (`NAME.password`) and an unsigned token (`NAME.token`) of each user."""
    for name, password in options.users.items():
        _write_secret(folder / f"{name}.password", password.encode())
        _write_secret(folder / f"{name}.token", unsigned_token(name, time.time()).encode())


def security_table(options: LabOptions, folder: Path, user: str, mechanism: Mechanism) -> dict[str, str]:
    """Return the `security` table of a conf.toml with which this user can log in. `mechanism` has an effect only with
    SASL."""
    table: dict[str, str] = {"protocol": options.protocol}
    if options.sasl:
        table["mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            table["password"] = f"file:{folder / f'{user}.token'}"
        else:
            table |= {"username": user, "password": f"file:{folder / f'{user}.password'}"}
    if options.tls:
        table["ca"] = f"file:{folder / 'ca.pem'}"
        if options.client_certificates:
            table |= {"certificate": f"file:{folder / 'client.pem'}", "key": f"file:{folder / 'client.key'}"}
    return table


def unsigned_token(user: str, now_seconds: float) -> str:
    """Return an unsigned JSON web token that is valid for one day (RFC 7519 §6)."""
    claims = {"sub": user, "iat": int(now_seconds), "exp": int(now_seconds) + _TOKEN_SECONDS}
    return f"{_base64url({'alg': 'none'})}.{_base64url(claims)}."


def _base64url(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _pkcs8(certificate: Any) -> bytes:
    """Return the private key in PKCS8, the only format that Kafka's PEM stores can read (DefaultSslEngineFactory)."""
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415 - installed together with trustme

    key = form.load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    return key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())


def _write_secret(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
