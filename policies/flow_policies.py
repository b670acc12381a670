"""Creates the policies of a flow from its configuration. A policy is either built in or provided by the user.

A naming or selection policy that the user provides is created only once, because it caches its results. Later calls
return the same object. If such a policy is unusable, the first call raises ConfigError. `policies.policy_trial` detects
unusable policies beforehand.
"""

from typing import cast

import msgspec

from mirrord.config.policy_names import PolicySettings, is_built_in
from mirrord.config.schema import FlowConfig
from policies.class_loading import NAMING, PROPERTIES, RECORD_FILTER, RECORD_TRANSFORM, SELECTION, make
from policies.contracts import NamingPolicy, PropertyPolicy, RecordFilter, RecordTransform, SelectionPolicy
from policies.guarded_records import GuardedFilter, GuardedTransform
from policies.guarded_topics import GuardedNaming, GuardedProperties, GuardedSelection
from policies.naming import Naming, is_heartbeats, naming
from policies.properties import Properties, properties
from policies.records import FILTERS, TRANSFORMS
from policies.selecting import Selection

_made: dict[tuple[str, ...], object] = {}


def _text(settings: PolicySettings) -> str:
    """Return a text that differs for different settings. The text of a secret is its reference."""
    return msgspec.json.encode(settings).decode()


def naming_of(flow: FlowConfig) -> Naming:
    """Return the policy that names the flow's target topics. Raises ConfigError if the policy is unusable."""
    if is_built_in(flow.naming):
        return naming(flow.naming, flow.source, flow.separator)
    parts = (flow.naming, flow.source, flow.target, flow.separator, flow.mm2_records.separator)
    key = ("naming", *parts, _text(flow.naming_settings))
    if key not in _made:
        made = make(NAMING, flow.naming, flow.source, flow.target, flow.naming_settings)
        policy = cast(NamingPolicy, made)
        label = f'naming "{flow.naming}"'
        _made[key] = GuardedNaming(label, policy, flow.source, flow.separator, flow.mm2_records.separator)
    return cast(GuardedNaming, _made[key])


def selection_of(flow: FlowConfig) -> Selection:
    """Return the object that decides which topics the flow copies. Raises ConfigError if a policy is unusable."""
    leaving = leaving_of(flow) if flow.select else None
    return Selection(
        flow.topics,
        flow.exclude,
        flow.target,
        naming_of(flow),
        flow.mm2_records.separator,
        leaving,
        always=lambda topic: flow.heartbeats.replicate and is_heartbeats(topic, flow.separator),
    )


def properties_of(flow: FlowConfig) -> Properties:
    """Return the policy that decides which topic configs the flow syncs. Raises ConfigError if a policy is unusable."""
    base = properties(flow.sync.use_defaults_from, flow.sync.exclude_configs)
    text = flow.sync.filter_configs
    if not text:
        return base
    made = make(PROPERTIES, text, flow.source, flow.target, flow.sync.filter_settings)
    return GuardedProperties(f'filter_configs "{text}"', cast(PropertyPolicy, made), base)


def record_filter_of(flow: FlowConfig) -> GuardedFilter | None:
    """Return the filter for the flow's records, or None if all records are copied. Raises ConfigError if the filter is
    unusable.
    """
    text, settings = flow.records.filter, flow.records.filter_settings
    if not text:
        return None
    made = make(RECORD_FILTER, text, flow.source, flow.target, settings, FILTERS.get(text))
    return GuardedFilter(f'filter "{text}"', cast(RecordFilter, made))


def record_transform_of(flow: FlowConfig) -> GuardedTransform | None:
    """Return the transform for the flow's records, or None if the flow does not change records. Raises ConfigError if
    the transform is unusable.
    """
    text, settings = flow.records.transform, flow.records.transform_settings
    if not text:
        return None
    made = make(RECORD_TRANSFORM, text, flow.source, flow.target, settings, TRANSFORMS.get(text))
    return GuardedTransform(f'transform "{text}"', cast(RecordTransform, made))


def leaving_of(flow: FlowConfig) -> GuardedSelection:
    """Return the selection policy that the user has set with `select`. The policy may refuse topics that the patterns
    in `topics` and `exclude` accept. Raises ConfigError if the policy is unusable.
    """
    key = ("select", flow.select, flow.source, flow.target, _text(flow.select_settings))
    if key not in _made:
        made = make(SELECTION, flow.select, flow.source, flow.target, flow.select_settings)
        _made[key] = GuardedSelection(f'select "{flow.select}"', cast(SelectionPolicy, made))
    return cast(GuardedSelection, _made[key])
