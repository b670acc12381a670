"""Performs the effects that lanes request when the target refuses a record."""

from collections.abc import Callable
from typing import Any

from mirrord.ledger.store.store import LedgerStore
from mirrord.replication.host.dead_letter_writer import DeadLetterWriter
from mirrord.replication.host.hosted_lane import Begin, HostedLane
from mirrord.replication.host.target_configs import TargetConfigs
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import AskConfigs, Effect, Park


class Refusals:
    """Handles refused records for all lanes of one replicator."""

    def __init__(self, setup: FlowSetup, store: LedgerStore, begin: Begin) -> None:
        """`begin` runs a coroutine as a background task, which is cancelled when the `LaneHost` closes."""
        self._look = TargetConfigs(setup, store, begin)
        self.performs: dict[type[Effect], Callable[[HostedLane, Any], object]] = {
            Park: DeadLetterWriter(setup, begin).ask,
            AskConfigs: self._look.ask,
        }

    async def close(self) -> None:
        """Close the connections that were used to read topic configs."""
        await self._look.close()
