"""Declares the keys of conf.toml. Each key is declared once, in the annotation of a field of a configuration struct:

    rpo_ms: Annotated[
        int | None,
        Key(duration(1_000, MONTH_MS), "How far the target may lag.", name="rpo", unset="no objective"),
    ] = None

The code that reads and writes the file, the suggestions for misspelled keys and docs/reference/configuration.md all use
these declarations. A field whose type is another struct declares a table, which the docstring of that struct describes.
Any other field without a `Key` has no key in the file.
"""

import functools
from typing import Any, NamedTuple

import msgspec

from mirrord.config.value_kinds import ValueKind


class Key(msgspec.Struct, frozen=True):
    """The declaration of a key. It is part of a field's `Annotated` type. The field's default is also the key's
    default."""

    kind: ValueKind
    help: str
    """The description of the key, in one line."""
    name: str = ""
    """The name of the key in the file. Empty if it is the same as the name of the field."""
    unset: str = ""
    """The text that the reference page shows instead of a default. It says what applies if the key is absent. Empty if
    the page shows the default itself. A key with this text is optional even if its field has no default. If such a key
    is absent, the field initially gets the placeholder `kind.stand_in`, and the loader computes the value later."""


class DeclaredKey(NamedTuple):
    """A declared key, and the field of the struct that holds its value."""

    field: str
    name: str
    key: Key
    default: Any
    """The value of the field if the key is absent from the file. REQUIRED if the file must contain the key."""


class DeclaredTable(NamedTuple):
    """A table within another table. Its name in the file is the name of its field in the struct."""

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
