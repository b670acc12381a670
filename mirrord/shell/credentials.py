"""Security settings as the client library wants them. Secrets are read here, right before they are used."""

# pyright: reportMissingTypeStubs=false

import os
import ssl
from collections.abc import Callable
from typing import TypedDict

from aiokafka.abc import AbstractTokenProvider

from mirrord.model.errors import EnvironmentFault
from mirrord.model.security import Secret, Security


class ClientOptions(TypedDict, total=False):
    """Keyword arguments that every client class of aiokafka takes, and its connections."""

    security_protocol: str
    ssl_context: ssl.SSLContext
    sasl_mechanism: str
    sasl_plain_username: str
    sasl_plain_password: str
    sasl_oauth_token_provider: AbstractTokenProvider


def client_options(security: Security) -> ClientOptions:
    """What lets an aiokafka client, producer, consumer, admin client or connection into the cluster.

    Holds secrets in plain text: it is for passing on, not for keeping or showing. Raises EnvironmentFault.
    """
    options = ClientOptions(security_protocol=security.protocol)
    if security.protocol.endswith("SSL"):
        options["ssl_context"] = tls_context(security)
    if security.protocol.startswith("SASL_") and security.mechanism and security.password:
        options["sasl_mechanism"] = security.mechanism
        if security.mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = _Token(security.password)
        else:
            options["sasl_plain_username"] = security.username or ""
            options["sasl_plain_password"] = security.password.resolve()
    return options


class _Token(AbstractTokenProvider):
    """The token that the reference holds when a connection is opened (KIP-255)."""

    def __init__(self, reference: Secret) -> None:
        self._reference = reference

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - the base has no body
        return self._reference.resolve()


def tls_context(security: Security) -> ssl.SSLContext:
    """Trust in the CA of the settings, or in the machine's. Raises EnvironmentFault when PEM or password do not fit."""
    context = ssl.create_default_context()
    if security.ca is not None:
        authorities = security.ca.resolve()
        # A CA of one's own means that one alone.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _use("ca", lambda: context.load_verify_locations(cadata=authorities))
    context.check_hostname = security.check_hostname
    if security.certificate is not None and security.key is not None:
        password = security.key_password.resolve() if security.key_password else ""
        pem = f"{security.certificate.resolve()}\n{security.key.resolve()}\n"
        _use("certificate, key and key_password", lambda: _load_chain(context, pem, password))
    return context


def _load_chain(context: ssl.SSLContext, pem: str, password: str) -> None:
    # OpenSSL reads a client's chain from files only, and what may come from the environment shall not touch a disk.
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, pem.encode())
        # With a password given, even an empty one, OpenSSL never asks at the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
    finally:
        os.close(descriptor)


def _use(what: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise EnvironmentFault(f"TLS cannot use {what}: {reason}") from None
