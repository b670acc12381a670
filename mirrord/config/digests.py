"""Digests of a configuration, setting by setting. With them, two daemons can find out whether they have the same
configuration, and which settings differ, without showing each other the settings.

A setting with its default value has no digest. A version of mirrord that has more settings therefore produces the same
digests for the same file.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import cast

import msgspec

from mirrord.config.schema import Config

LENGTH = 16
"""Number of hexadecimal digits of a digest. It detects differences between files, not forgeries."""
_PARTS = ("replicators", "runtime", "audit", "compact", "drill")
"""The tables that two daemons that run the same flows should share. The others say where a daemon runs, where it writes
logs, and how it can be reached."""


class ConfigDigests(msgspec.Struct, frozen=True):
    """The digests of a daemon's configuration, by setting."""

    clusters: dict[str, str]
    """One digest for each cluster."""
    flows: dict[str, dict[str, str]]
    tables: dict[str, dict[str, str]]
    """The digests of the settings in the tables that apply to all flows."""


def digests(config: Config) -> ConfigDigests:
    """Return the digests of a configuration."""
    return ConfigDigests(
        clusters={alias: _digest(_given(cluster)) for alias, cluster in config.clusters.items()},
        flows={flow.name: _settings(flow) for flow in config.flows},
        tables={name: _settings(getattr(config, name)) for name in _PARTS},
    )


def differences(ours: ConfigDigests, theirs: ConfigDigests, flow: str, clusters: tuple[str, str]) -> Iterator[str]:
    """Yield the name of each setting of a flow between these clusters that differs between two configurations."""
    if flow not in theirs.flows:
        yield "the flow is not in the file of the other daemon"
        return
    yield from _differing("", ours.flows.get(flow, {}), theirs.flows[flow])
    for alias in clusters:
        if ours.clusters.get(alias) != theirs.clusters.get(alias):
            yield f"clusters.{alias}"
    for name in _PARTS:
        yield from _differing(f"{name}.", ours.tables.get(name, {}), theirs.tables.get(name, {}))


def _differing(prefix: str, ours: Mapping[str, str], theirs: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{prefix}{name}" for name in sorted({**ours, **theirs}) if ours.get(name) != theirs.get(name))


def _settings(struct: msgspec.Struct) -> dict[str, str]:
    return {name: _digest(value) for name, value in cast(dict[str, object], _given(struct)).items()}


def _given(value: object) -> object:
    """Return a part of a configuration as plain values, without the settings that have their default values."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        defaults = {field.name: _default(field) for field in fields}
        found = {name: getattr(value, name) for name in defaults}
        return {name: _given(each) for name, each in found.items() if each != defaults[name]}
    if isinstance(value, dict):
        return {name: _given(each) for name, each in cast(dict[str, object], value).items()}
    return msgspec.to_builtins(value)


def _default(field: msgspec.structs.FieldInfo) -> object:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()  # pyright: ignore[reportCallIssue]
    return field.default


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="sorted")).hexdigest()[:LENGTH]
