"""What a replicator does for lanes whose target refuses a record."""

from collections.abc import Callable, Coroutine
from typing import Any

from mirrord.flow.signals import AskSettings, Effect, Park
from mirrord.model.assignment import FlowSetup
from mirrord.shell.hosted import Hosted
from mirrord.shell.ledger_store import LedgerStore
from mirrord.shell.parker import Parker
from mirrord.shell.settings_look import SettingsLook


class Refusals:
    """Of all lanes of one replicator."""

    def __init__(
        self, setup: FlowSetup, store: LedgerStore, begin: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        """`begin` runs a task until its owner ends."""
        self._look = SettingsLook(setup, store, begin)
        self.performs: dict[type[Effect], Callable[[Hosted, Any], object]] = {
            Park: Parker(setup, begin).ask,
            AskSettings: self._look.ask,
        }

    async def close(self) -> None:
        """End the connections."""
        await self._look.close()
