"""Declares the keys of `[http]`: where a daemon's HTTP server listens, and who may use it."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from mirrord.config.key_declarations import Key, keys_of
from mirrord.config.security import SECRET, Secret
from mirrord.config.toml_reader import Table
from mirrord.config.value_kinds import ADDRESS, ListKind, ValueKind, one_of
from mirrord.config.value_parsers import HostPort

DEFAULT_PORT = 8182
"""The default port of the daemon's HTTP API. If it is taken, the daemon uses the next free port."""
Role = Literal["view", "operate", "configure"]
ROLES: tuple[Role, ...] = get_args(Role)
"""What a token permits. Each role includes the ones before it.

- "view": to read status, metrics, groups and translated offsets.
- "operate": to pause, resume, move, drain and seek, and to decide on quarantined records.
- "configure": to apply the daemon's file, to stop the daemon, and to replace it.
"""
OLD_TOKEN = "token"  # noqa: S105 - a name
"""The name of the token in `[http] token`."""
RESERVED_NAMES = (OLD_TOKEN, "local")
LEAST_TOKEN = 16
"""Least number of characters of a token."""
_TOKEN_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SERVER_NAME = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:\d{1,5})?", re.ASCII)


def _name_of_token(found: object) -> str:
    if not isinstance(found, str) or not _TOKEN_NAME.fullmatch(found) or found in RESERVED_NAMES:
        reserved = " and ".join(f'"{name}"' for name in RESERVED_NAMES)
        raise ValueError(f'up to 64 letters, digits, "_" and "-", except {reserved}')
    return found


def _server_name(found: object) -> str:
    if not isinstance(found, str) or not _SERVER_NAME.fullmatch(found):
        raise ValueError('a host name, with or without a port, such as "mirror.example.com" or "mirror:443"')
    return found


class HttpToken(msgspec.Struct, frozen=True):
    """A token that clients may use, under a name that appears in the records of their commands."""

    name: Annotated[str, Key(ValueKind(_name_of_token, "a name"), "Name of the client.")]
    role: Annotated[Role, Key(one_of(Role), "What the client may do.")]
    token: Annotated[Secret, Key(SECRET, "The token.")]


class _TokensKind(ValueKind, frozen=True):
    """The kind of `tokens`: an array of tables."""

    def take(self, table: Table, name: str, default: Any) -> object:  # noqa: ARG002 - an absent array is empty
        """Return the tokens. Record a fault for each invalid table, and for each name that occurs twice."""
        found: list[HttpToken] = []
        for each in table.tables(name, secret=True):
            given: dict[str, Any] = {
                field: key.kind.take(each, key_name, other) for field, key_name, key, other in keys_of(HttpToken)
            }
            token = HttpToken(**given)
            if token.name and any(former.name == token.name for former in found):
                each.fault("name", f'two tokens are named "{token.name}"; give one of them a different name')
            found.append(token)
        return tuple(found)

    def toml(self, value: Any) -> str:
        """Return the tokens as an array of inline tables."""
        return f"[{', '.join(map(_inline, value))}]"


def _inline(token: HttpToken) -> str:
    pairs = [f"{name} = {key.kind.toml(getattr(token, field))}" for field, name, key, _ in keys_of(HttpToken)]
    return f"{{ {', '.join(pairs)} }}"


_TOKENS = _TokensKind(
    lambda found: found,
    "tables `[[http.tokens]]` with the keys `name`, `role` (`view`, `operate` or `configure`) and `token` (a secret)",
)


class HttpTls(msgspec.Struct, frozen=True):
    """TLS for the daemon's HTTP server. All files are in PEM format."""

    certificate: Annotated[
        Secret | None,
        Key(SECRET, "Certificate of the server, and its chain. With it, the server accepts only TLS.", unset="no TLS"),
    ] = None
    key: Annotated[Secret | None, Key(SECRET, "Private key of the certificate.", unset="none")] = None
    key_password: Annotated[Secret | None, Key(SECRET, "Password of `key`.", unset="none")] = None
    client_ca: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Authorities that issue certificates for clients. With it, each client needs such a certificate, in "
            "addition to a token. The `mirrord` command shows `certificate`.",
            unset="clients need no certificate",
        ),
    ] = None
    ca: Annotated[
        Secret | None,
        Key(
            SECRET,
            "Authorities that commands and standbys trust when they connect to a daemon.",
            unset="the authorities that the system trusts",
        ),
    ] = None

    @property
    def is_used(self) -> bool:
        """Whether daemons with this configuration have TLS."""
        return self.certificate is not None or self.ca is not None

    def below(self, folder: Path) -> "HttpTls":
        """Return the same settings, with relative paths resolved against this folder."""
        found = {name: getattr(self, name) for name in self.__struct_fields__}
        return HttpTls(**{name: secret.below(folder) if secret else None for name, secret in found.items()})


class HttpConfig(msgspec.Struct, frozen=True):
    """The daemon's HTTP server, and who may use it: see [Secure mirrord](../how-to/secure.md#http)."""

    listen: Annotated[
        HostPort | None,
        Key(ADDRESS, "Address that the server listens on.", unset=f"`127.0.0.1:{DEFAULT_PORT}`, or the next free port"),
    ] = None
    advertised: Annotated[
        HostPort | None,
        Key(
            ADDRESS,
            "Address at which other machines reach the server.",
            unset="`listen`, or the name of this machine if the server listens on all addresses",
        ),
    ] = None
    names: Annotated[
        tuple[str, ...],
        Key(
            ListKind(_server_name, "a list of host names, with or without ports"),
            "Further names under which clients reach the server, for example that of a proxy. Requests to any other "
            "name are refused.",
        ),
    ] = ()
    token: Annotated[
        Secret | None,
        Key(
            SECRET,
            "A token with all roles, of at least 16 characters. A client that proves that it knows the token may give "
            "commands from any machine.",
            unset="none",
        ),
    ] = None
    tokens: Annotated[
        tuple[HttpToken, ...],
        Key(
            _TOKENS,
            "Tokens with names and roles. The files are read again when they change. Each role includes the ones "
            "before it. `view`: read the status. `operate`: give commands such as `pause` and `seek`. `configure`: "
            "`apply`, `stop` and `start --upgrade`.",
        ),
    ] = ()

    tls: HttpTls = HttpTls()

    def below(self, folder: Path) -> "HttpConfig":
        """Return the same settings, with relative paths resolved against this folder."""
        tokens = tuple(msgspec.structs.replace(each, token=each.token.below(folder)) for each in self.tokens)
        token = self.token.below(folder) if self.token else None
        return msgspec.structs.replace(self, token=token, tokens=tokens, tls=self.tls.below(folder))
