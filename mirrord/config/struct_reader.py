"""Read a table of conf.toml into its struct, by the keys that the struct declares."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from mirrord.config.keys import ValueKind, keys_of, tables_of
from mirrord.config.toml_reader import Table

S = TypeVar("S", bound=msgspec.Struct)
Readers = Mapping[type[msgspec.Struct], Callable[[Table], msgspec.Struct]]
_NO_READERS: Readers = {}
_NO_KINDS: Mapping[ValueKind, ValueKind] = {}


def read_struct(
    table: Table,
    struct: type[S],
    *,
    readers: Readers = _NO_READERS,
    kinds: Mapping[ValueKind, ValueKind] = _NO_KINDS,
    **given: Any,
) -> S:
    """Return the struct with the values of a table and of the tables within it. Records every fault.

    `readers` read tables that need more than that, such as checks between keys. `kinds` replaces kinds whose values
    depend on the rest of the file. `given` are fields that are not read from this table.
    """
    for field, name, key, default in keys_of(struct):
        given[field] = kinds.get(key.kind, key.kind).take(table, name, default)
    for name, inner in tables_of(struct):
        reader = readers.get(inner)
        given[name] = reader(table.table(name)) if reader else read_struct(table.table(name), inner)
    return struct(**given)
