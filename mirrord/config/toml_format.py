"""Formats values, keys and lists as TOML."""

import json
import re
from collections.abc import Sequence
from typing import cast

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 110


def format_value(value: object) -> str:
    """Return a string, number, boolean, list or table formatted as TOML. Lists are passed as tuples.

    The result is a single line, unless it contains a list that is too long for one line.
    """
    if isinstance(value, dict):
        items = [f"{format_key(name)} = {format_value(item)}" for name, item in cast(dict[str, object], value).items()]
        return f"{{ {', '.join(items)} }}" if items else "{}"
    if isinstance(value, tuple):
        return format_list([format_value(item) for item in cast(tuple[object, ...], value)])
    return format_text(value) if isinstance(value, str) else json.dumps(value)


def format_list(items: Sequence[str]) -> str:
    """Return a TOML list of items that have already been formatted. If the list is too long for one line, each item is
    on a separate line."""
    line = f"[{', '.join(items)}]"
    return line if len(line) <= _WIDTH else "\n".join(["[", *(f"    {item}," for item in items), "]"])


def format_text(value: str) -> str:
    """Return a string as TOML, in quotes."""
    # A literal string keeps the backslashes of a regex unchanged.
    if "\\" in value and value.isprintable() and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def format_key(name: str) -> str:
    """Return a key, in quotes if TOML requires them."""
    return name if _BARE_KEY.fullmatch(name) else format_text(name)
