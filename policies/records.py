"""The built-in policies that look at records. Made as those of third parties are (`policies.contracts`)."""

# ruff: noqa: ARG002 - the contract says which arguments there are

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mirrord.model.names import Alias
from policies.contracts import Record

MASK = b"***"


class Tombstones:
    """A filter: records without a value stay where they are."""

    def __init__(self, source: Alias, target: Alias) -> None:
        pass

    def keeps(self, record: Record) -> bool:
        """Whether there is a value."""
        return record.value is not None


class Keys:
    """A filter: only records whose whole key matches `match`, and none whose key matches `exclude`."""

    def __init__(self, source: Alias, target: Alias, *, match: str = ".*", exclude: str = "") -> None:
        """Both are regexes over the key's bytes. A record without a key has an empty one."""
        self._match = re.compile(match.encode(), re.DOTALL)
        self._exclude = re.compile(exclude.encode(), re.DOTALL) if exclude else None

    def keeps(self, record: Record) -> bool:
        """By the key alone."""
        key = record.key or b""
        return self._match.fullmatch(key) is not None and not (self._exclude and self._exclude.fullmatch(key))


class Headers:
    """A transform: headers of the names `drop` are taken out, those of `mask` get the value `***`."""

    def __init__(self, source: Alias, target: Alias, *, drop: Sequence[str] = (), mask: Sequence[str] = ()) -> None:
        self._drop, self._mask = set(drop), set(mask)

    def changed(self, record: Any) -> Any:
        """The same record with other headers."""
        kept = [(name, value) for name, value in record.headers if name not in self._drop]
        return record._replace(headers=[(name, MASK if name in self._mask else value) for name, value in kept])


FILTERS: Mapping[str, str] = {"tombstones": f"{__name__}:Tombstones", "keys": f"{__name__}:Keys"}
TRANSFORMS: Mapping[str, str] = {"headers": f"{__name__}:Headers"}
"""By their names in the configuration."""
