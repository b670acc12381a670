"""The built-in filters and transforms for records. They have the same interface as filters and transforms that a user
provides (`policies.contracts`)."""

# ruff: noqa: ARG002 - the interface defines the arguments

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from mirrord.config.fault_text import shown
from mirrord.config.regex_cost import TooSlow, check_cost, longest_fast
from mirrord.model.names import Alias
from policies.contracts import Record

MASK = b"***"


class Tombstones:
    """A filter that skips tombstones, which are records without a value."""

    def __init__(self, source: Alias, target: Alias) -> None:
        pass

    def keeps(self, record: Record) -> bool:
        """Return whether the record has a value."""
        return record.value is not None


class Keys:
    """A filter that selects records by their keys. A record is copied if its entire key matches `match` and does not
    match `exclude`."""

    def __init__(self, source: Alias, target: Alias, *, match: str | None = None, exclude: str = "") -> None:
        """`match` and `exclude` are regular expressions for the key's bytes. A record without a key is treated like a
        record with an empty key. Raises ValueError if a setting is invalid, or if an expression could take too long
        for a short key."""
        if match is None and exclude == "":
            raise ValueError("it excludes nothing without a setting; allowed: match, exclude, or both")
        self._match = _key_pattern("match", ".*" if match is None else match)
        self._exclude = _key_pattern("exclude", exclude) if exclude != "" else None
        self._longest = min(longest_fast(each) for each in (match or "", exclude))

    def keeps(self, record: Record) -> bool:
        """Return whether the record's key matches `match` and does not match `exclude`. Raises ValueError if an
        expression could take too long for a key of this length: clients of the source choose the keys."""
        key = record.key or b""
        if len(key) > self._longest:
            raise ValueError(f"the regular expression could take too long for a key of {len(key)} bytes")
        return self._match.fullmatch(key) is not None and not (self._exclude and self._exclude.fullmatch(key))


class Headers:
    """A transform that removes headers and masks header values. `drop` contains the names of the headers to remove, and
    `mask` contains the names of the headers whose values are replaced by `***`."""

    def __init__(self, source: Alias, target: Alias, *, drop: Sequence[str] = (), mask: Sequence[str] = ()) -> None:
        """`drop` and `mask` are lists of header names. Raises ValueError if a setting is invalid."""
        self._drop, self._mask = _header_names("drop", drop), _header_names("mask", mask)
        if not (self._drop or self._mask):
            raise ValueError("it changes nothing without the name of a header; allowed: drop, mask, or both")

    def changed(self, record: Any) -> Any:
        """Return a copy of the record with changed headers."""
        kept = [(name, value) for name, value in record.headers if name not in self._drop]
        return record._replace(headers=[(name, MASK if name in self._mask else value) for name, value in kept])


def _key_pattern(setting: str, found: object) -> re.Pattern[bytes]:
    if not isinstance(found, str):
        raise ValueError(f"{setting}: found {shown(found)}; allowed: a regular expression over the whole key")
    try:
        pattern = re.compile(found.encode(), re.DOTALL)
    except re.error as error:
        raise ValueError(f"{setting}: {shown(found)} is not a regular expression: {error}") from None
    try:
        check_cost(found)
    except TooSlow as error:
        raise ValueError(f"{setting}: {shown(found)} could take very long for some keys; allowed: {error}") from None
    return pattern


def _header_names(setting: str, found: object) -> frozenset[str]:
    """Return the header names in a setting. A single string is rejected, because each of its characters would be
    treated as a header name."""
    names = cast("Sequence[object]", found if isinstance(found, list | tuple) else (None,))
    if not all(isinstance(name, str) for name in names):
        value = shown(cast(object, found))
        raise ValueError(f'{setting}: found {value}; allowed: a list of header names, such as ["user"]')
    return frozenset(cast("Sequence[str]", names))


FILTERS: Mapping[str, str] = {"tombstones": f"{__name__}:Tombstones", "keys": f"{__name__}:Keys"}
TRANSFORMS: Mapping[str, str] = {"headers": f"{__name__}:Headers"}
"""`FILTERS` and `TRANSFORMS` map the names that the configuration uses for the built-in filters and transforms to the
dotted paths of their classes."""
