"""Write a `Config` as the text of a conf.toml that reads back as the same configuration. Defaults are omitted.

Field names and keys of the file follow one convention, with the exceptions in `_KEYS`: `every_ms` becomes the key
`every` with a duration, `in_flight_bytes` becomes a size, and a nested struct becomes a table.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import cast

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.config.security import Secret
from mirrord.config.units import HostPort

_KEYS = {"source": "from", "target": "to", "directory": "dir", "rate_bytes_per_s": "rate"}
_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_SIZES = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1))
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_WIDTH = 110


def conf_toml(config: Config, remarks: Iterable[str] = ()) -> str:
    """Return the text. Remarks become comments at its beginning."""
    lines = [f"# {line}" for remark in remarks for line in remark.splitlines()]
    lines += _table("", config, skip=("clusters", "flows", "elsewhere"), nested=False)
    for alias, cluster in config.clusters.items():
        lines += ["", f"[clusters.{_key(alias)}]", f"bootstrap = {_text(','.join(cluster.bootstrap))}"]
        lines += _subtables(f"clusters.{_key(alias)}", cluster)
    for flow in config.flows:
        skip = ("archive", "name") if flow.name == f"{flow.source}-{flow.target}" else ("archive",)
        lines += ["", "[[flows]]", *_table("flows", flow, skip=skip)]
    lines += _subtables("", config)
    return "\n".join(lines).strip("\n") + "\n"


def _table(path: str, struct: msgspec.Struct, skip: Iterable[str] = (), *, nested: bool = True) -> Iterator[str]:
    """Yield the keys of a table, followed by the tables within it."""
    order = ("source", "target") if isinstance(struct, FlowConfig) else ()
    for name, value in sorted(_changed(struct), key=lambda item: item[0] not in order):
        if name not in skip and not isinstance(value, msgspec.Struct | dict):
            yield f"{_name(name)} = {_value(name, value)}"
    if nested:
        yield from _subtables(path, struct)


def _subtables(path: str, struct: msgspec.Struct) -> Iterator[str]:
    for name, value in _changed(struct):
        if isinstance(value, msgspec.Struct) and not isinstance(value, Secret | HostPort):
            here = f"{path}.{_name(name)}" if path else _name(name)
            if lines := list(_table(here, value)):
                yield from ("", f"[{here}]", *lines)
        elif isinstance(value, dict) and value and not isinstance(struct, Config):
            # These names come from the user: topics, and the settings of a third-party policy.
            keys = (f"{_key(key)} = {_plain(item)}" for key, item in cast(dict[str, object], value).items())
            yield from ("", f"[{path}.{name}]", *keys)


def _changed(struct: msgspec.Struct) -> Iterator[tuple[str, object]]:
    """Yield the fields that differ from their default. Secrets and addresses are converted to texts."""
    for field in msgspec.structs.fields(struct):
        value = getattr(struct, field.name)
        if field.default is msgspec.NODEFAULT or value != field.default:
            if isinstance(value, Secret):
                value = value.reference
            yield field.name, f"{value}" if isinstance(value, HostPort) else value


def _name(field: str) -> str:
    return _KEYS.get(field, field.removesuffix("_ms"))


def _value(field: str, value: object) -> str:
    if value is None:
        return '"never"'  # the only None that is not a default: an interval that is switched off
    if field.endswith("_ms") and isinstance(value, int):
        return _text(_quantity(value, _DURATIONS))
    if field.endswith("_bytes") and isinstance(value, int):
        return _text(_quantity(value, _SIZES))
    if field.endswith("_bytes_per_s") and isinstance(value, int):
        return _text(f"{_quantity(value, _SIZES)}/s")
    if isinstance(value, tuple):
        return _list([_value(field, item) for item in cast(tuple[object, ...], value)])
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _plain(value: object) -> str:
    if isinstance(value, tuple):
        return _list([_plain(item) for item in cast(tuple[object, ...], value)])
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _quantity(value: int, units: Iterable[tuple[str, int]]) -> str:
    unit, size = next((unit, size) for unit, size in units if value % size == 0 and (value >= size or size == 1))
    return f"{value // size}{unit}"


def _list(items: list[str]) -> str:
    line = f"[{', '.join(items)}]"
    return line if len(line) <= _WIDTH else "\n".join(["[", *(f"    {item}," for item in items), "]"])


def _text(value: str) -> str:
    # A literal string keeps the backslashes of a regex unchanged.
    if "\\" in value and value.isprintable() and "'" not in value:
        return f"'{value}'"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(alias: str) -> str:
    return alias if _BARE_KEY.fullmatch(alias) else _text(alias)
