"""The `security` table of a cluster."""

from mirrord.model.config_reader import Convert, Table, boolean, choice, text
from mirrord.model.security import Mechanism, Protocol, Secret, Security

_PROTOCOL: Convert[Protocol] = choice("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISM: Convert[Mechanism] = choice("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


def read_security(cluster: Table) -> Security:
    """How to be let into a cluster; PLAINTEXT when the table says nothing. Notes a fault for each key without use."""
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
        check_hostname=table.optional("check_hostname", boolean, True),
    )
    # What the other keys mean depends on the protocol: without one there is nothing more to say.
    if not table.document.faulty(table.at("protocol")):
        _check_sasl(table, security)
        _check_tls(table, security)
    return security


def _check_sasl(table: Table, security: Security) -> None:
    protocol = security.protocol
    if not protocol.startswith("SASL_"):
        for key in ("mechanism", "username", "password"):
            if table.has(key):
                table.fault(key, f'has no meaning with protocol "{protocol}"; "SASL_PLAINTEXT" and "SASL_SSL" use it')
        return
    table.needs("mechanism", _MECHANISM, f'with protocol "{protocol}"')
    table.needs("password", Secret.parse, f'with protocol "{protocol}"')
    if security.mechanism != "OAUTHBEARER":
        table.needs("username", text, f'with protocol "{protocol}"')


def _check_tls(table: Table, security: Security) -> None:
    if not security.protocol.endswith("SSL"):
        for key in ("ca", "certificate", "key", "key_password", "check_hostname"):
            if table.has(key):
                table.fault(key, f'has no meaning with protocol "{security.protocol}"; "SSL" and "SASL_SSL" use it')
    for key, other in (("certificate", "key"), ("key", "certificate")):
        if table.has(key) and not table.has(other):
            table.fault(other, f"missing; a client certificate needs both {key} and {other}")
    if table.has("key_password") and not table.has("key"):
        table.fault("key_password", "has no meaning without key")
