"""Writes a `Config` as the text of a conf.toml. Keys that have their default values are omitted. Loading this text
yields the same configuration."""

from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from mirrord.config.key_declarations import DeclaredKey, keys_of, tables_of
from mirrord.config.schema import Config, FlowConfig
from mirrord.config.security import Secret
from mirrord.config.toml_format import format_key, format_value


def conf_toml(config: Config, remarks: Iterable[str] = ()) -> str:
    """Return a configuration as the text of a conf.toml. The remarks become comments at the beginning of the text."""
    lines = [f"# {line}" for remark in remarks for line in remark.splitlines()]
    lines += _keys(config)
    for alias, cluster in config.clusters.items():
        path = f"clusters.{format_key(alias)}"
        lines += ["", f"[{path}]", *_keys(cluster), *_tables(path, cluster)]
    for flow in config.flows:
        lines += ["", "[[flows]]", *_keys(flow), *_tables("flows", flow)]
    lines += _tables("", config)
    return "\n".join(lines).strip("\n") + "\n"


def _keys(struct: msgspec.Struct) -> Iterator[str]:
    """Yield a line for each key of a table. In a flow, the keys `from` and `to` come first."""
    values = [(each, value) for each, value in _changed(struct) if not isinstance(value, dict)]
    for each, value in sorted(values, key=lambda item: item[0].field not in {"source", "target"}):
        yield f"{each.name} = {each.key.kind.toml(value)}"


def _tables(path: str, struct: msgspec.Struct) -> Iterator[str]:
    """Yield the lines of the tables within a table. Tables whose keys the user chooses, such as `start_of`, come first,
    followed by tables with declared keys."""
    before = f"{path}." if path else ""
    for each, value in _changed(struct):
        if isinstance(value, dict):
            items = cast(dict[str, object], value).items()
            yield from (
                "",
                f"[{before}{each.name}]",
                *(f"{format_key(key)} = {_format_item(item)}" for key, item in items),
            )
    for table in tables_of(struct.__class__):
        inner, here = getattr(struct, table.name), f"{before}{table.name}"
        if lines := [*_keys(inner), *_tables(here, inner)]:
            yield from ("", f"[{here}]", *lines)


def _format_item(item: object) -> str:
    return format_value({"secret": item.reference} if isinstance(item, Secret) else item)


def _changed(struct: msgspec.Struct) -> Iterator[tuple[DeclaredKey, object]]:
    """Yield each key whose value differs from its default, and the value."""
    for each in keys_of(struct.__class__):
        default = each.default
        if isinstance(struct, FlowConfig) and each.field == "name":
            default = struct.default_name
        value = getattr(struct, each.field)
        if value != default:
            yield each, value
