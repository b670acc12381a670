"""Declares how mirrord authenticates to a cluster. A configuration contains references to secrets, not the secrets
themselves. A reference is resolved only in the process that connects to the cluster."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

import msgspec

from mirrord.config.jaas import parse_jaas
from mirrord.config.key_declarations import Key
from mirrord.config.property_providers import read_bytes, read_property
from mirrord.config.toml_format import format_text
from mirrord.config.value_kinds import BOOLEAN, TEXT, ListKind, ValueKind, one_of
from mirrord.model.errors import EnvironmentFault
from mirrord.model.known_secrets import remember

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
S = TypeVar("S")
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
TlsVersion = Literal["1.2", "1.3"]
Cipher = Literal[
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "ECDHE-ECDSA-CHACHA20-POLY1305",
    "ECDHE-RSA-CHACHA20-POLY1305",
    "DHE-RSA-AES256-GCM-SHA384",
    "DHE-RSA-AES128-GCM-SHA256",
]
"""A cipher suite for TLS 1.2 under its name in OpenSSL. All of these have forward secrecy and authenticated
encryption."""

REFERENCE_RULE = (
    'a reference: "env:NAME" (an environment variable), "file:PATH", or "properties:PATH#KEY" (a key of a properties '
    "file; #OPTION after it selects one option of a sasl.jaas.config)"
)

_SECRET_NAME = re.compile(
    r"password|passwd|token|secret|credential|private_key|jaas|^sasl|access[._-]?key|account[._-]?key", re.IGNORECASE
)


_STORES = ("truststore", "keystore")


def names_secret(key: str) -> bool:
    """Return whether the name of a key suggests that its value is a secret."""
    return _SECRET_NAME.search(key) is not None


class Secret(msgspec.Struct, frozen=True):
    """A reference to a secret. It never contains the secret, and it prints as `***`."""

    reference: str

    @staticmethod
    def of_table(found: object) -> "Secret | None":
        """Return the reference in a table of the form `{ secret = "env:NAME" }`, which is allowed instead of a string
        in a table of settings. Return None for any other value.

        Raises ValueError if the table has this form, but contains no reference.
        """
        table = cast(dict[str, object], found) if isinstance(found, dict) else {}
        return Secret.parse(table["secret"]) if list(table) == ["secret"] else None

    @staticmethod
    def parse(found: object) -> "Secret":
        """Parse a string that contains a reference: `env:NAME`, `file:PATH`, `properties:PATH#KEY` or
        `properties:PATH#KEY#OPTION`.

        Raises ValueError for any other value, because it may be a secret in plain text.
        """
        kind, _, name = found.partition(":") if isinstance(found, str) else ("", "", "")
        parts = name.split("#")
        whole = len(parts) in {2, 3} and all(parts) if kind == "properties" else bool(name)
        if kind not in {"env", "file", "properties"} or not whole:
            raise ValueError(REFERENCE_RULE)
        return Secret(f"{kind}:{name}")

    def below(self, folder: Path) -> "Secret":
        """Return a reference to the same secret. If the reference contains a relative path, the path is resolved
        against this folder."""
        kind, _, name = self.reference.partition(":")
        return self if kind == "env" else Secret(f"{kind}:{folder / name}")

    def resolve(self) -> str:
        """Return the secret. If it is in a file, line breaks at the end of the file are removed. From now on,
        this process masks the secret in everything that it writes.

        Raises EnvironmentFault if the secret is missing or blank, or is not text.
        """
        kind, _, name = self.reference.partition(":")
        match kind:
            case "env":
                text = _variable(name)
            case "properties":
                text = _property(*name.split("#"))
            case _:
                text = _file(name)
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            raise EnvironmentFault(f"the secret {self.reference} is not UTF-8 text")
        if not any(letter.isprintable() and not letter.isspace() for letter in text):
            # The secret may be in a file that is still being written, or that holds only a byte order mark. It may also
            # be an empty value in a properties file. An empty token would grant access to every client.
            raise EnvironmentFault(f"the secret {self.reference} is empty")
        remember(text)
        return text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def resolved_settings(settings: Mapping[str, S | Secret]) -> dict[str, S | str]:
    """Return a table of settings with each reference to a secret replaced by the secret. Raises EnvironmentFault."""
    return {name: value.resolve() if isinstance(value, Secret) else value for name, value in settings.items()}


def settings_below(settings: Mapping[str, S | Secret], folder: Path) -> dict[str, S | Secret]:
    """Return a table of settings, with relative paths of secrets resolved against this folder."""
    return {name: value.below(folder) if isinstance(value, Secret) else value for name, value in settings.items()}


def _variable(name: str) -> str:
    if name not in os.environ:
        raise EnvironmentFault(f"the environment variable {name} is not set")
    return os.environ[name]


def _file(name: str) -> str:
    try:
        return read_bytes(name).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise EnvironmentFault(f"the file {name} is not UTF-8 text") from None


def _property(path: str, key: str, option: str | None = None) -> str:
    value = read_property(path, key).strip()  # Kafka also strips the value of every setting
    if option is None:
        return value
    try:
        options = parse_jaas(value).options
    except ValueError as rule:
        raise EnvironmentFault(f"{key} in the file {path} is not a sasl.jaas.config; allowed: {rule}") from None
    if option not in options:
        raise EnvironmentFault(f"{key} in the file {path} has no option {option}")
    return options[option]


def token_address(found: object) -> str:
    """Return the address of a token endpoint if it is an HTTP or HTTPS address without a user name and password.
    Otherwise, raise ValueError."""
    scheme, _, rest = found.partition("://") if isinstance(found, str) else ("", "", "")
    if not isinstance(found, str) or scheme not in {"https", "http"} or "@" in rest.partition("/")[0]:
        raise ValueError('an address such as "https://login.example.com/token", without a user name and password')
    return found


def _reference(secret: Secret) -> str:
    return format_text(secret.reference)


SECRET = ValueKind(
    Secret.parse,
    "a reference: `env:NAME`, `file:PATH` or `properties:PATH#KEY`",
    _reference,
    secret=True,
)
_CIPHER = one_of(Cipher)
_CIPHERS = ListKind(_CIPHER.read, f"a list of {_CIPHER.allowed}", format_text)
_TOKEN_ADDRESS = ValueKind(token_address, "an HTTP or HTTPS address", secret=True)


class Security(msgspec.Struct, frozen=True):
    """How mirrord authenticates to the cluster. Certificates and keys are in PEM format, except those in a
    `truststore` or `keystore`."""

    protocol: Annotated[
        Protocol,
        Key(
            one_of(Protocol),
            "Kafka's `security.protocol`: whether TLS encrypts the connection, and whether SASL is used.",
        ),
    ] = "PLAINTEXT"
    mechanism: Annotated[
        Mechanism | None,
        Key(
            one_of(Mechanism),
            'SASL mechanism. Required if `protocol` is `"SASL_PLAINTEXT"` or `"SASL_SSL"`.',
            unset="none",
        ),
    ] = None
    username: Annotated[
        str | None,
        Key(
            TEXT,
            "User name for PLAIN and SCRAM. With `token_url`, the client id for OAuth. With `unsigned`, the name that "
            "the unsigned token contains.",
            unset="none",
        ),
    ] = None
    password: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Password for PLAIN and SCRAM. With OAUTHBEARER, the token, or the client secret if `token_url` is set. "
            "The reference is resolved again for every connection, so the file that it names may be replaced.",
            unset="none",
        ),
    ] = None
    ca: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Certificates of the certificate authorities to trust.",
            unset="the authorities that the system trusts",
        ),
    ] = None
    certificate: Annotated[Secret | None, Key(SECRET, "Client certificate. Requires `key`.", unset="none")] = None
    key: Annotated[Secret | None, Key(SECRET, "Private key for the certificate in `certificate`.", unset="none")] = None
    key_password: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Password of `key`, or of the key in `keystore`.",
            unset="none; for `keystore`, the store's password",
        ),
    ] = None
    truststore: Annotated[
        str | None,
        Key(
            TEXT,
            "Path of a JKS or PKCS12 store with the certificate authorities to trust, instead of `ca`.",
            unset="none",
        ),
    ] = None
    truststore_password: Annotated[Secret | None, Key(SECRET, "Password of `truststore`.", unset="none")] = None
    keystore: Annotated[
        str | None,
        Key(
            TEXT,
            "Path of a JKS or PKCS12 store with the client's certificate and key, instead of `certificate` and `key`.",
            unset="none",
        ),
    ] = None
    keystore_password: Annotated[
        Secret | None, Key(SECRET, "Password of `keystore`. Required with `keystore`.", unset="none")
    ] = None
    check_hostname: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether the broker's certificate must have been issued for the host name to which mirrord connects.",
        ),
    ] = True
    tls_min: Annotated[
        TlsVersion,
        Key(one_of(TlsVersion), "Lowest version of TLS. A broker that supports only lower versions is refused."),
    ] = "1.2"
    ciphers: Annotated[
        tuple[Cipher, ...],
        Key(
            _CIPHERS,
            "Cipher suites that are allowed with TLS 1.2, with the names of OpenSSL. They do not limit TLS 1.3, which "
            "has cipher suites of its own.",
            unset="those that Python allows",
        ),
    ] = ()
    token_url: Annotated[
        str | None,
        Key(
            _TOKEN_ADDRESS,
            "Address of the endpoint that issues tokens for `username` and `password` (OAuth's client credentials).",
            unset="`password` is the token",
        ),
    ] = None
    token_ca: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Certificates of the certificate authorities to trust for `token_url`, if it is an HTTPS address. `ca` has "
            "no effect on it.",
            unset="the authorities that the system trusts",
        ),
    ] = None
    scope: Annotated[str | None, Key(TEXT, "Scope of the tokens that `token_url` issues.", unset="none")] = None
    unsigned: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Whether to send `username` in an unsigned token. Only brokers that are configured to accept unsigned "
            "tokens support this.",
        ),
    ] = False

    def below(self, folder: Path) -> "Security":
        """Return the same settings, with relative paths resolved against this folder."""
        changes: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Secret):
                changes[name] = value.below(folder)
            elif name in _STORES and value:
                changes[name] = str(folder / value)
        return msgspec.structs.replace(self, **changes)
