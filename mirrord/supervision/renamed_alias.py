"""Recognises a source cluster whose alias was changed in the configuration file.

The names of target topics contain the alias, so all topics would be copied again under other names. The ledger knows
the cluster by its id, and it knows the names of the target topics. A start with a changed alias is refused, and the new
alias is not adopted, because flows of the opposite direction recognise copies by the alias in the name. They would copy
the topics that carry the former alias back to their origin.
"""

from collections.abc import Callable

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.ledger.errors import AliasChanged
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import PolicyFault
from mirrord.model.names import Alias
from policies.flow_policies import naming_of
from policies.naming import is_heartbeats


def check_alias(flow: FlowConfig, state: FlowState) -> None:
    """Raise AliasChanged if the newest target topics have the names that another alias of the source produces."""
    lanes = [
        lane
        for lane in state.lanes.values()
        if lane.key.source_topic_id not in state.named and not is_heartbeats(lane.source_topic, flow.separator)
    ]
    if not lanes:
        return
    # Compactions and audits change lanes that are no longer in use, so both orderings must agree.
    newest, last_used = max(lanes, key=_opened), max(lanes, key=_used)
    former = _other_alias(flow, newest)
    if not former or _other_alias(flow, last_used) != former:
        return
    present = naming_of(flow).target_topic(newest.source_topic)
    raise AliasChanged(
        f"flow {flow.name}: its source, cluster {state.source_cluster}, was called {former} and is called {flow.source}"
        f" now: {newest.source_topic} was copied into {newest.target_topic} and would be copied again into {present};"
        f" call the cluster {former} again to continue, or give the flow another name to copy everything again"
    )


def _opened(lane: LaneState) -> tuple[int, int]:
    return lane.opened_at, lane.changed_at


def _used(lane: LaneState) -> tuple[int, int]:
    return lane.changed_at, lane.opened_at


def _other_alias(flow: FlowConfig, lane: LaneState) -> Alias:
    """Return the alias that gives the target topic its name; empty if that is the current alias, or none."""
    alias = Alias(lane.target_topic.removesuffix(flow.separator + lane.source_topic))
    if alias in {"", lane.target_topic, flow.source}:
        return Alias("")
    return alias if _name(flow, alias, lane) == lane.target_topic != _name(flow, flow.source, lane) else Alias("")


def _name(flow: FlowConfig, alias: Alias, lane: LaneState) -> str:
    name: Callable[[str], str] = naming_of(msgspec.structs.replace(flow, source=alias)).target_topic
    try:
        return name(lane.source_topic)
    except PolicyFault:
        return ""
