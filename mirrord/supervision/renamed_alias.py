"""Detects that the alias of a flow's source cluster has changed in the configuration file, and refuses to start the
flow.

The names of target topics contain the alias, so all topics would be copied again under different names. The change is
detected because the ledger contains the cluster id and the names of the target topics. Continuing with the former names
would not be safe. Flows in the opposite direction recognize copies by the alias in the topic name. They would not
recognize topics with the former alias as copies, and would copy these topics back to their origin.
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
    """Raise AliasChanged if the names of the newest target topics contain a different alias for the source."""
    lanes = [
        lane
        for lane in state.lanes.values()
        if lane.key.source_topic_id not in state.named and not is_heartbeats(lane.source_topic, flow.separator)
    ]
    if not lanes:
        return
    # The lane that was changed last is not sufficient evidence, because audits and compactions also change lanes that
    # are no longer in use. It must lead to the same alias as the lane that was opened last.
    newest, last_used = max(lanes, key=_opened), max(lanes, key=_used)
    former = _other_alias(flow, newest)
    if not former or _other_alias(flow, last_used) != former:
        return
    present = naming_of(flow).target_topic(newest.source_topic)
    raise AliasChanged(
        f"flow {flow.name}: its source, cluster {state.source_cluster}, was called {former} and is now called "
        f"{flow.source}: {newest.source_topic} was copied into {newest.target_topic} and would be copied again into "
        f"{present};"
        f" call the cluster {former} again to continue, or give the flow a different name to copy everything again"
    )


def _opened(lane: LaneState) -> tuple[int, int]:
    return lane.opened_at, lane.changed_at


def _used(lane: LaneState) -> tuple[int, int]:
    return lane.changed_at, lane.opened_at


def _other_alias(flow: FlowConfig, lane: LaneState) -> Alias:
    """Return the former alias of the source that the name of the target topic contains, or an empty string if the name
    contains the current alias or no alias."""
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
