"""Finds skipped records that are in the target after all, from the receipts in the dead-letter topic."""

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
    """The records that were brought back, if they are known."""

    lanes: Mapping[LaneId, list[Returned]]
    trouble: str = ""
    """Why the records are not known, in one line."""


async def brought_back(config: Config, flow: FlowConfig, state: FlowState) -> BroughtBack:
    """Return the records of a flow that were brought back.

    The dead-letter topic is not read if no record is parked according to the ledger.
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
    """Return where in the dead-letter topic the records known as parked begin; None if the ledger knows of none."""
    entries = [each for lane in state.lanes.values() for each in lane.quarantine if each.letters > 0]
    if not entries:
        return None
    # If a lane has more entries than are kept, the first ones are forgotten.
    is_all = all(len(lane.quarantine) < KEPT for lane in state.lanes.values())
    return min(each.letters_at for each in entries) if is_all else -1
