"""How mirrord is let into a cluster. Secrets are references that only the process which connects resolves."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from mirrord.model.errors import EnvironmentFault

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]

REFERENCE_RULE = 'a reference: "env:NAME" (an environment variable) or "file:PATH"'


class Secret(msgspec.Struct, frozen=True):
    """A reference to a secret, never the secret itself. It prints as `***`."""

    reference: str

    @staticmethod
    def parse(found: object) -> "Secret":
        """The secret behind `env:NAME` or `file:PATH`. Raises ValueError for anything else: a secret in plain text."""
        kind, _, name = found.partition(":") if isinstance(found, str) else ("", "", "")
        if kind not in {"env", "file"} or not name:
            raise ValueError(REFERENCE_RULE)
        return Secret(f"{kind}:{name}")

    def resolve(self) -> str:
        """The secret's text, without the line end of a file. Raises EnvironmentFault when it is not there."""
        kind, _, name = self.reference.partition(":")
        if kind == "env":
            value = os.environ.get(name)
            if not value:
                raise EnvironmentFault(f"the environment variable {name} is not set, or empty")
            return value
        try:
            return Path(name).read_text(encoding="utf-8").rstrip("\r\n")
        except OSError as error:
            raise EnvironmentFault(f"the file {name} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise EnvironmentFault(f"the file {name} is not a UTF-8 text") from None

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__


class Security(msgspec.Struct, frozen=True):
    """Protocol and credentials of one cluster; `ca`, `certificate` and `key` are PEM.

    With OAUTHBEARER, `password` is the token; it is resolved anew for every connection, so a file may be replaced.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str | None = None
    password: Secret | None = None
    ca: Secret | None = None
    certificate: Secret | None = None
    key: Secret | None = None
    key_password: Secret | None = None
    check_hostname: bool = True
