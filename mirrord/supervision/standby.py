"""Whether a daemon that stands by would go on as the one that holds the lease: it is asked what `apply` would change.

After a take-over this daemon's own file counts, so whoever looks at a standby has to know of a difference before.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from mirrord.config.changes import DAEMONS_OWN, ConfigChanges, FlowChange
from mirrord.config.schema import Config
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.upgrade.daemon_client import Refused, order_apply

EVERY_S = 30.0
SOON_S = 2.0
"""While nothing is known yet."""

log = structlog.get_logger()


class StandbyLook:
    """For one daemon."""

    def __init__(self, config: Callable[[], Config], holders: Callable[[], Mapping[str, str]]) -> None:
        """`holders`: the flows that stand by here, and the addresses of the daemons that have them."""
        self.remarks: dict[str, str] = {}
        """One line for each flow that differs."""
        self._config = config
        self._holders = holders

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            holders = self._holders()
            changes = {http: await self._ask(http) for http in set(holders.values())}
            told = {flow: _difference(flow, http, changes[http]) for flow, http in holders.items()}
            for flow, line in told.items():
                if line and self.remarks.get(flow) != line:
                    log.warning("standby_differs", flow=flow, reason=line)
            self.remarks = {flow: line for flow, line in told.items() if line}
            await asyncio.sleep(EVERY_S if holders and None not in changes.values() else SOON_S)

    async def _ask(self, http: str) -> ConfigChanges | None:
        """None while that is not known."""
        try:
            return await order_apply(http, self._config(), dry_run=True)
        except Refused:
            return ConfigChanges()  # it takes no orders from here, and will not soon
        except EnvironmentFault:
            return None  # it may be about to end


def _difference(flow: str, http: str, changes: ConfigChanges | None) -> str:
    if changes is None:
        return ""
    refused = [line for line in changes.refused if line.partition(":")[0] not in DAEMONS_OWN]
    lines = [*refused, *(_line(change) for change in changes.flows if change.flow == flow)]
    lines += changes.for_all
    if not lines:
        return ""
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"stands by with another configuration than {http} runs by: {lines[0]}{more}"


def _line(change: FlowChange) -> str:
    return "; ".join(change.lines) or change.kind
