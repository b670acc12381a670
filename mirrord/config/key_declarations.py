"""Declares the keys of conf.toml. Each key is declared once, at its field in a struct of the schema:

    rpo_ms: Annotated[
        int | None,
        Key(duration(1_000, MONTH_MS), "How far the target may lag.", name="rpo", unset="no objective"),
    ] = None

The reader, the writer, the suggestions for misspelled keys and docs/reference/configuration.md are derived from these
declarations. A field with the type of a struct is a table, and the struct's docstring describes the table. All other
fields without a `Key` are not in the file.
"""

import functools
from typing import Any, NamedTuple

import msgspec

from mirrord.config.value_kinds import ValueKind


class Key(msgspec.Struct, frozen=True):
    """The declaration of a key. It is part of the `Annotated` type of a field. The default of the field is the default
    of the key."""

    kind: ValueKind
    help: str
    """The description of the key, in one line."""
    name: str = ""
    """The name of the key in the file; empty if it equals the name of the field."""
    unset: str = ""
    """What applies if the key is absent, as text for the reference page. It is set if the default cannot be written in
    a file. A field without a default then gets the placeholder of the kind, which the loader replaces."""


class DeclaredKey(NamedTuple):
    """A declared key, and the field of the struct that holds its value."""

    field: str
    name: str
    key: Key
    default: Any
    """The value of the field if the key is absent. REQUIRED if the key must be in the file."""


class DeclaredTable(NamedTuple):
    """A table within another table. The name of its key equals the name of its field."""

    name: str
    struct: type[msgspec.Struct]


@functools.cache
def keys_of(struct: type[msgspec.Struct]) -> tuple[DeclaredKey, ...]:
    """Return the keys of a table, in the order of the fields."""
    return tuple(
        DeclaredKey(field.name, key.name or field.name, key, _default(field, key))
        for field in msgspec.structs.fields(struct)
        for key in getattr(field.type, "__metadata__", ())
        if isinstance(key, Key)
    )


@functools.cache
def key_of(struct: type[msgspec.Struct], field: str) -> DeclaredKey:
    """Return the declared key of a field."""
    return next(each for each in keys_of(struct) if each.field == field)


@functools.cache
def tables_of(struct: type[msgspec.Struct]) -> tuple[DeclaredTable, ...]:
    """Return the tables within a table, in the order of the fields."""
    fields = msgspec.structs.fields(struct)
    return tuple(
        DeclaredTable(field.name, field.type)
        for field in fields
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct)
    )


def _default(field: msgspec.structs.FieldInfo, key: Key) -> Any:
    if callable(field.default_factory):
        return field.default_factory()
    if field.default is msgspec.NODEFAULT and key.unset:
        return key.kind.stand_in
    return field.default
