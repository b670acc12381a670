"""Durations, sizes, times and addresses as users write them in conf.toml.

Functions that read take the value from the file. They return the value in its base unit, or raise ValueError with one
sentence that says what is allowed. Functions named `..._text` are their inverses.
"""

import re
from datetime import UTC, datetime
from typing import Literal

import msgspec

StartPoint = Literal["earliest", "latest"] | int
"""Where a new lane begins: the first offset, the end, or the first record at or after this time (epoch ms)."""

DURATION_RULE = 'a duration such as "500ms", "5s", "2m" or "1h"'
SIZE_RULE = 'a size such as "64KiB", "8MiB" or "1GiB", or a number of bytes'
RATE_RULE = 'a rate such as "10MiB/s", at least "64KiB/s"'
START_RULE = (
    '"earliest", "latest", an RFC 3339 time such as "2026-01-31T12:00:00Z" (with its zone), or epoch milliseconds'
)
HOST_RULE = 'host:port, such as "kafka1:9092" or "[::1]:9092"'

_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BINARY_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE_BYTES = {**_BINARY_BYTES, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")
_HOST_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(\d{1,5})")


class HostPort(msgspec.Struct, frozen=True):
    """A network address. An IPv6 host is stored without its brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _quantity(found: str, units: dict[str, int], rule: str) -> int:
    match = _QUANTITY.fullmatch(found)
    if match is None or match[2] not in units:
        raise ValueError(rule)
    whole = float(match[1]) * units[match[2]]
    if not whole.is_integer():
        raise ValueError(rule)
    return int(whole)


def _text(value: int, units: dict[str, int]) -> str:
    """Return a quantity in the largest unit of which it is a whole multiple. The smallest unit comes first."""
    for unit, size in reversed(units.items()):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return f"{value}{next(iter(units))}"


def duration_ms(found: object) -> int:
    """Return a duration in milliseconds. A bare number is refused, because it has no unit."""
    if not isinstance(found, str):
        raise ValueError(DURATION_RULE)
    return _quantity(found, _DURATION_MS, DURATION_RULE)


def duration_text(value_ms: int) -> str:
    """Return a duration as a user would write it."""
    return _text(value_ms, _DURATION_MS)


def size_bytes(found: object) -> int:
    """Return a size in bytes. A bare number is a number of bytes."""
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    if not isinstance(found, str):
        raise ValueError(SIZE_RULE)
    return _quantity(found, _SIZE_BYTES, SIZE_RULE)


def size_text(value_bytes: int) -> str:
    """Return a size as a user would write it, in binary units."""
    return _text(value_bytes, _BINARY_BYTES)


def rate_bytes_per_s(found: object) -> int:
    """Return a rate in bytes per second. It is at least 64 KiB, because a batch must fit into a few seconds."""
    if not isinstance(found, str) or not found.endswith("/s"):
        raise ValueError(RATE_RULE)
    rate = _quantity(found.removesuffix("/s"), _SIZE_BYTES, RATE_RULE)
    if rate < 64 << 10:
        raise ValueError(RATE_RULE)
    return rate


def rate_text(value_bytes_per_s: int) -> str:
    """Return a rate as a user would write it, in binary units."""
    return f"{size_text(value_bytes_per_s)}/s"


def start_point(found: object) -> StartPoint:
    """Return where to begin. TOML's own date-times are accepted too.

    A time without a zone is refused, because it is ambiguous.
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
    """Return the two parts of host:port. The port is within 1-65535."""
    match = _HOST_PORT.fullmatch(found) if isinstance(found, str) else None
    if match is None or not 0 < int(match[2]) < 65_536:
        raise ValueError(HOST_RULE)
    return HostPort(match[1].strip("[]"), int(match[2]))


def regex(found: object) -> str:
    """Check a regular expression: it must compile. It is always matched against a whole name."""
    if not isinstance(found, str) or not found:
        raise ValueError("a regular expression that matches the whole name")
    try:
        re.compile(found)
    except re.error as error:
        raise ValueError(f"a regular expression that matches the whole name ({error})") from None
    return found
