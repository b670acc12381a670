"""The `security` table of a cluster."""

from mirrord.config.security import Mechanism, Protocol, Secret, Security
from mirrord.config.toml_reader import Convert, Table, boolean, choice, text

_PROTOCOL: Convert[Protocol] = choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM: Convert[Mechanism] = choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SASL_KEYS = ("mechanism", "username", "password", "token_url", "scope", "unsigned")
_BEARER_KEYS = ("token_url", "scope", "unsigned")
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
)


def token_address(found: object) -> str:
    """Check the HTTP address of a token endpoint."""
    if not isinstance(found, str) or not found.startswith(("https://", "http://")):
        raise ValueError('an address such as "https://login.example.com/oauth2/token"')
    return found


def read_security(cluster: Table) -> Security:
    """Read how to authenticate to a cluster. The default is PLAINTEXT. Records a fault for each key that has no use."""
    table = cluster.table("security")
    security = Security(
        protocol=table.optional("protocol", _PROTOCOL, "PLAINTEXT"),
        mechanism=table.optional("mechanism", _MECHANISM, None),
        username=table.optional("username", text, None),
        password=table.optional("password", Secret.parse, None, secret=True),
        ca=table.optional("ca", Secret.parse, None, secret=True),
        certificate=table.optional("certificate", Secret.parse, None, secret=True),
        key=table.optional("key", Secret.parse, None, secret=True),
        key_password=table.optional("key_password", Secret.parse, None, secret=True),
        truststore=table.optional("truststore", text, None),
        truststore_password=table.optional("truststore_password", Secret.parse, None, secret=True),
        keystore=table.optional("keystore", text, None),
        keystore_password=table.optional("keystore_password", Secret.parse, None, secret=True),
        check_hostname=table.optional("check_hostname", boolean, True),
        token_url=table.optional("token_url", token_address, None),
        scope=table.optional("scope", text, None),
        unsigned=table.optional("unsigned", boolean, False),
    )
    # The meaning of the other keys depends on the protocol. Without a valid one they cannot be checked.
    if not table.document.faulty(table.at("protocol")):
        _check_sasl(table, security)
        _check_tls(table, security)
    return security


def _check_sasl(table: Table, security: Security) -> None:
    protocol = security.protocol
    if not protocol.startswith("SASL_"):
        for key in _SASL_KEYS:
            if table.has(key):
                table.fault(key, f'has no meaning with protocol "{protocol}"; "SASL_PLAINTEXT" and "SASL_SSL" use it')
        return
    table.needs("mechanism", _MECHANISM, f'with protocol "{protocol}"')
    if security.mechanism != "OAUTHBEARER":
        table.needs("password", Secret.parse, f'with protocol "{protocol}"')
        table.needs("username", text, f'with protocol "{protocol}"')
        for key in _BEARER_KEYS:
            if table.has(key):
                table.fault(key, f'has no meaning with mechanism "{security.mechanism}"; "OAUTHBEARER" uses it')
    elif security.unsigned:
        table.needs("username", text, "with unsigned = true")
        for key in ("password", "token_url", "scope"):
            if table.has(key):
                table.fault(key, "has no meaning with unsigned = true")
    else:
        table.needs("password", Secret.parse, f'with protocol "{protocol}"')
        if table.has("token_url"):
            table.needs("username", text, "with token_url (the client's id)")
        elif table.has("scope"):
            table.fault("scope", "has no meaning without token_url")


def _check_tls(table: Table, security: Security) -> None:
    if not security.protocol.endswith("SSL"):
        for key in _TLS_KEYS:
            if table.has(key):
                table.fault(key, f'has no meaning with protocol "{security.protocol}"; "SSL" and "SASL_SSL" use it')
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if table.has(key) and not table.has(other):
            table.fault(other, f"missing; a client certificate needs both {key} and {other}")
    for store, instead in (("truststore", ("ca",)), ("keystore", ("certificate", "key"))):
        for key in instead:
            if table.has(store) and table.has(key):
                table.fault(key, f"has no meaning beside {store}, which takes its place")
        if table.has(f"{store}_password") and not table.has(store):
            table.fault(f"{store}_password", f"has no meaning without {store}")
    if table.has("keystore"):
        table.needs("keystore_password", Secret.parse, "with keystore")
    if table.has("key_password") and not table.has("key") and not table.has("keystore"):
        table.fault("key_password", "has no meaning without key")
