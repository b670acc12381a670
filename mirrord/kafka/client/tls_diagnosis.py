"""Explains why a TLS handshake failed. The explanation names the certificate, the authority or the host name that
caused the failure.

OpenSSL reports the error, but not the certificate that caused it. Therefore, after a failure, the broker's certificate
is fetched again without verification, only to describe it. Nothing else is sent over that connection.
"""

import asyncio
import ssl
from contextlib import suppress

from mirrord.config.security import Security
from mirrord.kafka.client.credentials import client_chain, tls_context
from mirrord.model.errors import EnvironmentFault

LOOK_S = 3.0
"""Time limit for fetching the certificate again, in seconds. If it cannot be fetched, only OpenSSL's reason is
reported."""
_EXPIRED, _NOT_YET = 10, 9
_OTHER_HOST, _OTHER_ADDRESS = 62, 64
# The X509_V_ERR_* codes for: no issuer found, bad signature, self-signed, self-signed in the chain, no local issuer, no
# issuer for the first certificate.
_UNTRUSTED = {2, 7, 18, 19, 20, 21}


async def tls_reason(error: ssl.SSLError, host: str, port: int, security: Security) -> str:
    """Return why the TLS handshake failed, as one phrase. This function never raises an exception."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}{await _at_fault(error, host, port, security)}"
    reason = (error.reason or str(error)).lower().replace("_", " ")
    if ("alert" in reason and "certificate" in reason) or "unknown ca" in reason:
        return f"the broker wants a client certificate that it trusts ({reason}); {_ours(security)}"
    if security.tls_min != "1.2" and "protocol" in reason:
        return f'{reason}; tls_min = "{security.tls_min}" allows no lower version of TLS'
    if security.ciphers and ("handshake failure" in reason or "cipher" in reason):
        return f"{reason}; it may support none of the cipher suites in ciphers"
    return reason


async def _at_fault(error: ssl.SSLCertVerificationError, host: str, port: int, security: Security) -> str:
    presented = await _presented(host, port)
    if presented is None:
        return ""
    with suppress(ValueError):
        facts = _Facts(presented)
        match error.verify_code:
            case code if code in {_OTHER_HOST, _OTHER_ADDRESS}:
                return f"; {facts.subject} is for {facts.names}, not for {host} (see check_hostname)"
            case code if code in {_EXPIRED, _NOT_YET}:
                return f"; {facts.subject}, or its issuer, is valid {facts.validity}"
            case code if code in _UNTRUSTED:
                return f"; {facts.subject} is issued by {facts.issuer}, which is not among {_trusted(security)}"
            case _:
                return f"; it is {facts.subject}, issued by {facts.issuer}, valid {facts.validity}"
    return ""


async def _presented(host: str, port: int) -> bytes | None:
    """Return the broker's certificate in DER, or None if it cannot be fetched."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with suppress(OSError, EOFError, TimeoutError):
        async with asyncio.timeout(LOOK_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                return writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            finally:
                writer.transport.abort()
    return None


def _trusted(security: Security) -> str:
    where = "truststore" if security.truststore else "ca" if security.ca else None
    if where is None:
        return "the authorities of this machine; specify others with ca or truststore"
    with suppress(EnvironmentFault, ValueError):
        named = [_Facts(der).subject for der in tls_context(security).get_ca_certs(binary_form=True)]
        return f"those of {where}: {', '.join(named[:3])}{', ...' if len(named) > 3 else ''}"
    return f"those of {where}"


def _ours(security: Security) -> str:
    with suppress(EnvironmentFault, ValueError):
        chain = client_chain(security)
        if chain is None:
            return "none is configured (certificate and key, or keystore)"
        facts = _Facts(ssl.PEM_cert_to_DER_cert(_first(chain[0])))
        return f"ours is {facts.subject}, issued by {facts.issuer}, valid {facts.validity}"
    return "ours cannot be read"


def _first(pem: str) -> str:
    end = "-----END CERTIFICATE-----"
    return pem[: pem.index(end) + len(end)].strip()


class _Facts:
    """The fields of a certificate that appear in error messages. The constructor raises ValueError if the certificate
    cannot be read."""

    def __init__(self, der: bytes) -> None:
        from cryptography import x509  # noqa: PLC0415 - needed only after a failure, and slow to import

        certificate = x509.load_der_x509_certificate(der)
        self.subject = f'"{certificate.subject.rfc4514_string()}"'
        self.issuer = f'"{certificate.issuer.rfc4514_string()}"'
        self.validity = f"from {certificate.not_valid_before_utc:%F %T} to {certificate.not_valid_after_utc:%F %T} UTC"
        names: list[str] = []
        with suppress(x509.ExtensionNotFound):
            extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names = [str(name) for name in extension.value.get_values_for_type(x509.DNSName)]
            names += [str(address) for address in extension.value.get_values_for_type(x509.IPAddress)]
        self.names = ", ".join(names) or "no host name"
