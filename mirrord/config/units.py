"""Converts durations, sizes and rates between their form in conf.toml, such as `"5s"`, and a number in a base unit.

A function that parses a value receives the value as it appears in the file. It returns the value in the base unit, or
raises ValueError with a phrase that says what is allowed. The functions whose names end in `_text` do the reverse.
"""

import re

DURATION_RULE = 'a duration such as "500ms", "5s", "2m" or "1h"'
SIZE_RULE = 'a size such as "64KiB", "8MiB" or "1GiB", or a number of bytes'
RATE_RULE = 'a rate such as "10MiB/s", at least "64KiB/s"'

_DURATION_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_BINARY_BYTES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE_BYTES = {**_BINARY_BYTES, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_QUANTITY = re.compile(r"(\d+(?:\.\d+)?) ?([A-Za-z]+)")


def _quantity(found: str, units: dict[str, int], rule: str) -> int:
    match = _QUANTITY.fullmatch(found)
    if match is None or match[2] not in units:
        raise ValueError(rule)
    whole = float(match[1]) * units[match[2]]
    if not whole.is_integer():
        raise ValueError(rule)
    return int(whole)


def _text(value: int, units: dict[str, int]) -> str:
    """Return a quantity in the largest unit in which it is a whole number. `units` begins with the smallest unit."""
    for unit, size in reversed(units.items()):
        if value >= size and value % size == 0:
            return f"{value // size}{unit}"
    return f"{value}{next(iter(units))}"


def duration_ms(found: object) -> int:
    """Return a duration in milliseconds. A number without a unit is refused."""
    if not isinstance(found, str):
        raise ValueError(DURATION_RULE)
    return _quantity(found, _DURATION_MS, DURATION_RULE)


def duration_text(value_ms: int) -> str:
    """Return a duration in the form that conf.toml uses, such as `5s`."""
    return _text(value_ms, _DURATION_MS)


def size_bytes(found: object) -> int:
    """Return a size in bytes. A number without a unit is taken as a number of bytes."""
    if isinstance(found, int) and not isinstance(found, bool) and found >= 0:
        return found
    if not isinstance(found, str):
        raise ValueError(SIZE_RULE)
    return _quantity(found, _SIZE_BYTES, SIZE_RULE)


def size_text(value_bytes: int) -> str:
    """Return a size in the form that conf.toml uses, in binary units, such as `8MiB`."""
    return _text(value_bytes, _BINARY_BYTES)


def rate_bytes_per_s(found: object) -> int:
    """Return a rate in bytes per second. A rate below 64 KiB per second is refused, because sending a single batch at
    such a rate could take more than a few seconds."""
    if not isinstance(found, str) or not found.endswith("/s"):
        raise ValueError(RATE_RULE)
    rate = _quantity(found.removesuffix("/s"), _SIZE_BYTES, RATE_RULE)
    if rate < 64 << 10:
        raise ValueError(RATE_RULE)
    return rate


def rate_text(value_bytes_per_s: int) -> str:
    """Return a rate in the form that conf.toml uses, in binary units, such as `10MiB/s`."""
    return f"{size_text(value_bytes_per_s)}/s"
