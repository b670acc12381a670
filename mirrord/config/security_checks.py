"""Checks a cluster's `security` table: which keys require each other, and which keys contradict each other."""

from mirrord.config.key_declarations import key_of
from mirrord.config.security import Security
from mirrord.config.toml_reader import Table

_SASL_KEYS = ("mechanism", "username", "password", "token_url", "token_ca", "scope", "unsigned")
_BEARER_KEYS = ("token_url", "token_ca", "scope", "unsigned")
_TLS_KEYS = (
    "ca",
    "certificate",
    "key",
    "key_password",
    "truststore",
    "truststore_password",
    "keystore",
    "keystore_password",
    "check_hostname",
    "tls_min",
    "ciphers",
)


def check_security(table: Table, security: Security) -> None:
    """Record a fault for each missing key, and for each key that has no effect given the values of the other keys."""
    # The meaning of the other keys depends on the protocol. Without a valid protocol, they cannot be checked.
    if not table.document.faulty(table.at("protocol")):
        _check_sasl(table, security)
        _check_tls(table, security)


def _check_sasl(table: Table, security: Security) -> None:
    protocol = security.protocol
    if not protocol.startswith("SASL_"):
        for key in _SASL_KEYS:
            if table.has(key):
                table.fault(key, f'has no effect with protocol "{protocol}"; "SASL_PLAINTEXT" and "SASL_SSL" use it')
        return
    _need(table, "mechanism", f'with protocol "{protocol}"')
    if security.mechanism != "OAUTHBEARER":
        _need(table, "password", f'with protocol "{protocol}"')
        _need(table, "username", f'with protocol "{protocol}"')
        for key in _BEARER_KEYS:
            if table.has(key):
                table.fault(key, f'has no effect with mechanism "{security.mechanism}"; "OAUTHBEARER" uses it')
    else:
        _check_bearer(table, security)


def _check_bearer(table: Table, security: Security) -> None:
    if security.unsigned:
        _need(table, "username", "with unsigned = true")
        for key in ("password", "token_url", "token_ca", "scope"):
            if table.has(key):
                table.fault(key, "has no effect with unsigned = true")
    else:
        _need(table, "password", f'with protocol "{security.protocol}"')
        if table.has("token_url"):
            _need(table, "username", "with token_url (the client's id)")
        for key in ("scope", "token_ca"):
            if table.has(key) and not table.has("token_url"):
                table.fault(key, "has no effect without token_url")
        if table.has("token_ca") and not (security.token_url or "https:").startswith("https:"):
            table.fault("token_ca", "has no effect with a token_url that begins with http:")


def _check_tls(table: Table, security: Security) -> None:
    if not security.protocol.endswith("SSL"):
        for key in _TLS_KEYS:
            if table.has(key):
                table.fault(key, f'has no effect with protocol "{security.protocol}"; "SSL" and "SASL_SSL" use it')
    elif table.has("ciphers") and security.tls_min == "1.3":
        table.fault("ciphers", 'has no effect with tls_min = "1.3"; it is about TLS 1.2')
    _check_certificates(table)


def _check_certificates(table: Table) -> None:
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if table.has(key) and not table.has(other):
            table.fault(other, f"missing; a client certificate needs both {key} and {other}")
    for store, instead in (("truststore", ("ca",)), ("keystore", ("certificate", "key"))):
        for key in instead:
            if table.has(store) and table.has(key):
                table.fault(key, f"has no effect with {store}, which replaces it")
        if table.has(f"{store}_password") and not table.has(store):
            table.fault(f"{store}_password", f"has no effect without {store}")
    if table.has("keystore"):
        _need(table, "keystore_password", "with keystore")
    if table.has("key_password") and not table.has("key") and not table.has("keystore"):
        table.fault("key_password", "has no effect without key")


def _need(table: Table, name: str, reason: str) -> None:
    """Record a fault if the key is absent. `reason` says why the key is needed."""
    table.needs(name, key_of(Security, name).key.kind.read, reason)
