"""Checks the policies of a flow: which of them are third-party code, and whether they can be used.

This module does not load any policies. A caller can pass a `PolicyCheck` that loads policies, such as
`policies.policy_trial.LOADING`, to the functions that read a file. Without a `PolicyCheck`, only the built-in names are
known, and the path of a class, such as `module:Class`, is accepted unchecked.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from mirrord.config.fault_text import shown
from mirrord.config.key_declarations import keys_of, tables_of
from mirrord.config.policy_names import CLASS_RULE, PolicyKind, PolicySettings, SettingsKind, is_built_in, is_class
from mirrord.config.schema import FlowConfig


class PolicyCheck(Protocol):
    """The interface for checking policies. An implementation may load the policies."""

    def faults(self, flow: FlowConfig) -> Iterable[tuple[str, str]]:
        """Yield a fault for each policy of the flow that cannot be used. A fault consists of the policy's key within
        the flow, and one line with the reason."""
        ...

    def tells_origin(self, flow: FlowConfig) -> bool:
        """Return whether the name of each of the flow's target topics shows all clusters that the topic's records have
        passed through."""
        ...


class BuiltIn:
    """A `PolicyCheck` that knows only the built-in policies and loads no code."""

    def faults(self, flow: FlowConfig) -> Iterator[tuple[str, str]]:
        for key, text, _ in third_party(flow):
            if not is_class(text):
                yield key, unknown(key, text, ())
        for key, fault in needless_settings(flow):
            yield key, fault

    @staticmethod
    def tells_origin(flow: FlowConfig) -> bool:
        return flow.naming == "prefix"


BUILT_IN = BuiltIn()


class Unjudged:
    """A `PolicyCheck` for commands that never call a policy. It does not report faults that only loading a policy could
    reveal.

    With this class, a daemon can be inspected and stopped from a machine on which the daemon's policies are not
    installed.
    """

    def faults(self, flow: FlowConfig) -> Iterator[tuple[str, str]]:
        return needless_settings(flow)

    def tells_origin(self, flow: FlowConfig) -> bool:
        return flow.naming == "prefix" or not is_built_in(flow.naming)


class _PolicyKey(NamedTuple):
    path: str
    """The policy's key within the flow, such as `records.filter`."""
    table: str
    """The table within the flow that contains the key. Empty if the flow itself contains it."""
    field: str
    settings: str
    """The name of the field that holds the settings of the policy."""
    kind: PolicyKind


@functools.cache
def _policy_keys() -> tuple[_PolicyKey, ...]:
    found: list[_PolicyKey] = []
    for table, struct in (("", FlowConfig), *tables_of(FlowConfig)):
        keys = keys_of(struct)
        settings = {each.key.kind.policy: each.field for each in keys if isinstance(each.key.kind, SettingsKind)}
        for field, name, key, _ in keys:
            if isinstance(key.kind, PolicyKind):
                path = f"{table}.{name}" if table else name
                found.append(_PolicyKey(path, table, field, settings[field], key.kind))
    return tuple(found)


def _policies(flow: FlowConfig) -> Iterator[tuple[_PolicyKey, str, PolicySettings]]:
    """Yield every key that can name a policy. Each item contains the key, its value in this flow, and the policy's
    settings. The value is empty if the flow has no such policy."""
    for key in _policy_keys():
        struct = getattr(flow, key.table) if key.table else flow
        yield key, getattr(struct, key.field), getattr(struct, key.settings)


def policy_settings(flow: FlowConfig) -> Iterator[tuple[str, PolicySettings]]:
    """Yield each table of settings of the flow's policies, and its key within the flow."""
    for key, _, settings in _policies(flow):
        yield f"{key.table}.{key.settings}" if key.table else key.settings, settings


def third_party(flow: FlowConfig) -> Iterator[tuple[str, str, PolicySettings]]:
    """Yield the flow's third-party policies. Each item contains the policy's key within the flow, the string that names
    the policy, and the policy's settings."""
    for key, text, settings in _policies(flow):
        if text and not key.kind.is_built_in(text):
            yield key.path, text, settings


def record_policies(flow: FlowConfig) -> Iterator[tuple[str, str, PolicySettings]]:
    """Yield the policies that filter or change the flow's records, both built-in and third-party. Each item contains
    the policy's key within the flow, the string that names the policy, and the policy's settings."""
    for key, text, settings in _policies(flow):
        if text and key.table == "records":
            yield key.path, text, settings


def needless_settings(flow: FlowConfig) -> Iterator[tuple[str, str]]:
    """Yield a fault for settings without a policy, and for settings of a policy that takes no settings. A fault
    consists of the settings' key within the flow, and one line with the reason."""
    for key, text, settings in _policies(flow):
        path = f"{key.table}.{key.settings}" if key.table else key.settings
        if settings and not text:
            yield path, f"there is no {key.field} that takes them"
        elif settings and key.kind.is_built_in(text) and not key.kind.has_settings:
            yield path, f'{key.field} = "{text}" takes no settings; they are for {CLASS_RULE}'


def unknown(path: str, found: object, installed: Sequence[str]) -> str:
    """Return a fault message for a value that does not name a known policy. `found` is the value, and `path` is its key
    within the flow.

    `installed` contains the names of the policies that the packages on this machine provide.
    """
    kind = next(key.kind for key in _policy_keys() if key.path == path)
    return f"found {shown(found)}; allowed: {kind.rule(found, installed)}"
