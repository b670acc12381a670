"""TLS for the HTTP API: the daemon's certificate, and which certificates the clients and the daemon trust."""

import ssl

import structlog

from mirrord.config.http import HttpTls
from mirrord.kafka.client.credentials import load_chain, pem_lines, use_for_tls
from mirrord.model.errors import ConfigError, EnvironmentFault

log = structlog.get_logger()


class ServerTls:
    """The TLS context of a server. If its certificate, or the authorities of its clients, are replaced, this applies to
    the next connection."""

    def __init__(self, tls: HttpTls) -> None:
        """Read the certificate. Raises EnvironmentFault if it cannot be used."""
        self._tls = tls
        self._read = _files(tls)
        self._fault = ""
        self._current = _server_context(tls)
        self.context = self._current
        """The context with which the server listens."""
        # OpenSSL calls this at the beginning of each connection.
        self.context.sni_callback = self._renew

    def _renew(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:  # noqa: ARG002
        try:
            if (found := _files(self._tls)) != self._read:
                self._current = _server_context(self._tls)
                self._read = found
                log.info("http_certificate_renewed")
            self._fault = ""
        except (EnvironmentFault, ConfigError) as fault:
            # The file may just be written. The former certificate is used in the meantime.
            if self._fault != (line := str(fault)):
                log.warning("http_certificate_unusable", reason=line)
            self._fault = line
        connection.context = self._current


def client_context(tls: HttpTls) -> ssl.SSLContext:
    """Return the context with which commands and standbys connect to a daemon. If the configuration names authorities,
    only those are trusted. Raises EnvironmentFault if a file cannot be used."""
    if tls.ca is None:
        context = ssl.create_default_context()
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        authorities = pem_lines(tls.ca.resolve())
        use_for_tls("http.tls.ca", lambda: context.load_verify_locations(cadata=authorities))
    if tls.certificate is not None and tls.client_ca is not None:
        _load(context, tls)
    return context


def _server_context(tls: HttpTls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, tls)
    if tls.client_ca is not None:
        authorities = pem_lines(tls.client_ca.resolve())
        use_for_tls("http.tls.client_ca", lambda: context.load_verify_locations(cadata=authorities))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load(context: ssl.SSLContext, tls: HttpTls) -> None:
    pem, password = _chain(tls)
    use_for_tls("http.tls.certificate, key and key_password", lambda: load_chain(context, pem, password))


def _files(tls: HttpTls) -> tuple[str, str, str]:
    """Return what `_chain` returns, and the authorities whose clients are accepted as PEM."""
    return *_chain(tls), pem_lines(tls.client_ca.resolve()) if tls.client_ca is not None else ""


def _chain(tls: HttpTls) -> tuple[str, str]:
    """Return the certificate with its key as PEM, and the password of the key."""
    if tls.certificate is None or tls.key is None:
        raise EnvironmentFault("http.tls needs certificate and key")
    password = tls.key_password.resolve() if tls.key_password else ""
    return f"{pem_lines(tls.certificate.resolve())}\n{pem_lines(tls.key.resolve())}\n", password
