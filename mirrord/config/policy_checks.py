"""The policies of a flow: which of them are third-party code, and whether they can be used.

Nothing is loaded here. A caller that reads a file passes a `PolicyCheck` that can load policies
(`policies.flows.LOADING`). Without one, only the built-in names are known, and it is not checked whether a class at a
dotted path is usable.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from mirrord.config.policy_names import (
    CLASS_RULE,
    RECORD_FILTERS,
    RECORD_TRANSFORMS,
    PolicySettings,
    is_built_in,
    is_class,
    unknown,
)
from mirrord.config.schema import FlowConfig


class PolicyCheck(Protocol):
    """Knowledge about policies that goes beyond their names."""

    def faults(self, flow: FlowConfig) -> Iterable[tuple[str, str]]:
        """Yield each policy of the flow that cannot be used: its key within the flow, and one line."""
        ...

    def tells_origin(self, flow: FlowConfig) -> bool:
        """Whether the names that the flow gives reveal every cluster that a topic has passed."""
        ...


class BuiltIn:
    """A `PolicyCheck` that loads nothing."""

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
    """A `PolicyCheck` for callers that never use a policy: anything that only loading can decide counts as correct.

    It allows a daemon to be inspected and stopped from a machine on which its policies are not installed.
    """

    def faults(self, flow: FlowConfig) -> Iterator[tuple[str, str]]:
        return needless_settings(flow)

    def tells_origin(self, flow: FlowConfig) -> bool:
        return flow.naming == "prefix" or not is_built_in(flow.naming)


def third_party(flow: FlowConfig) -> Iterator[tuple[str, str, PolicySettings]]:
    """Yield the third-party policies of the flow: the key within the flow, the text, the settings."""
    if not is_built_in(flow.naming):
        yield "naming", flow.naming, flow.naming_settings
    if flow.select:
        yield "select", flow.select, flow.select_settings
    if flow.sync.filter_configs:
        yield "sync.filter_configs", flow.sync.filter_configs, flow.sync.filter_settings
    own = {"records.filter": RECORD_FILTERS, "records.transform": RECORD_TRANSFORMS}
    yield from (each for each in record_policies(flow) if each[1] not in own[each[0]])


def record_policies(flow: FlowConfig) -> Iterator[tuple[str, str, PolicySettings]]:
    """Yield the policies that inspect records, built in or not: the key within the flow, the text, the settings."""
    if flow.records.filter:
        yield "records.filter", flow.records.filter, flow.records.filter_settings
    if flow.records.transform:
        yield "records.transform", flow.records.transform, flow.records.transform_settings


def needless_settings(flow: FlowConfig) -> Iterator[tuple[str, str]]:
    """Yield the settings that belong to no policy, or to one that takes none."""
    if flow.naming_settings and is_built_in(flow.naming):
        yield "naming_settings", f'naming = "{flow.naming}" takes no settings; they are for {CLASS_RULE}'
    if flow.select_settings and not flow.select:
        yield "select_settings", "there is no select that takes them"
    if flow.sync.filter_settings and not flow.sync.filter_configs:
        yield "sync.filter_settings", "there is no filter_configs that takes them"
    for key in ("filter", "transform"):
        if getattr(flow.records, f"{key}_settings") and not getattr(flow.records, key):
            yield f"records.{key}_settings", f"there is no {key} that takes them"
