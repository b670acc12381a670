"""Tries out the policies of a configuration before a flow uses them. Each policy is loaded. Policies for topics and
configs are also called with a few example names.

`LOADING` tries out the policies while a configuration file is being read. `policy_faults` tries out the policies of a
configuration that another process has read.
"""

from collections.abc import Iterable, Iterator
from typing import cast

from mirrord.config.cross_checks import literal_prefix, selects
from mirrord.config.policy_checks import needless_settings, record_policies, third_party
from mirrord.config.policy_names import is_built_in
from mirrord.config.schema import Config, FlowConfig
from mirrord.model.errors import ConfigError, PolicyFault
from policies.class_loading import NAMING, make
from policies.contracts import NamingPolicy
from policies.flow_policies import leaving_of, naming_of, properties_of, record_filter_of, record_transform_of
from policies.guarded_topics import GuardedNaming
from policies.selecting import is_internal

EXAMPLES = ("orders", "payments.card", "a_b-C.9")
"""Topic names with which a policy is tried. A name is used only if the flow's patterns `topics` and `exclude` accept
it."""
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
"""Names of topic configs with which `sync.filter_configs` is tried (org.apache.kafka.common.config.TopicConfig)."""


class Loading:
    """A `mirrord.config.policy_checks.PolicyCheck` that loads the policies of a flow and tries them."""

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
    """Return a line for each policy of the configuration that cannot be used in this process."""
    return [f"flow {flow.name}: {key}: {line}" for flow in config.flows for key, line in LOADING.faults(flow)]


def _try(flow: FlowConfig, key: str) -> None:
    """Load the policy under this configuration key. Unless it is a policy for records, also call it with a few example
    names. Raises ConfigError if the policy cannot be loaded, and PolicyFault if a result is invalid."""
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
                leaving_of(flow).refusal(topic)
        case _:
            rule = properties_of(flow)
            for name in SETTINGS:
                rule.passes(name)
                rule.takes_default(name)
            if rule.faults:
                raise PolicyFault(rule.faults[0])


def _left_out(flow: FlowConfig, topic: str) -> bool:
    try:
        return bool(flow.select) and leaving_of(flow).refusal(topic) is not None
    except (ConfigError, PolicyFault):
        return True  # the fault is reported under the key `select`


def _examples(flow: FlowConfig) -> Iterable[str]:
    """Return a few example names that the flow's patterns `topics` and `exclude` accept. A policy need not support
    other names."""
    begun = [literal_prefix(pattern) for pattern in flow.topics]
    names = [*EXAMPLES, *begun, *(f"{each}orders" for each in begun)]
    return [name for name in dict.fromkeys(names) if name and selects(flow, name) and not is_internal(name)]


def _tells_origin(flow: FlowConfig) -> bool:
    """Return whether the naming shows every cluster that a topic has passed through, even after the topic has been
    copied back. The check uses this flow and a flow in the opposite direction with the same naming."""
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
