"""`mirrord stop`: drains and stops the daemons of a configuration, regardless of which machines they run on."""

import argparse
import asyncio
import time

from mirrord.cli.arguments import Verbs, add_conf, add_verb, load_conf
from mirrord.cli.order_verbs import author
from mirrord.cli.printing import print_lines
from mirrord.config.schema import Config
from mirrord.control.command_sender import CommandRefused, NoAnswer
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers
from mirrord.supervision.daemon_http_client import order_stop

DRAINED_S = 15.0
"""How many seconds to wait for a daemon to drain. Draining takes at most 10 seconds."""
POLL_S = 0.5
_EPILOG = """The daemon is found through its flows' leases on the target cluster. If there is a standby, it takes over
the flows."""


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord stop`."""
    add_conf(add_verb(verbs, "stop", "Drain a daemon's lanes and stop it.", _EPILOG))


def run(arguments: argparse.Namespace) -> int:
    """Stop the daemons of the configuration, and wait until they have released their flows. Raises EnvironmentFault."""
    print_lines(asyncio.run(_stop(load_conf(arguments))))
    return 0


async def _stop(config: Config) -> list[str]:
    """Stop the daemons, and return one line of text for each stopped daemon. Raises EnvironmentFault."""
    access = ClusterAccess(config, PATIENCE_S)
    views = await read_ledgers(config, access)
    faults = [f"flow {name}: {view}" for name, view in views.items() if _is_fault(view)]
    addresses = sorted({view.http for view in views.values() if isinstance(view, LedgerView) and view.http})
    lines: list[str] = []
    for address in addresses:
        try:
            await order_stop(address, config, author())
        except (NoAnswer, CommandRefused) as fault:
            faults.append(str(fault))
        else:
            await _until_left(config, access, address)
            lines.append(f"stopped the daemon at {address}")
    if faults:
        raise EnvironmentFault("\n".join([*lines, *faults]))
    return lines or ["no daemon is running these flows"]


async def _until_left(config: Config, access: ClusterAccess, address: str) -> None:
    deadline = time.monotonic() + DRAINED_S
    while True:
        views = await read_ledgers(config, access)
        if not any(isinstance(view, LedgerView) and view.http == address for view in views.values()):
            return
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"the daemon at {address} has not released its flows within {DRAINED_S:g} s")
        await asyncio.sleep(POLL_S)


def _is_fault(view: LedgerView | MirrordError) -> bool:
    return isinstance(view, MirrordError) and not isinstance(view, LedgerMissing)
