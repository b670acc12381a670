"""Checks whether a standby daemon has the same configuration as the daemon that holds the lease.

The standby asks the lease holder for the digests of its configuration, and compares them with its own. After a
takeover, the standby uses its own configuration file. The check informs operators of any difference before a takeover
happens. It needs no permission to give commands.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from mirrord.config.digests import ConfigDigests, differences, digests
from mirrord.config.schema import Config
from mirrord.control.command_sender import CommandRefused
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.daemon_http_client import ask_configuration

EVERY_S = 30.0
SOON_S = 2.0
"""Interval between checks while no lease holder is known, or while a lease holder is not answering."""

log = structlog.get_logger()


class StandbyLook:
    """Regularly compares the configuration of a standby daemon with the configurations of the lease holders."""

    def __init__(self, config: Callable[[], Config], holders: Callable[[], Mapping[str, str]]) -> None:
        """Store the two functions. `holders` returns, for each flow for which this daemon is a standby, the HTTP
        address of the lease holder."""
        self.remarks: dict[str, str] = {}
        """One line for operators about each flow with a different configuration."""
        self._config = config
        self._holders = holders

    async def run(self) -> None:
        """Check the configurations regularly until cancelled."""
        while True:
            holders = self._holders()
            config = self._config()
            theirs = {http: await _ask(http, config) for http in set(holders.values())}
            found = {flow: _difference(config, flow, http, theirs[http]) for flow, http in holders.items()}
            for flow, line in found.items():
                if line and self.remarks.get(flow) != line:
                    log.warning("standby_differs", flow=flow, reason=line)
            self.remarks = {flow: line for flow, line in found.items() if line}
            await asyncio.sleep(EVERY_S if holders and None not in theirs.values() else SOON_S)


async def _ask(http: str, config: Config) -> ConfigDigests | str | None:
    """Return the digests of the configuration of the daemon at this address, or why it refuses to give them, or None if
    it does not answer."""
    try:
        return await ask_configuration(http, config)
    except CommandRefused as refusal:
        return str(refusal)
    except EnvironmentFault:
        return None  # the daemon may be about to end


def _difference(config: Config, name: str, http: str, theirs: ConfigDigests | str | None) -> str:
    flow = next((each for each in config.flows if each.name == name), None)
    if theirs is None or flow is None:
        return ""
    if isinstance(theirs, str):
        return f"is a standby whose configuration cannot be compared: {theirs}"
    found = list(differences(digests(config), theirs, name, (flow.source, flow.target)))
    if not found:
        return ""
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"is a standby with a different configuration from that of {http}: {found[0]}{more}"
