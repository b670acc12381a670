"""Checks whether a standby daemon has the same configuration as the daemon that holds the lease.

The standby asks the lease holder which changes `apply` would make with the standby's configuration. After a takeover,
the standby uses its own configuration file. The check informs operators of any difference before a takeover happens.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from mirrord.config.changes import DAEMONS_OWN, ConfigChanges, FlowChange
from mirrord.config.schema import Config
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.daemon_http_client import CommandRefused, order_apply

EVERY_S = 30.0
SOON_S = 2.0
"""Interval between checks while no lease holder is known, or while a lease holder is not answering."""

log = structlog.get_logger()


class StandbyLook:
    """Regularly compares the configuration of a standby daemon with the configurations of the lease holders."""

    def __init__(self, config: Callable[[], Config], holders: Callable[[], Mapping[str, str]]) -> None:
        """Store the two functions. `holders` returns, for each flow of which this daemon is a standby, the HTTP address
        of the lease holder."""
        self.remarks: dict[str, str] = {}
        """One line for operators about each flow with a different configuration."""
        self._config = config
        self._holders = holders

    async def run(self) -> None:
        """Check the configurations regularly until cancelled."""
        while True:
            holders = self._holders()
            changes = {http: await self._ask(http) for http in set(holders.values())}
            differences = {flow: _difference(flow, http, changes[http]) for flow, http in holders.items()}
            for flow, line in differences.items():
                if line and self.remarks.get(flow) != line:
                    log.warning("standby_differs", flow=flow, reason=line)
            self.remarks = {flow: line for flow, line in differences.items() if line}
            await asyncio.sleep(EVERY_S if holders and None not in changes.values() else SOON_S)

    async def _ask(self, http: str) -> ConfigChanges | None:
        """Return how the configuration of the daemon at this address differs from this daemon's own, or None if the
        difference is unknown."""
        try:
            return await order_apply(http, self._config(), dry_run=True)
        except CommandRefused:
            return ConfigChanges()  # the daemon accepts no commands from here, which will not change soon
        except EnvironmentFault:
            return None  # the daemon may be about to end


def _difference(flow: str, http: str, changes: ConfigChanges | None) -> str:
    if changes is None:
        return ""
    refused = [line for line in changes.refused if line.partition(":")[0] not in DAEMONS_OWN]
    lines = [*refused, *(_line(change) for change in changes.flows if change.flow == flow)]
    lines += changes.for_all
    if not lines:
        return ""
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    return f"is a standby with a different configuration from that of {http}: {lines[0]}{more}"


def _line(change: FlowChange) -> str:
    return "; ".join(change.lines) or change.kind
