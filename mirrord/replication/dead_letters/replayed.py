"""Finds out which skipped records were replayed into the target.

Each replay of a record leaves a receipt in the dead-letter topic. This module reads the receipts.
"""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.quarantine import KEPT
from mirrord.ledger.state import FlowState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.dead_letters.records import Returned
from mirrord.replication.dead_letters.topic import DeadLetters


class BroughtBack(NamedTuple):
    """The records of a flow that were replayed from the dead-letter topic, or the reason why they are not known."""

    lanes: Mapping[LaneId, list[Returned]]
    trouble: str = ""
    """Why the replayed records are not known, in one line. Empty if they are known."""


async def brought_back(config: Config, flow: FlowConfig, state: FlowState) -> BroughtBack:
    """Return the records of a flow that were replayed from the dead-letter topic.

    The dead-letter topic is read only if, according to the ledger, a record was parked in it.
    """
    first = parked_from(state)
    if first is None:
        return BroughtBack({})
    letters = DeadLetters(flow, config.clusters[flow.source], config.clusters[flow.target])
    try:
        return BroughtBack(await letters.all_returned(first))
    except (ConfigError, EnvironmentFault) as fault:
        return BroughtBack({}, f"flow {flow.name}: it is not known what was brought back: {fault}")


def parked_from(state: FlowState) -> int | None:
    """Return the offset of the first parked record in the dead-letter topic, according to the ledger. Return -1 if the
    offset is not known, and None if no record was parked."""
    entries = [each for lane in state.lanes.values() for each in lane.quarantine if each.letters > 0]
    if not entries:
        return None
    # The state keeps a limited number of quarantined ranges per lane, so the oldest ones may be missing.
    is_all = all(len(lane.quarantine) < KEPT for lane in state.lanes.values())
    return min(each.letters_at for each in entries) if is_all else -1
