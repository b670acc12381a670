"""Parses and checks individual values of the configuration: strings, numbers, names from a list, start times,
addresses, and regular expressions.

A parser receives the value as it appears in the file. It returns the parsed value, or raises ValueError with a phrase
that says what is allowed. `mirrord.config.units` contains the parsers of durations, sizes and rates.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec

from mirrord.config.fault_text import closest_name
from mirrord.config.regex_cost import TooSlow, check_cost

T = TypeVar("T")
Convert = Callable[[object], T]
"""A function that converts a value from the file. It returns the result, or raises ValueError with a phrase that says
what is allowed."""

StartPoint = Literal["earliest", "latest"] | int
"""Where a new lane begins to copy: at the first offset, at the end of the log, or at a given time. A time is a number
of milliseconds since 1970. It means the first record whose timestamp is at or after that time."""

START_RULE = (
    '"earliest", "latest", an RFC 3339 time such as "2026-01-31T12:00:00Z" (with its zone), or epoch milliseconds'
)
HOST_RULE = 'host:port, such as "kafka1:9092" or "[::1]:9092"'
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


class HostPort(msgspec.Struct, frozen=True):
    """A network address. An IPv6 host is stored without its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def text(found: object) -> str:
    """Return the string if it is not empty. Raises ValueError for any other value."""
    if not isinstance(found, str) or not found:
        raise ValueError("a string")
    return found


def boolean(found: object) -> bool:
    """Return the value if it is a boolean. Raises ValueError for any other value."""
    if not isinstance(found, bool):
        raise ValueError("true or false")
    return found


def integer(low: int, high: int) -> Convert[int]:
    """Return a parser that accepts whole numbers within [low, high]."""

    def convert(found: object) -> int:
        if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return found

    return convert


def within(convert: Convert[int], low: int, high: int, rule: str) -> Convert[int]:
    """Return a parser that calls `convert`, and then refuses results outside [low, high].

    `rule` states these bounds for the message, in the units that users write.
    """

    def take(found: object) -> int:
        value = convert(found)
        if not low <= value <= high:
            raise ValueError(f"from {rule}")
        return value

    return take


def choice(*names: T) -> Convert[T]:
    """Return a parser that accepts one of these names."""

    def convert(found: object) -> T:
        for name in names:
            if found == name:
                return name
        allowed = " or ".join([", ".join(f'"{name}"' for name in names[:-1]), f'"{names[-1]}"'])
        like = closest_name(found, [str(name) for name in names]) if isinstance(found, str) else None
        raise ValueError(allowed + (f'; did you mean "{like}"?' if like else ""))

    return convert


def either(name: T, convert: Convert[int]) -> Convert[T | int]:
    """Return a parser that accepts `name`, and every value that `convert` accepts."""

    def take(found: object) -> T | int:
        if found == name:
            return name
        try:
            return convert(found)
        except ValueError as fault:
            raise ValueError(f'"{name}" or {fault}') from None

    return take


def start_point(found: object) -> StartPoint:
    """Return the point at which a new lane begins to copy. A time may be a string, a number of milliseconds, or a TOML
    date-time.

    A time without a time zone is refused, because it is ambiguous. Raises ValueError for any value that is refused.
    """
    if found == "earliest":
        return "earliest"
    if found == "latest":
        return "latest"
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    moment = found
    if isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            raise ValueError(START_RULE) from None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError(START_RULE)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    if moment < epoch:
        raise ValueError(START_RULE)
    since = moment - epoch
    return since.days * 86_400_000 + since.seconds * 1_000 + since.microseconds // 1_000


def host_port(found: object) -> HostPort:
    """Return the address in a string of the form `host:port`. Raises ValueError for any other value, or if the port is
    not between 1 and 65535."""
    match = _HOST_PORT.fullmatch(found) if isinstance(found, str) else None
    if match is None or not 0 < int(match[2]) < 65_536:
        raise ValueError(HOST_RULE)
    return HostPort(match[1].strip("[]"), int(match[2]))


def regex(found: object) -> str:
    """Return the regular expression if it compiles, and takes a short time for every topic name. Raises ValueError if
    not. Callers match the expression against whole names."""
    if not isinstance(found, str) or not found:
        raise ValueError("a regular expression that matches the whole name")
    try:
        re.compile(found)
        check_cost(found)
    except (re.error, TooSlow) as error:
        raise ValueError(f"a regular expression that matches the whole name ({error})") from None
    return found
