"""Settings that are allowed, but with which an attacker on the network could read or alter what mirrord sends.

`mirrord check` and `mirrord start` report them as warnings.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from mirrord.config.http import HttpConfig
from mirrord.config.policy_checks import policy_settings
from mirrord.config.schema import Config
from mirrord.config.security import Security, names_secret
from mirrord.model.findings import Finding
from mirrord.model.names import Alias


def weak_settings(config: Config) -> list[Finding]:
    """Return a warning for each weak setting of the file, and of each cluster that a flow uses."""
    used = dict.fromkeys(alias for flow in config.flows for alias in (flow.source, flow.target))
    found = [finding for alias in used for finding in _of_cluster(alias, config.clusters[alias].security)]
    return [*found, *_of_http(config.http), *_plain_secrets(config)]


def weak_lines(config: Config) -> list[str]:
    """Return the same warnings as lines for operators."""
    return [f"{each.where}: {each.what}; {each.do}" for each in weak_settings(config)]


def _of_cluster(alias: Alias, security: Security) -> Iterator[Finding]:
    where = f"clusters.{alias}.security"
    if security.protocol == "SASL_PLAINTEXT" and security.mechanism == "PLAIN":
        what = "PLAIN over SASL_PLAINTEXT sends the password unencrypted"
        yield _warning(where, what, 'set protocol = "SASL_SSL", or use SCRAM')
    if security.protocol == "SASL_PLAINTEXT" and security.mechanism == "OAUTHBEARER" and not security.unsigned:
        what = "OAUTHBEARER over SASL_PLAINTEXT sends the token unencrypted"
        yield _warning(where, what, 'set protocol = "SASL_SSL"')
    if security.token_url is not None and _is_clear(security.token_url):
        yield _warning(where, "token_url sends the client secret unencrypted", "use an https:// address")
    if not security.check_hostname:
        what = "with check_hostname = false, each host with a certificate of a trusted authority can pose as a broker"
        yield _warning(where, what, "issue certificates for the names of the brokers, and remove the setting")
    if security.unsigned:
        what = "with unsigned = true, each client can claim to be this principal"
        yield _warning(where, what, "use signed tokens, except in tests")


def _of_http(http: HttpConfig) -> Iterator[Finding]:
    listen = http.listen
    if listen is not None and http.tls.certificate is None and not is_loopback(listen.host):
        what = f"the HTTP server listens on {listen} without TLS, so others on the network can read its answers"
        yield _warning("http.listen", what, "set [http.tls], or listen on 127.0.0.1")


def _plain_secrets(config: Config) -> Iterator[Finding]:
    """Yield a warning for each setting of Spark or of a policy that is probably a secret, but is not a reference."""
    tables: list[tuple[str, Mapping[str, object]]] = [
        *((name, getattr(config, name).spark) for name in ("audit", "compact")),
        *((f"flow {flow.name}: {key}", settings) for flow in config.flows for key, settings in policy_settings(flow)),
    ]
    for where, table in tables:
        for key, value in table.items():
            if isinstance(value, str) and names_secret(key):
                what = f"{key} is probably a secret, and the file contains it in plain text"
                yield _warning(where, what, 'write { secret = "env:NAME" } or { secret = "file:PATH" } instead of it')


def _is_clear(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme == "http" and not is_loopback(parts.hostname or "")


def is_loopback(host: str) -> bool:
    """Return whether only clients on the same machine can reach this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _warning(where: str, what: str, do: str) -> Finding:
    return Finding(severity="warning", where=where, what=what, do=do)
