"""`mirrord start`: runs the daemon for the flows of a configuration."""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import Protocol

import structlog
import uvloop
from rich.console import Group
from rich.live import Live

from mirrord.cli import start_dry_run
from mirrord.cli.arguments import Verbs, add_conf, add_some_flows, add_verb, some_flows
from mirrord.cli.catch_up_proof_lines import proof_lines
from mirrord.cli.printing import print_lines, print_remarks
from mirrord.cli.reload_signal import reload_on_hangup
from mirrord.cli.start_detached import report_to_parent, start_detached
from mirrord.cli.start_upgrade import check_upgrade, find_predecessor, print_replacement
from mirrord.cli.status_tables import status_table
from mirrord.cli.status_watch import console
from mirrord.config.changes import ConfigChanges
from mirrord.config.loader import load_file
from mirrord.config.own_file import OwnFile
from mirrord.config.schema import Config
from mirrord.daemon.daemon import Supervisor
from mirrord.daemon.own_file import OwnFileReader
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.process_identity import new_identity
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.status import Status
from mirrord.operations.catch_up import CatchUp
from mirrord.operations.rules.weak_settings import weak_lines
from mirrord.operations.start_refusals import check_restart, check_start
from mirrord.runtime import logs
from mirrord.runtime.descriptors import raise_descriptor_limit
from mirrord.supervision.fleet.in_process_engine import ProcessEngine
from mirrord.supervision.upgrade.protocol import Predecessor, Successor
from policies.policy_trial import LOADING

LOOK_S = 1.0
LOOK_SHARE = 0.01
"""The maximum share of a CPU core that gathering the status may use. Gathering takes longer with thousands of lanes, so
the status is then gathered less often."""
PROGRESS_S = 10.0
"""Interval in seconds between progress lines in the log if the output is not a terminal."""
_EPILOG = """Ctrl-C or SIGTERM drains and stops the daemon within 10 seconds. A second Ctrl-C or SIGTERM stops it at
once. The next start resumes after the last record on the target cluster. On SIGHUP, the daemon rereads its file and
applies it, as `mirrord apply` does."""

log = structlog.get_logger()


class Daemon(Protocol):
    """The interface of a daemon that `mirrord start` runs. The daemon's flows run in this process or on Ray."""

    @property
    def dashboard(self) -> str:
        """The address of Ray's dashboard; empty if there is none."""
        ...

    @property
    def dashboard_token_file(self) -> str:
        """The file with the token of Ray's dashboard; empty if this daemon has not started Ray."""
        ...

    @property
    def replaced_by(self) -> Successor | None:
        """The daemon that has taken over all flows, if this daemon stopped for that reason; otherwise None."""
        ...

    async def start(self, predecessor: Predecessor | None = None) -> str:
        """Start the daemon and return the address of its HTTP API. If `predecessor` is given, take over its flows."""
        ...

    async def status(self) -> Status | None:
        """Return the current status of the flows, or None if it is not currently available."""
        ...

    async def reload(self) -> ConfigChanges:
        """Read the configuration file again, and apply it in its entirety or refuse it in its entirety. Raises
        EnvironmentFault."""
        ...

    async def stop(self) -> None:
        """Begin to drain all flows. The method returns without waiting for them to be drained."""
        ...

    async def wait(self) -> None:
        """Wait until the daemon has stopped."""
        ...


def register(verbs: Verbs) -> None:
    """Add the parser for `mirrord start`."""
    parser = add_verb(verbs, "start", "Run a daemon that copies the flows of a configuration.", _EPILOG)
    add_conf(parser)
    add_some_flows(parser)
    parser.add_argument(
        "--until-caught-up",
        action="store_true",
        help="exit when every partition has been copied to its end; exit code 3: there is a loss or a difference",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="only show where each partition would begin, with or without a copy by MirrorMaker 2; exit code 3: a "
        "partition cannot begin",
    )
    parser.add_argument("--json", action="store_true", help="with --dry-run: print one JSON document")
    parser.add_argument(
        "--upgrade",
        action="store_true",
        help="take over these flows, lane by lane, from the daemon that is running them, which then exits; "
        "a lane pauses only while it moves",
    )
    parser.add_argument(
        "--detach", action="store_true", help="run in the background; return when the daemon is running"
    )
    # The pipe through which a detached daemon reports to the command that started it.
    parser.add_argument("--tell-fd", type=int, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Run the daemon, or start it in the background with `--detach`. Raises ConfigError or EnvironmentFault."""
    config, remarks = load_file(arguments.conf, LOADING)
    config = some_flows(config, arguments)
    if arguments.json and not arguments.dry_run:
        raise ConfigError("--json needs --dry-run; `mirrord status --json` shows what is running")
    check_upgrade(arguments)
    if arguments.dry_run:
        return start_dry_run.run(config, as_json=arguments.json)
    if arguments.detach and arguments.until_caught_up:
        raise ConfigError(
            "--until-caught-up exits by itself and reports what was copied: it cannot be combined with --detach"
        )
    remarks = (*remarks, *weak_lines(config))
    detached = arguments.tell_fd is not None
    terminal = sys.stdout.isatty() and not detached
    if arguments.detach or terminal:
        print_remarks(remarks)
    if arguments.detach:
        return start_detached(arguments.conf, _options(arguments))
    log_file = logs.set_up(config.logs.directory, f"{config.instance}-daemon", on_stderr=not terminal and not detached)
    for remark in remarks:
        log.warning("configuration_remark", remark=remark)
    view = _Table(str(log_file.parent)) if terminal else _Lines()
    return uvloop.run(_run(config, str(log_file.parent), view, arguments))


def _options(arguments: argparse.Namespace) -> list[str]:
    """Return the command-line options that a background daemon needs."""
    flows = [word for name in arguments.flows or () for word in ("--flow", name)]
    flows += ["--upgrade"] if arguments.upgrade else []
    return [*flows, "--clusters", *arguments.clusters] if arguments.clusters else flows


async def _run(config: Config, log_directory: str, view: "_Table | _Lines", arguments: argparse.Namespace) -> int:
    raise_descriptor_limit()
    access = ClusterAccess(config)
    # Importing Ray takes seconds. In the meantime, the clusters can be queried.
    own_file = OwnFile.at(arguments.conf, tuple(arguments.flows or ()), tuple(arguments.clusters or ()))
    loading = asyncio.create_task(asyncio.to_thread(_daemon, config, log_directory, own_file))
    await check_start(config, access.admin, access.ledger)
    predecessor = await find_predecessor(config, access) if arguments.upgrade else None
    daemon = await loading
    address = await daemon.start(predecessor)
    waiting = asyncio.create_task(daemon.wait())
    _stop_on_signals(daemon)
    reload_on_hangup(daemon.reload, daemon.stop)
    tell_fd = arguments.tell_fd
    reporting = None if tell_fd is None else asyncio.create_task(report_to_parent(tell_fd, address, daemon.status))
    migration = CatchUp(config, access) if arguments.until_caught_up else None
    ended = _Ended(migration) if migration else None
    with view.of(address, daemon.dashboard, daemon.dashboard_token_file):
        while not waiting.done():
            began = time.thread_time()
            status = await daemon.status()
            took_s = time.thread_time() - began
            if status is not None:
                view.show(status)
                if ended is not None and await ended.now(status):
                    await daemon.stop()
            await asyncio.wait([waiting], timeout=min(max(LOOK_S, took_s / LOOK_SHARE), PROGRESS_S))
    await waiting
    if reporting is not None:
        reporting.cancel()
    if daemon.replaced_by is not None:
        print_replacement(daemon.replaced_by)
    return await ended.outcome() if ended is not None else 0


class _Ended:
    """Determines when a migration has ended (`--until-caught-up`), and proves that it is complete."""

    def __init__(self, migration: CatchUp) -> None:
        self._migration = migration
        self._reached = False
        self._fault: EnvironmentFault | None = None

    async def now(self, status: Status) -> bool:
        """Return whether the migration has just ended. It ends successfully when all records have been copied. It fails
        if a lane is halted or paused, or if a partition is not copied. After this method has returned True once, it
        always returns False."""
        if self._reached or self._fault is not None:
            return False
        try:
            self._reached = await self._migration.reached(status)
        except EnvironmentFault as fault:
            self._fault = fault
        return self._reached or self._fault is not None

    async def outcome(self) -> int:
        """Compare the copies with the final ends of the logs, print the result for each flow, and return the exit code.
        Raises EnvironmentFault if the daemon stopped before all records had been copied."""
        if self._fault is not None:
            raise self._fault
        if not self._reached:
            raise EnvironmentFault("stopped before everything was copied; the next start resumes there")
        proofs = await self._migration.prove()
        for proof in proofs:
            print_lines(proof_lines(proof))
        return 3 if any(proof.differences or proof.losses for proof in proofs) else 0


def _daemon(config: Config, log_directory: str, own_file: OwnFile) -> Daemon:
    if config.runtime.engine == "process":
        return _Here(config, own_file)
    from actors.supervisor_watch import RayDaemon  # noqa: PLC0415 - not always needed, and slow to import

    return RayDaemon(config, log_directory, own_file)


class _Here:
    """A daemon whose flows run in this process."""

    dashboard = dashboard_token_file = ""

    def __init__(self, config: Config, own_file: OwnFile) -> None:
        self._config = config
        self._own_file = OwnFileReader(own_file, check_restart)
        self._supervisor = self._made(None)

    @property
    def replaced_by(self) -> Successor | None:
        """The daemon that has taken over all flows; None if there is none."""
        return self._supervisor.replaced_by

    async def start(self, predecessor: Predecessor | None = None) -> str:
        """Start the flows and open the HTTP API. Return its address."""
        self._supervisor = self._made(predecessor)
        return await self._supervisor.start()

    def _made(self, predecessor: Predecessor | None) -> Supervisor:
        engine = ProcessEngine(lambda setup: KafkaLog(setup.flow.name, setup.target))
        identity = new_identity(kept_here=True, goes_on_as=predecessor.daemon if predecessor else "")
        return Supervisor(self._config, engine, identity=identity, predecessor=predecessor, own_file=self._own_file)

    async def status(self) -> Status:
        """Return the current status of the flows."""
        return self._supervisor.status()

    async def reload(self) -> ConfigChanges:
        """Read the configuration file again, and apply it in its entirety or refuse it in its entirety."""
        return await self._supervisor.reload(None, dry_run=False)

    async def stop(self) -> None:
        """Begin to drain all flows. The method returns without waiting for them to be drained."""
        await self._supervisor.stop()

    async def wait(self) -> None:
        """Wait until the daemon has stopped."""
        await self._supervisor.wait()


def _stop_on_signals(daemon: Daemon) -> None:
    """Handle SIGINT and SIGTERM. The first signal drains the daemon. The second signal ends this process and all
    processes that it has started."""
    stops: set[asyncio.Task[None]] = set()

    def stop(number: signal.Signals) -> None:
        if stops:
            os._exit(128 + number)
        stops.add(asyncio.create_task(daemon.stop()))

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)


class _Table:
    """Shows the status as a table that is redrawn on a terminal."""

    def __init__(self, log_directory: str) -> None:
        self._log_directory = log_directory
        self._head = ""
        self._live = Live("", console=console(), auto_refresh=False)

    def of(self, address: str, dashboard: str, token_file: str) -> Live:
        """Return a context manager that shows the status table on the terminal while the daemon is running."""
        token = f" (its token is in {token_file})" if token_file else ""
        board = f"   Ray dashboard {dashboard}{token}" if dashboard else ""
        self._head = f"{address}{board}   logs in {self._log_directory}   Ctrl-C drains and exits"
        return self._live

    def show(self, status: Status) -> None:
        """Redraw the table with a new status."""
        self._live.update(Group(self._head, status_table(status)), refresh=True)


class _Lines:
    """Shows the status as log lines if the output is not a terminal."""

    def __init__(self) -> None:
        self._shown: dict[str, tuple[str, ...]] = {}
        self._next = 0.0

    def of(self, address: str, dashboard: str, token_file: str) -> contextlib.AbstractContextManager[None]:
        """Log the address of the daemon, that of the Ray dashboard, and the file with the dashboard's token. Return a
        context manager that does nothing, because log lines need no live display."""
        log.info("daemon_ready", http=address, dashboard=dashboard, dashboard_auth_file=token_file)
        return contextlib.nullcontext()

    def show(self, status: Status) -> None:
        """Log each change of a flow's state immediately, and the progress of the flows every ten seconds."""
        now = asyncio.get_running_loop().time()
        due = now >= self._next
        if due:
            self._next = now + PROGRESS_S
        for flow in status.flows:
            lanes = {f"lanes_{state}": number for state, number in flow.totals.lanes.items()}
            known = (flow.state, flow.note, *lanes)
            if not due and self._shown.get(flow.name) == known:
                continue
            self._shown[flow.name] = known
            totals = flow.totals
            log.info(
                "flow_progress",
                flow=flow.name,
                state=flow.state,
                note=flow.note,
                **lanes,
                records_per_s=totals.records_per_s,
                bytes_per_s=totals.bytes_per_s,
                lag_records=totals.lag_records,
                lag_s=totals.lag_s,
                in_flight_bytes=totals.in_flight_bytes,
                raw_share=totals.raw_share,
            )
