"""Which records that were left out stand in the target after all: told by receipts in the dead-letter topic."""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.ledger.state import FlowState
from mirrord.model.config import Config, FlowConfig
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.letters import Returned
from mirrord.model.names import LaneId
from mirrord.model.quarantine import KEPT
from mirrord.shell.dead_letters import DeadLetters


class BroughtBack(NamedTuple):
    """What is known of it."""

    lanes: Mapping[LaneId, list[Returned]]
    trouble: str = ""
    """Why it is not known; one line."""


async def brought_back(config: Config, flow: FlowConfig, state: FlowState) -> BroughtBack:
    """Nothing is asked for where the ledger knows of no parked record."""
    first = parked_from(state)
    if first is None:
        return BroughtBack({})
    letters = DeadLetters(flow, config.clusters[flow.source], config.clusters[flow.target])
    try:
        return BroughtBack(await letters.all_returned(first))
    except (ConfigError, EnvironmentFault) as fault:
        return BroughtBack({}, f"flow {flow.name}: what was brought back is not known: {fault}")


def parked_from(state: FlowState) -> int | None:
    """Where in the dead-letter topic the records begin that the ledger knows to be parked; None: it knows of none."""
    entries = [each for lane in state.lanes.values() for each in lane.quarantine if each.letters > 0]
    if not entries:
        return None
    # Of a lane with more entries the first ones are forgotten.
    is_all = all(len(lane.quarantine) < KEPT for lane in state.lanes.values())
    return min(each.letters_at for each in entries) if is_all else -1
