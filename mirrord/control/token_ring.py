"""The tokens that a daemon accepts, and the roles that they give.

Tokens are read again for each request, so a token whose file or variable has changed applies at once.
"""

import hmac
from collections import Counter
from collections.abc import Iterator

import msgspec
import structlog

from mirrord.config.http import LEAST_TOKEN, OLD_TOKEN, ROLES, HttpConfig, Role
from mirrord.config.security import Secret
from mirrord.control.command_proof import CommandProof, RequestLine
from mirrord.control.local_token import LOCAL, LocalToken
from mirrord.model.errors import ConfigError, EnvironmentFault

log = structlog.get_logger()


class Caller(msgspec.Struct, frozen=True):
    """A client that has proved that it knows a token."""

    name: str
    """The name of the token."""
    role: Role

    def may(self, role: Role) -> bool:
        """Return whether the caller may do what needs this role. Each role includes the ones before it."""
        return ROLES.index(self.role) >= ROLES.index(role)


def token_faults(http: HttpConfig) -> Iterator[str]:
    """Yield a line for each token of the configuration that cannot be used. An empty token would admit every client,
    and a short one can be guessed. If two tokens were equal, the records of commands could name the wrong client, and
    a client with one role could use the other one."""
    keys: dict[str, str] = {}
    for key, _, _, secret in _configured(http):
        try:
            token = usable_token(secret)
        except (EnvironmentFault, ConfigError) as fault:
            yield f"{key}: {fault}"
            continue
        if token in keys:
            yield f"{key}: this token equals {keys[token]}; each client needs its own token"
        keys.setdefault(token, key)


def usable_token(secret: Secret) -> str:
    """Return the token to which a reference leads. Raises EnvironmentFault or ConfigError if it is missing, empty or
    too short."""
    token = secret.resolve()
    if len(token) < LEAST_TOKEN:
        raise EnvironmentFault(
            f"the token {secret.reference} has fewer than {LEAST_TOKEN} characters; for example, "
            "`openssl rand -hex 32` makes a token"
        )
    return token


def named_tokens(http: HttpConfig) -> Iterator[tuple[str, Role, Secret]]:
    """Yield the name, the role and the reference of each token of the configuration."""
    for _, name, role, secret in _configured(http):
        yield name, role, secret


class TokenRing:
    """The tokens of one daemon."""

    def __init__(self, http: HttpConfig, local: LocalToken | None) -> None:
        """`local` is the token for commands from this machine; None if it could not be written."""
        self._http = http
        self._local = local
        self._reported: dict[str, str] = {}
        """By the name of the token, why it cannot be used, as in the log."""

    @property
    def key_id(self) -> str:
        """The id of the token for commands from this machine; empty if there is none."""
        return self._local.key_id if self._local is not None else ""

    def caller_of_proof(self, proof: CommandProof, line: RequestLine) -> Caller | None:
        """Return who made this proof for this request, or None if it proves nothing."""
        found = None
        for caller, token in self._tokens():
            if caller.name == proof.name and proof.is_of(token, line):
                found = caller
        return found

    def caller_of_token(self, token: str, name: str | None) -> Caller | None:
        """Return whose token this is, or None if it is not known. `name` is the name that the client gives; None if it
        gives none. The token for commands from this machine is never sent, so it is not accepted here."""
        found = None
        for caller, known in self._tokens():
            is_same = hmac.compare_digest(token.encode(errors="replace"), known.encode())
            if is_same and caller.name != LOCAL and name in {None, caller.name}:
                found = caller
        return found

    def _tokens(self) -> Iterator[tuple[Caller, str]]:
        if self._local is not None:
            yield Caller(LOCAL, "configure"), self._local.token
        found: dict[Caller, str] = {}
        unusable: dict[str, str] = {}
        for name, role, secret in named_tokens(self._http):
            try:
                found[Caller(name, role)] = usable_token(secret)
            except (EnvironmentFault, ConfigError) as fault:
                unusable[name] = str(fault)
        uses = Counter(found.values())
        for caller, token in found.items():
            if uses[token] > 1:
                unusable[caller.name] = "another token is equal; each client needs its own token"
            else:
                yield caller, token
        self._report(unusable)

    def _report(self, unusable: dict[str, str]) -> None:
        """Write each reason to the log once, because any client can cause tokens to be read."""
        for name, reason in unusable.items():
            if self._reported.get(name) != reason:
                log.warning("token_unusable", name=name, reason=reason)
        self._reported = unusable


def _configured(http: HttpConfig) -> Iterator[tuple[str, str, Role, Secret]]:
    """Yield the key, the name, the role and the reference of each token of the configuration."""
    if http.token is not None:
        yield "http.token", OLD_TOKEN, "configure", http.token
    for index, each in enumerate(http.tokens):
        yield f"http.tokens[{index}] ({each.name})", each.name, each.role, each.token
