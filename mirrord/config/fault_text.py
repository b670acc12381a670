"""Helpers for fault messages: they format an invalid value, and suggest the known name that is closest to an unknown
one."""

import difflib
import json
from collections.abc import Iterable

TYPE_NAMES: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
"""The words that fault messages use for the types of TOML values."""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to `name`, or None if no known name is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), list(by_lower_case), n=1, cutoff=0.55)
    return by_lower_case[matches[0]] if matches else None


def shown(value: object) -> str:
    """Return a value in the form in which fault messages show it: short, and on one line.

    A table may hold secrets, so only the fact that it is a table is shown.
    """
    if isinstance(value, str | int | float):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 80 else text[:77] + "..."
    return TYPE_NAMES.get(type(value), str(value))
