"""How messages show a wrong value, and suggest the known name that a wrong name resembles."""

import difflib
import json
from collections.abc import Iterable

TYPE_NAMES: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a table",
}
"""The words with which messages name the types of TOML values."""


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most similar to this one, or None if no name is similar."""
    by_lower_case = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), list(by_lower_case), n=1, cutoff=0.55)
    return by_lower_case[matches[0]] if matches else None


def shown(value: object) -> str:
    """Return a value as a fault line shows it: on one line, and short.

    A value that may hold secrets (a table) is shown only by its kind.
    """
    if isinstance(value, str | int | float):
        text = json.dumps(value, ensure_ascii=False)
        return text if len(text) <= 80 else text[:77] + "..."
    return TYPE_NAMES.get(type(value), str(value))
