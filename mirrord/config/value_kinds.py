"""The kinds of values that the keys of a conf.toml accept. A kind defines how a value is read, written and
described."""

import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec

from mirrord.config.toml_format import format_list, format_text, format_value
from mirrord.config.toml_reader import Table
from mirrord.config.units import (
    RATE_RULE,
    duration_ms,
    duration_text,
    rate_bytes_per_s,
    rate_text,
    size_bytes,
    size_text,
)
from mirrord.config.value_parsers import (
    HOST_RULE,
    START_RULE,
    Convert,
    boolean,
    choice,
    host_port,
    integer,
    regex,
    start_point,
    text,
    within,
)
from mirrord.config.value_parsers import either as name_or

REQUIRED = msgspec.NODEFAULT
"""Used in place of a default if the file must contain the key."""


class ValueKind(msgspec.Struct, frozen=True):
    """The kind of a key: how its values are read, written and described."""

    read: Convert[Any]
    """Converts a value from the file. Raises ValueError with a phrase that says what is allowed."""
    allowed: str
    """The allowed values, described in Markdown for the reference page."""
    write: Callable[[Any], str] = format_value
    """Formats a value as TOML. It is the reverse of `read`."""
    stand_in: Any = ""
    """The placeholder that replaces a required value if it is missing or invalid."""
    secret: bool = False
    """Whether messages must not show the values."""

    def take(self, table: Table, name: str, default: Any) -> object:
        """Return the value of a key, or `default` if the key is absent. Record a fault if the value is invalid."""
        if default is REQUIRED:
            return table.required(name, self.read, self.stand_in, secret=self.secret)
        return table.optional(name, self.read, default, secret=self.secret)

    def toml(self, value: Any) -> str:
        """Return the value of a key as TOML."""
        return self.write(value)


class ListKind(ValueKind, frozen=True):
    """The kind of a key whose value is a list. `read` and `write` apply to each item. A required list must not be
    empty."""

    def take(self, table: Table, name: str, default: Any) -> object:
        """Return the list, or `default` if the key is absent. Record a fault for each invalid item."""
        if default is REQUIRED:
            return table.list_of(name, self.read, required=True, secret=self.secret)
        return table.list_of(name, self.read, default=default, secret=self.secret)

    def toml(self, value: Any) -> str:
        """Return the list as TOML."""
        return format_list([self.write(item) for item in value])


class TableKind(ValueKind, frozen=True):
    """The kind of a key whose value is a table in which the user chooses the keys. `read` applies to each value in the
    table, and `read_name` to each key."""

    read_name: Convert[str] = text

    def take(self, table: Table, name: str, default: Any) -> object:  # noqa: ARG002 - an absent table is empty
        """Return the contents of the table. Record a fault for each invalid key or value."""
        return table.table(name).all_of(self.read_name, self.read)


def _in_code(rule: str) -> str:
    """Return a description of the allowed values, with each quoted string formatted as Markdown code."""
    return re.sub(r'"[^"]*"', lambda found: f"`{found[0]}`", rule)


def _quantity(unit: Callable[[int], str]) -> Callable[[object], str]:
    # A configuration that was not read from a file may hold values that no file can express. Such a value is written
    # nevertheless, and the loader then refuses the file.
    return lambda value: format_text(unit(value)) if isinstance(value, int) else format_value(value)


BOOLEAN = ValueKind(boolean, "`true` or `false`")
TEXT = ValueKind(text, "a string")
START = ValueKind(start_point, _in_code(START_RULE))
RATE = ValueKind(rate_bytes_per_s, _in_code(RATE_RULE), _quantity(rate_text))
ADDRESS = ValueKind(host_port, _in_code(HOST_RULE), lambda value: format_text(str(value)))
REGEXES = ListKind(regex, "a list of regular expressions")


def number(low: int, high: int) -> ValueKind:
    """Return the kind of values that are whole numbers from `low` to `high`, inclusive."""
    return ValueKind(integer(low, high), f"{low} to {high}" if high < 2**63 - 1 else f"{low} or more")


def duration(low_ms: int, high_ms: int) -> ValueKind:
    """Return the kind of the values that are durations between these two bounds, inclusive."""
    return _within(duration_ms, duration_text, low_ms, high_ms)


def size(low_bytes: int, high_bytes: int) -> ValueKind:
    """Return the kind of the values that are sizes between these two bounds, inclusive."""
    return _within(size_bytes, size_text, low_bytes, high_bytes)


def one_of(names: Any) -> ValueKind:
    """Return the kind for strings that must be one of the names in the Literal type `names`."""
    choices = get_args(names)
    return ValueKind(choice(*choices), _alternatives([f'`"{name}"`' for name in choices]))


def either(name: str, other: ValueKind, meaning: object = REQUIRED) -> ValueKind:
    """Return the kind of the values that are either the string `name` or a value of the kind `other`. If the
    configuration file contains the string `name`, it is read as the value `meaning`, which is `name` itself by
    default."""
    value = name if meaning is REQUIRED else meaning
    convert = name_or(name, other.read)
    return ValueKind(
        lambda found: value if found == name else convert(found),
        f'`"{name}"`, or {other.allowed}',
        lambda found: format_text(name) if found == value else other.write(found),
    )


def _within(convert: Convert[int], unit: Callable[[int], str], low: int, high: int) -> ValueKind:
    first, last = format_text(unit(low)), format_text(unit(high))
    return ValueKind(
        within(convert, low, high, f"{first} to {last}"),
        f"`{first}` to `{last}`",
        _quantity(unit),
    )


def _alternatives(names: list[str]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]])
