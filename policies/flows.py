"""The policies of one flow, built-in or third-party, created from its configuration.

Callers that ask twice for the same third-party policy get the same object, because the object keeps its answers. The
first request loads the policy: an unusable policy raises ConfigError. `LOADING` detects this while a file is read, and
`policy_faults` does so if a configuration arrives in another way.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from mirrord.config.cross_checks import literal_prefix, selects
from mirrord.config.policy_checks import needless_settings, record_policies, third_party
from mirrord.config.policy_names import is_built_in
from mirrord.config.schema import Config, FlowConfig
from mirrord.model.errors import ConfigError, PolicyFault
from policies.contracts import NamingPolicy, PropertyPolicy, RecordFilter, RecordTransform, SelectionPolicy
from policies.guarded import GuardedNaming, GuardedProperties, GuardedSelection
from policies.guarded_records import GuardedFilter, GuardedTransform
from policies.loading import NAMING, PROPERTIES, RECORD_FILTER, RECORD_TRANSFORM, SELECTION, make
from policies.naming import Naming, is_heartbeats, naming
from policies.properties import Properties, properties
from policies.records import FILTERS, TRANSFORMS
from policies.selecting import Selection, is_internal

EXAMPLES = ("orders", "payments.card", "a_b-C.9")
"""Topic names that a policy is tried with, if the flow's lists accept them."""
SETTINGS = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "index.interval.bytes",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.insync.replicas",
    "preallocate",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
"""Topic configs that a filter is tried with (org.apache.kafka.common.config.TopicConfig)."""

_made: dict[tuple[str, ...], object] = {}


class Loading:
    """A `mirrord.config.policy_checks.PolicyCheck` that loads the policies and tries them."""

    def faults(self, flow: FlowConfig) -> Iterator[tuple[str, str]]:
        yield from needless_settings(flow)
        needed = {key: None for key, _, _ in (*third_party(flow), *record_policies(flow))}
        for key in needed:
            try:
                _try(flow, key)
            except (ConfigError, PolicyFault) as fault:
                yield key, str(fault)

    def tells_origin(self, flow: FlowConfig) -> bool:
        if is_built_in(flow.naming):
            return flow.naming == "prefix"
        try:
            return _tells_origin(flow)
        except (ConfigError, PolicyFault):
            return False


LOADING = Loading()


def policy_faults(config: Config) -> list[str]:
    """Return a line for each policy that cannot be used in this process."""
    return [f"flow {flow.name}: {key}: {line}" for flow in config.flows for key, line in LOADING.faults(flow)]


def naming_of(flow: FlowConfig) -> Naming:
    """Return the naming of the flow's target topics. Raises ConfigError."""
    if is_built_in(flow.naming):
        return naming(flow.naming, flow.source, flow.separator)
    parts = (flow.naming, flow.source, flow.target, flow.separator, flow.mm2_records.separator)
    key = ("naming", *parts, repr(flow.naming_settings))
    if key not in _made:
        made = make(NAMING, flow.naming, flow.source, flow.target, flow.naming_settings)
        policy = cast(NamingPolicy, made)
        label = f'naming "{flow.naming}"'
        _made[key] = GuardedNaming(label, policy, flow.source, flow.separator, flow.mm2_records.separator)
    return cast(GuardedNaming, _made[key])


def selection_of(flow: FlowConfig) -> Selection:
    """Return the selection of the topics that the flow copies. Raises ConfigError."""
    leaving = _leaving(flow) if flow.select else None
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
    """Return the rule for the topic configs that the flow syncs. Raises ConfigError."""
    base = properties(flow.sync.use_defaults_from, flow.sync.exclude_configs)
    text = flow.sync.filter_configs
    if not text:
        return base
    made = make(PROPERTIES, text, flow.source, flow.target, flow.sync.filter_settings)
    return GuardedProperties(f'filter_configs "{text}"', cast(PropertyPolicy, made), base)


def record_filter_of(flow: FlowConfig) -> GuardedFilter | None:
    """Return the filter of the flow's records, or None if all are copied. Raises ConfigError."""
    text, settings = flow.records.filter, flow.records.filter_settings
    if not text:
        return None
    made = make(RECORD_FILTER, text, flow.source, flow.target, settings, FILTERS.get(text))
    return GuardedFilter(f'filter "{text}"', cast(RecordFilter, made))


def record_transform_of(flow: FlowConfig) -> GuardedTransform | None:
    """Return the transform of the flow's records, or None if they are not changed. Raises ConfigError."""
    text, settings = flow.records.transform, flow.records.transform_settings
    if not text:
        return None
    made = make(RECORD_TRANSFORM, text, flow.source, flow.target, settings, TRANSFORMS.get(text))
    return GuardedTransform(f'transform "{text}"', cast(RecordTransform, made))


def _leaving(flow: FlowConfig) -> GuardedSelection:
    key = ("select", flow.select, flow.source, flow.target, repr(flow.select_settings))
    if key not in _made:
        made = make(SELECTION, flow.select, flow.source, flow.target, flow.select_settings)
        _made[key] = GuardedSelection(f'select "{flow.select}"', cast(SelectionPolicy, made))
    return cast(GuardedSelection, _made[key])


def _try(flow: FlowConfig, key: str) -> None:
    """Try a policy with a few questions. Raises ConfigError if there is no such policy, and PolicyFault if an answer is
    wrong."""
    match key:
        case "naming":
            names = naming_of(flow)
            for topic in _examples(flow):
                if not _left_out(flow, topic):
                    names.hops(names.target_topic(topic))
                    names.target_prefix(topic)
        case "records.filter":
            record_filter_of(flow)
        case "records.transform":
            record_transform_of(flow)
        case "select":
            for topic in _examples(flow):
                _leaving(flow).refusal(topic)
        case _:
            rule = properties_of(flow)
            for name in SETTINGS:
                rule.passes(name)
                rule.takes_default(name)
            if rule.faults:
                raise PolicyFault(rule.faults[0])


def _left_out(flow: FlowConfig, topic: str) -> bool:
    try:
        return bool(flow.select) and _leaving(flow).refusal(topic) is not None
    except (ConfigError, PolicyFault):
        return True  # reported for `select`


def _examples(flow: FlowConfig) -> Iterable[str]:
    """Return a few topics that the flow's lists accept. A policy is never asked about others."""
    begun = [literal_prefix(pattern) for pattern in flow.topics]
    names = [*EXAMPLES, *begun, *(f"{each}orders" for each in begun)]
    return [name for name in dict.fromkeys(names) if name and selects(flow, name) and not is_internal(name)]


def _tells_origin(flow: FlowConfig) -> bool:
    """Return whether names show both sides that a topic has passed them, even after a second hop."""
    here = naming_of(flow)
    back = _turned(flow)
    for topic in _examples(flow) or EXAMPLES[:1]:
        there = here.target_topic(topic)
        if flow.source not in back.hops(there):
            return False
        if not {flow.source, flow.target}.issubset(here.hops(back.target_topic(there))):
            return False
    return True


def _turned(flow: FlowConfig) -> GuardedNaming:
    made = make(NAMING, flow.naming, flow.target, flow.source, flow.naming_settings)
    label = f'naming "{flow.naming}"'
    return GuardedNaming(label, cast(NamingPolicy, made), flow.target, flow.separator, flow.mm2_records.separator)
