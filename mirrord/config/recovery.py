"""What a failover does besides ending the copying: the table `[flows.recovery]` of conf.toml."""

from typing import Annotated
from urllib.parse import urlsplit

import msgspec

from mirrord.config.key_declarations import Key
from mirrord.config.toml_format import format_text
from mirrord.config.value_kinds import ListKind, duration

_HOUR_MS = 3_600_000


def hook(found: object) -> str:
    """Return the hook if it is valid. Raises ValueError."""
    rule = "the absolute path of a program, or a URL that begins with https:// or http://"
    if not isinstance(found, str) or not found.isprintable():
        raise ValueError(rule)
    if is_url(found):
        parts = urlsplit(found)
        try:
            _ = parts.port
        except ValueError:
            raise ValueError(f"{rule}, with a port from 0 to 65535") from None
        if not parts.hostname or parts.username is not None or parts.password is not None:
            raise ValueError(f"{rule}, with a host and without a password")
    elif not found.startswith("/"):
        raise ValueError(rule)
    return found


def is_url(found: str) -> bool:
    """Return whether a hook is an HTTP request, and not a program."""
    return found.startswith(("https://", "http://"))


def shown_hook(found: str) -> str:
    """Return a hook without the parts of a URL that may be secret: its path and its query."""
    if not is_url(found):
        return found
    parts = urlsplit(found)
    return f"{parts.scheme}://{parts.netloc}"


def principal(found: object) -> str:
    """Return the Kafka principal if it is valid. Raises ValueError."""
    if not isinstance(found, str) or not found.isprintable() or not all(found.partition(":")[::2]):
        raise ValueError("a principal with its type, such as User:app")
    return found


HOOKS = ListKind(hook, "a list of absolute paths of programs and of URLs", format_text, secret=True)
PRINCIPALS = ListKind(principal, "a list of principals, such as `User:app`", format_text)


class RecoveryConfig(msgspec.Struct, frozen=True):
    """What `mirrord failover` does for clients. The daemon that carries out a failover uses its own file, and so does
    the command, if it carries out the failover itself."""

    before: Annotated[
        tuple[str, ...],
        Key(
            HOOKS,
            "Programs and HTTP requests that run first, one after the other. Each gets the plan as JSON, on standard "
            "input or as the body of a POST request. If one fails, a planned failover is cancelled.",
        ),
    ] = ()
    grant: Annotated[
        tuple[str, ...],
        Key(
            PRINCIPALS,
            "Principals that are allowed to READ, WRITE and DESCRIBE the target topics after the copying has ended. "
            "This requires ALTER on the target cluster.",
        ),
    ] = ()
    after: Annotated[
        tuple[str, ...],
        Key(HOOKS, "The same as `before`, after the final positions of consumer groups have been committed."),
    ] = ()
    timeout_ms: Annotated[
        int, Key(duration(100, _HOUR_MS), "Time limit for each program and each HTTP request.", name="timeout")
    ] = 60_000
