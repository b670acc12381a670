"""The command-line part of `mirrord start --upgrade`: it finds the running daemon that is to be replaced, and reports
the replacement."""

import argparse
import sys

import structlog

from mirrord.cli.order_verbs import author
from mirrord.cli.printing import clean
from mirrord.config.schema import Config
from mirrord.control.command_sender import NoAnswer
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, EnvironmentFault, MirrordError
from mirrord.operations.status_report import LedgerView, read_ledgers
from mirrord.runtime.build_info import program
from mirrord.supervision.daemon_http_client import hand_over
from mirrord.supervision.upgrade.protocol import HandoverCall, HandoverTerms, Predecessor, Successor

ASK_S = 5.0

log = structlog.get_logger()


def check_upgrade(arguments: argparse.Namespace) -> None:
    """Raise ConfigError if `--upgrade` is combined with an incompatible option."""
    if arguments.upgrade and (arguments.dry_run or arguments.until_caught_up):
        other = "--dry-run" if arguments.dry_run else "--until-caught-up"
        raise ConfigError(f"--upgrade takes over from a daemon that keeps copying: it cannot be combined with {other}")


async def find_predecessor(config: Config, access: ClusterAccess) -> Predecessor:
    """Find the daemon that runs the flows of this configuration, and print that daemon's version. Raises ConfigError or
    EnvironmentFault if there is no such daemon, or if that daemon cannot hand its flows over to this one."""
    http = _address(await read_ledgers(config, access))
    try:
        answer = await hand_over(http, config, HandoverCall(verb="terms"), ASK_S)
    except NoAnswer as fault:
        raise EnvironmentFault(
            f"{fault}: it cannot be taken over from. If its version does not know --upgrade, `mirrord stop` and "
            "`mirrord start` do the same with a pause"
        ) from fault
    if answer.refused:
        raise EnvironmentFault(f"the daemon at {http} cannot be taken over from: {answer.refused}")
    terms = answer.terms
    if terms is None:
        raise EnvironmentFault(f"the daemon at {http} does not report what it is running")
    _check(http, terms, config)
    same = ", the same version" if terms.program == program() else ""
    # A client that can write to the ledger can name the address of another server, and that server chooses its answer.
    print(clean(f"mirrord {program()} takes over from mirrord {terms.program} at {http}{same}"), file=sys.stderr)
    log.info("upgrade_begins", predecessor=http, before=terms.program, now=program())
    return Predecessor(http, terms.program, terms.daemon, author())


def print_replacement(successor: Successor) -> None:
    """Print which daemon has replaced this daemon."""
    print(clean(f"mirrord {program()} is replaced by mirrord {successor.program} at {successor.http}"), file=sys.stderr)


def _address(views: dict[str, LedgerView | MirrordError]) -> str:
    held = {name: view.http for name, view in views.items() if isinstance(view, LedgerView) and view.http}
    # The daemon that is to be replaced may well run if only this configuration cannot read its ledger.
    unread = [f"flow {name}: {view}" for name, view in sorted(views.items()) if _is_unread(view)]
    if not held and unread:
        raise EnvironmentFault("\n".join(unread))
    if not held:
        raise EnvironmentFault(
            "no daemon is running these flows, so there is none to take over from: start without --upgrade"
        )
    addresses = sorted(set(held.values()))
    if len(addresses) > 1:
        shown = "; ".join(f"{name} at {http}" for name, http in sorted(held.items()))
        raise ConfigError(f"--upgrade takes over from one daemon, and several are running these flows: {shown}")
    return addresses[0]


def _is_unread(view: LedgerView | MirrordError) -> bool:
    return isinstance(view, MirrordError) and not isinstance(view, LedgerMissing)


def _check(http: str, terms: HandoverTerms, config: Config) -> None:
    """Raise ConfigError if the running daemon differs from this configuration in its flows, its instance name or its
    `lease_ttl`."""
    there, here = set(terms.flows), {flow.name for flow in config.flows}
    if there != here:
        raise ConfigError(
            f"the daemon at {http} is running different flows ({', '.join(sorted(there))}) from those in this "
            f"configuration ({', '.join(sorted(here))}): --upgrade takes over all flows of one daemon, and `mirrord "
            "apply` changes them"
        )
    if terms.instance != config.instance:
        raise ConfigError(
            f'the daemon at {http} is the instance "{terms.instance}", but this configuration names '
            f'"{config.instance}": '
            "--upgrade keeps the name"
        )
    if terms.lease_ttl_ms != config.runtime.lease_ttl_ms:
        raise ConfigError(
            f"runtime.lease_ttl is {terms.lease_ttl_ms / 1000:g} s at {http} and "
            f"{config.runtime.lease_ttl_ms / 1000:g} s here: --upgrade keeps it; stop and start the daemon to change it"
        )
