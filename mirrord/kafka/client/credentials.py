"""Builds the security options that aiokafka expects. Secrets are read in this module, right before they are used."""

# pyright: reportMissingTypeStubs=false

import os
import re
import ssl
import textwrap
from collections.abc import Callable
from typing import TypedDict

from aiokafka.abc import AbstractTokenProvider

from mirrord.config.security import Security
from mirrord.kafka.client.java_keystores import read_store
from mirrord.kafka.client.oauth_tokens import token_provider
from mirrord.model.errors import EnvironmentFault

_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*([A-Za-z0-9+/=\s]+?)\s*-----END \1-----")


class ClientOptions(TypedDict, total=False):
    """Keyword arguments that all client classes and connections of aiokafka accept."""

    security_protocol: str
    ssl_context: ssl.SSLContext
    sasl_mechanism: str
    sasl_plain_username: str
    sasl_plain_password: str
    sasl_oauth_token_provider: AbstractTokenProvider


def client_options(security: Security) -> ClientOptions:
    """Return the options with which aiokafka's clients and connections authenticate to the cluster.

    The options contain secrets in plain text. The caller may pass them on, but must not store or show them. Raises
    EnvironmentFault if a secret or a file cannot be read.
    """
    options = ClientOptions(security_protocol=security.protocol)
    if security.protocol.endswith("SSL"):
        options["ssl_context"] = tls_context(security)
    if security.protocol.startswith("SASL_") and security.mechanism:
        options["sasl_mechanism"] = security.mechanism
        if security.mechanism == "OAUTHBEARER":
            options["sasl_oauth_token_provider"] = token_provider(security, lambda: _token_context(security))
        elif security.password:
            options["sasl_plain_username"] = security.username or ""
            options["sasl_plain_password"] = security.password.resolve()
    return options


def tls_context(security: Security) -> ssl.SSLContext:
    """Return the TLS context for connections to a cluster.

    The context trusts the configured certificate authorities. If none are configured, it trusts the machine's
    authorities. It contains mirrord's client certificate, if one is configured. Raises EnvironmentFault if a configured
    file or value cannot be used.
    """
    context = _trusting(_authorities(security), "truststore" if security.truststore else "ca")
    if security.tls_min == "1.3":  # otherwise, the machine's lowest version is kept, which may be higher than 1.2
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if security.ciphers:
        use_for_tls("ciphers", lambda: context.set_ciphers(":".join(security.ciphers)))
    context.check_hostname = security.check_hostname
    chain = client_chain(security)
    if chain is not None:
        pem, password = chain
        what = "keystore" if security.keystore else "certificate, key and key_password"
        use_for_tls(what, lambda: load_chain(context, pem, password))
    return context


def _token_context(security: Security) -> ssl.SSLContext:
    """Return the TLS context for requests to the token endpoint. Raises EnvironmentFault."""
    return _trusting(pem_lines(security.token_ca.resolve()) if security.token_ca else None, "token_ca")


def _trusting(authorities: str | None, what: str) -> ssl.SSLContext:
    """Return a context that trusts these authorities, or those of the machine if there are none. `what` names the
    setting that contains them."""
    if authorities is None:
        return ssl.create_default_context()
    # If authorities are configured, the machine's authorities are not trusted.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    use_for_tls(what, lambda: context.load_verify_locations(cadata=authorities))
    return context


def client_chain(security: Security) -> tuple[str, str] | None:
    """Return (PEM, password). The PEM text contains mirrord's client certificate, its chain and its key. The password
    decrypts the key.

    Return None if no certificate is configured. Raises EnvironmentFault.
    """
    if security.keystore is not None:
        password = security.keystore_password.resolve() if security.keystore_password else ""
        key_password = security.key_password.resolve() if security.key_password else None
        store = read_store(security.keystore, password, key_password)
        if not store.key:
            raise EnvironmentFault(f"the key store {security.keystore} holds no private key")
        return store.chain + store.key, ""
    if security.certificate is None or security.key is None:
        return None
    password = security.key_password.resolve() if security.key_password else ""
    return f"{pem_lines(security.certificate.resolve())}\n{pem_lines(security.key.resolve())}\n", password


def pem_lines(text: str) -> str:
    """Return a PEM text with the line breaks that OpenSSL requires.

    Properties files often contain PEM as a single line, which Kafka also accepts.
    """
    if "Proc-Type" in text:  # OpenSSL's old encrypted format; its header lines must be kept
        return text
    blocks = [_block(kind, "".join(body.split())) for kind, body in _PEM.findall(text)]
    return "".join(blocks) or text


def _block(kind: str, body: str) -> str:
    return "\n".join([f"-----BEGIN {kind}-----", *textwrap.wrap(body, 64), f"-----END {kind}-----", ""])


def _authorities(security: Security) -> str | None:
    if security.truststore is not None:
        password = security.truststore_password.resolve() if security.truststore_password else None
        store = read_store(security.truststore, password)
        return store.authorities or store.chain
    return None if security.ca is None else pem_lines(security.ca.resolve())


def load_chain(context: ssl.SSLContext, pem: str, password: str) -> None:
    """Load a certificate, its chain and its key into a context. Raises SSLError."""
    # OpenSSL reads a client's certificate chain only from a file. The chain may be a secret from the environment, so
    # the file exists only in memory.
    descriptor = os.memfd_create("client-certificate")
    try:
        os.write(descriptor, pem.encode())
        # If any password is given, even an empty one, OpenSSL does not prompt for a password on the terminal.
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=password)
    finally:
        os.close(descriptor)


def use_for_tls(what: str, load: Callable[[], None]) -> None:
    """Call `load`, and raise EnvironmentFault if it fails. `what` names the setting whose value cannot be used."""
    try:
        load()
    except (ssl.SSLError, ValueError, OSError) as error:
        reason = getattr(error, "reason", None) or error
        raise EnvironmentFault(f"TLS cannot use {what}: {reason}") from None
