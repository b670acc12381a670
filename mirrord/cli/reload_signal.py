"""Handles SIGHUP: the daemon reads its configuration file again and applies the changes. A daemon that was started from
a terminal stops instead, because SIGHUP then means that the terminal has been closed."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from mirrord.cli.arguments import some_flows
from mirrord.config.changes import ConfigChanges
from mirrord.config.loader import load_file
from mirrord.config.schema import Config
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, MirrordError
from mirrord.operations.start_refusals import check_start
from policies.policy_trial import LOADING

Apply = Callable[[Config], Awaitable[ConfigChanges]]

log = structlog.get_logger()


def reload_on_hangup(arguments: argparse.Namespace, apply: Apply, stop: Callable[[], Awaitable[None]]) -> None:
    """Install the SIGHUP handler in the running event loop. `arguments` contains the daemon's command-line
    arguments."""
    # An absolute path still leads to the file after the process has changed its working directory.
    path = str(Path(arguments.conf).absolute())
    tasks: set[asyncio.Task[None]] = set()

    def begin() -> None:
        task = asyncio.create_task(_stop(stop) if sys.stdin.isatty() else _reload(path, arguments, apply))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, begin)


async def _stop(stop: Callable[[], Awaitable[None]]) -> None:
    await stop()


async def _reload(path: str, arguments: argparse.Namespace, apply: Apply) -> None:
    """Reload the configuration file and apply it. If it cannot be applied, nothing changes, and the reason is
    logged."""
    try:
        config, remarks = load_file(path, LOADING)
        config = some_flows(config, arguments)
        for remark in remarks:
            log.warning("configuration_remark", remark=remark)
        access = ClusterAccess(config)
        await check_start(config, access.admin, access.ledger)
        changes = await apply(config)
        if changes.refused:
            raise ConfigError("\n".join(changes.refused))
    except MirrordError as fault:
        log.error("configuration_not_taken", reason=str(fault))
        return
    flows = [change.flow for change in changes.flows]
    log.info("configuration_taken", flows=flows, replicators=changes.replicators)
