"""Checks the policies of a flow: which of them are third-party code, and whether they can be used.

This module loads no policy. A caller can pass a `PolicyCheck` that loads policies (`policies.policy_trial.LOADING`) to
the functions that read a file. Without it, only the built-in names are known. The path of a class, such as
`module:Class`, is then accepted without a check.
"""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from mirrord.config.fault_text import shown
from mirrord.config.key_declarations import keys_of, tables_of
from mirrord.config.policy_names import CLASS_RULE, PolicyKind, PolicySettings, SettingsKind, is_built_in, is_class
from mirrord.config.schema import FlowConfig


class PolicyCheck(Protocol):
    """The interface of the objects that check policies. An implementation may load the policies."""

    def faults(self, flow: FlowConfig) -> Iterable[tuple[str, str]]:
        """Yield a fault for each policy of the flow that cannot be used: the key of the policy within the flow, and one
        line with the reason."""
        ...

    def tells_origin(self, flow: FlowConfig) -> bool:
        """Return whether the name of every target topic of the flow shows all clusters that its records have passed
        through."""
        ...


class BuiltIn:
    """A `PolicyCheck` that only knows the built-in policies and loads no code."""

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
    """A `PolicyCheck` for commands that never call a policy. If only loading a policy could show a fault, this class
    reports none.

    With this class, a daemon can be inspected and stopped from a machine on which its policies are not installed.
    """

    def faults(self, flow: FlowConfig) -> Iterator[tuple[str, str]]:
        return needless_settings(flow)

    def tells_origin(self, flow: FlowConfig) -> bool:
        return flow.naming == "prefix" or not is_built_in(flow.naming)


class _PolicyKey(NamedTuple):
    path: str
    """The key of the policy within the flow, such as `records.filter`."""
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
    """Yield every key that can name a policy. Each item contains the key, its value in this flow, and the settings of
    the policy. The value is empty if the flow has no such policy."""
    for key in _policy_keys():
        struct = getattr(flow, key.table) if key.table else flow
        yield key, getattr(struct, key.field), getattr(struct, key.settings)


def third_party(flow: FlowConfig) -> Iterator[tuple[str, str, PolicySettings]]:
    """Yield the third-party policies of the flow. Each item contains the key within the flow, the string under this
    key that names the policy, and the settings of the policy."""
    for key, text, settings in _policies(flow):
        if text and not key.kind.is_built_in(text):
            yield key.path, text, settings


def record_policies(flow: FlowConfig) -> Iterator[tuple[str, str, PolicySettings]]:
    """Yield the policies that filter or change the records of the flow, both built-in and third-party ones. Each item
    contains the key within the flow, the string under this key that names the policy, and the settings of the
    policy."""
    for key, text, settings in _policies(flow):
        if text and key.table == "records":
            yield key.path, text, settings


def needless_settings(flow: FlowConfig) -> Iterator[tuple[str, str]]:
    """Yield a fault for settings without a policy, and for settings of a policy that takes none. A fault is the key of
    the settings within the flow, and one line with the reason."""
    for key, text, settings in _policies(flow):
        path = f"{key.table}.{key.settings}" if key.table else key.settings
        if settings and not text:
            yield path, f"there is no {key.field} that takes them"
        elif settings and key.kind.is_built_in(text) and not key.kind.has_settings:
            yield path, f'{key.field} = "{text}" takes no settings; they are for {CLASS_RULE}'


def unknown(path: str, found: object, installed: Sequence[str]) -> str:
    """Return a fault message for a value that names no known policy. `found` is the value, and `path` is its key within
    the flow.

    `installed` are the names of the policies that the packages on this machine offer.
    """
    kind = next(key.kind for key in _policy_keys() if key.path == path)
    return f"found {shown(found)}; allowed: {kind.rule(found, installed)}"
