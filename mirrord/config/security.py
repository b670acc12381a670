"""How mirrord authenticates to a cluster. Secrets are references that only the connecting process resolves."""

import os
import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from mirrord.config.jaas import parse_jaas
from mirrord.config.property_providers import read_property
from mirrord.model.errors import EnvironmentFault

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

REFERENCE_RULE = (
    'a reference: "env:NAME" (an environment variable), "file:PATH", or "properties:PATH#KEY" (a key of a properties '
    "file; #OPTION behind it takes one option of a sasl.jaas.config)"
)

_SECRET_NAME = re.compile(
    r"password|passwd|token|secret|credential|private_key|jaas|^sasl|access[._-]?key|account[._-]?key", re.IGNORECASE
)


_STORES = ("truststore", "keystore")


def names_secret(key: str) -> bool:
    """Whether a value under this key may be a secret, judged by the key's name alone."""
    return _SECRET_NAME.search(key) is not None


class Secret(msgspec.Struct, frozen=True):
    """A reference to a secret, never the secret itself. It prints as `***`."""

    reference: str

    @staticmethod
    def parse(found: object) -> "Secret":
        """Parse `env:NAME`, `file:PATH` or `properties:PATH#KEY`, optionally with `#OPTION`.

        Raises ValueError for anything else, because it would be a secret in plain text.
        """
        kind, _, name = found.partition(":") if isinstance(found, str) else ("", "", "")
        parts = name.split("#")
        whole = len(parts) in {2, 3} and all(parts) if kind == "properties" else bool(name)
        if kind not in {"env", "file", "properties"} or not whole:
            raise ValueError(REFERENCE_RULE)
        return Secret(f"{kind}:{name}")

    def below(self, folder: Path) -> "Secret":
        """Return the same reference, with a relative path resolved against this folder."""
        kind, _, name = self.reference.partition(":")
        return self if kind == "env" else Secret(f"{kind}:{folder / name}")

    def resolve(self) -> str:
        """Return the secret's text, without the line end of a file.

        Raises EnvironmentFault if it is missing or blank.
        """
        kind, _, name = self.reference.partition(":")
        match kind:
            case "env":
                text = _variable(name)
            case "properties":
                text = _property(*name.split("#"))
            case _:
                text = _file(name)
        if not any(letter.isprintable() and not letter.isspace() for letter in text):
            # This can be a file that is being written or holds only a byte order mark, or a secret with an empty key.
            # As a token it would grant access to every client.
            raise EnvironmentFault(f"the secret {self.reference} is empty")
        return text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


def _variable(name: str) -> str:
    if name not in os.environ:
        raise EnvironmentFault(f"the environment variable {name} is not set")
    return os.environ[name]


def _file(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise EnvironmentFault(f"the file {name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EnvironmentFault(f"the file {name} is not a UTF-8 text") from None


def _property(path: str, key: str, option: str | None = None) -> str:
    value = read_property(path, key).strip()  # as Kafka does with every setting
    if option is None:
        return value
    try:
        options = parse_jaas(value).options
    except ValueError as rule:
        raise EnvironmentFault(f"{key} in the file {path} is not a sasl.jaas.config; allowed: {rule}") from None
    if option not in options:
        raise EnvironmentFault(f"{key} in the file {path} holds no option {option}")
    return options[option]


class Security(msgspec.Struct, frozen=True):
    """Protocol and credentials of one cluster. `ca`, `certificate` and `key` are PEM.

    With OAUTHBEARER, `password` is the token. It is resolved again for every connection, so a file may be replaced.
    With `token_url` it is the client's secret and `username` is the client's id, for which that address issues tokens
    (OAuth's client credentials). With `unsigned`, brokers that are configured for it accept `username` without any
    proof.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: Secret | None = None
    ca: Secret | None = None
    certificate: Secret | None = None
    key: Secret | None = None
    key_password: Secret | None = None
    """Password of `key`, or of the key in `keystore` if it differs from the store's password."""
    truststore: str | None = None
    """Path of a JKS or PKCS12 store with the certificate authorities, instead of `ca`."""
    truststore_password: Secret | None = None
    keystore: str | None = None
    """Path of a JKS or PKCS12 store with the client's certificate and key, instead of `certificate` and `key`."""
    keystore_password: Secret | None = None
    check_hostname: bool = True
    token_url: str | None = None
    scope: str | None = None
    unsigned: bool = False

    def below(self, folder: Path) -> "Security":
        """Return the same settings with relative paths resolved against this folder."""
        changes: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, Secret):
                changes[name] = value.below(folder)
            elif name in _STORES and value:
                changes[name] = str(folder / value)
        return msgspec.structs.replace(self, **changes)
