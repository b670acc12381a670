"""The effects that a replicator performs for lanes whose target refuses a record."""

from collections.abc import Callable, Coroutine
from typing import Any

from mirrord.ledger.store.store import LedgerStore
from mirrord.replication.host.dead_letter_writer import Parker
from mirrord.replication.host.hosted_lane import Hosted
from mirrord.replication.host.target_configs import SettingsLook
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import AskSettings, Effect, Park


class Refusals:
    """The handling of refused records for all lanes of one replicator."""

    def __init__(
        self, setup: FlowSetup, store: LedgerStore, begin: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`begin` runs a coroutine as a task, at most until the task's owner ends."""
        self._look = SettingsLook(setup, store, begin)
        self.performs: dict[type[Effect], Callable[[Hosted, Any], object]] = {
            Park: Parker(setup, begin).ask,
            AskSettings: self._look.ask,
        }

    async def close(self) -> None:
        """Close the connections."""
        await self._look.close()
