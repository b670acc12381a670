"""One daemon, with its flows and its HTTP API. With the `process` engine, it runs in the `mirrord start` process. With
the `ray` engine, it runs in a Ray actor."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

import msgspec
import structlog

from mirrord.config.changes import ConfigChanges, FlowChange, compare
from mirrord.config.digests import ConfigDigests, digests
from mirrord.config.own_file import FileDigest
from mirrord.config.schema import Config, FlowConfig
from mirrord.control.address import advertised, url
from mirrord.daemon.http_api import HttpServer, RefusedCommand
from mirrord.daemon.own_file import OwnFileReader
from mirrord.daemon.prometheus import metrics_text
from mirrord.daemon.readiness import FlowLook, ReadinessKeeper, ReadinessQuestion
from mirrord.groups.offset_translation_queries import Answer, Question, answer, chart
from mirrord.kafka.client.reachability import ClusterWatch
from mirrord.ledger.facts.commands import CommandGiven, DaemonCommand
from mirrord.ledger.facts.core import TargetProbed
from mirrord.ledger.standing_orders import LONGEST_NAME, NO_GIVER, Giver, Order, OrderAnswer
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.process_identity import NOBODY, Identity, this_process
from mirrord.ledger.store.store import DEADLINE_SECONDS, LedgerStore
from mirrord.mm2.client_records import Mm2Upkeep
from mirrord.mm2.rules.heartbeat_latency import SentBeats
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.names import probe_topic
from mirrord.model.shown_text import printable
from mirrord.model.status import FlowStatus, Status
from mirrord.model.version import version
from mirrord.runtime.build_info import commit, program
from mirrord.runtime.tasks import BackgroundTasks
from mirrord.supervision.broker_probe import probe_target
from mirrord.supervision.fleet.engine import Engine
from mirrord.supervision.flow_supervisor import FlowSupervisor
from mirrord.supervision.order_execution import Desk, carry_out
from mirrord.supervision.shared_services import Services
from mirrord.supervision.standby_config_check import StandbyLook
from mirrord.supervision.unrecorded_copies import BatchQuestion, Found, find_written
from mirrord.supervision.upgrade.incoming import Succession, SuccessionEngine
from mirrord.supervision.upgrade.outgoing import Handover
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall, HandoverTerms, Predecessor, Successor
from mirrord.topics.topic_claims import Claims
from policies.policy_trial import policy_faults

STOP_S = 7.5
CLOSE_S = 0.5
"""Time limit in seconds for closing the engine and the HTTP API. The daemon takes at most `STOP_S` + `CLOSE_S` to stop.
This leaves Ray two seconds to shut down, so that the entire shutdown takes at most 10 seconds."""

DRAINING = "nothing was changed: this daemon is draining"
NOTE_S = 1.0
"""Time limit in seconds for recording a command to the daemon before it is carried out."""

log = structlog.get_logger()


class DaemonAccess(ClusterAccess):
    """Connects a daemon to clusters and ledgers. Unlike its base class, which commands use, it can also write records
    for MirrorMaker 2's clients and probe the target's brokers."""

    def __init__(self, config: Config, patience_s: float = DEADLINE_SECONDS) -> None:
        """Store the configuration. A ledger may take up to `patience_s` seconds to answer."""
        super().__init__(config, patience_s)
        self._sent = SentBeats()

    def mm2(self, flow: FlowConfig) -> Mm2Upkeep | None:
        """Return the object that writes a flow's records for MirrorMaker 2's clients: heartbeats, checkpoints and
        offset syncs."""
        timeout_s = self._config.runtime.request_timeout_ms / 1000
        return Mm2Upkeep(flow, self._config.clusters, timeout_s, self.clock, self._sent)

    async def probe(self, flow: FlowConfig, known: TargetProbed | None) -> TargetProbed:
        """Probe the brokers of the flow's target, and return the result. See
        `mirrord.supervision.broker_probe.probe_target`. Raises NotProbed."""
        return await probe_target(self._config.clusters[flow.target], probe_topic(flow.name), self.clock, known)

    async def find_written(self, flow: FlowConfig, questions: Sequence[BatchQuestion]) -> Found:
        """Find batches of the flow's lanes in the target's logs. Raises EnvironmentFault."""
        return await find_written(flow.target, self._config.clusters[flow.target], questions)


class Supervisor:
    """Runs all flows of one daemon. Implements `mirrord.daemon.http_api.StatusSource`, through which HTTP clients
    observe and control the daemon."""

    def __init__(
        self,
        config: Config,
        engine: Engine,
        access: DaemonAccess | None = None,
        identity: Identity = NOBODY,
        keep: Callable[[Config], Awaitable[None]] | None = None,
        predecessor: Predecessor | None = None,
        own_file: OwnFileReader | None = None,
    ) -> None:
        """Create the supervisor. `identity` identifies the daemon, and stays the same when a new process replaces this
        one.

        `keep` saves the current configuration for the next process of the daemon. If `predecessor` is given, this
        daemon replaces that daemon and takes over all of its flows. `own_file` reads the configuration file again; it
        is None if there is no file.
        """
        self.superseded = asyncio.Event()
        """Set when another process has taken over this daemon. The current process must then exit."""
        self._identity = identity
        self._keep = keep
        self._own_file = own_file
        self._config = config
        self._access = access or DaemonAccess(config)
        succession = Succession(predecessor, config, self._access.clock) if predecessor else None
        self._succession = succession
        self._engine = engine if succession is None else SuccessionEngine(engine, succession)
        self._stopping = asyncio.Event()
        self._flows: dict[str, FlowSupervisor] = {}
        self._tasks = BackgroundTasks("flow_ended")
        """The tasks of all flows, including flows that have been removed and are still being drained."""
        self._own_tasks = BackgroundTasks("daemon_task_failed")
        """The daemon's tasks that do not belong to a flow."""
        self._services: Services | None = None
        self._ledgers: dict[str, LedgerStore] = {}
        """The most recently opened ledger store of each flow. Offset translations read from it."""
        self._applying = asyncio.Lock()
        self._http = HttpServer(self, config.http, self._access.clock, elsewhere=succession is not None)
        self._handover = Handover(self._engine, self._flows, self._begin_stop, self._access.clock)
        self._standby = StandbyLook(lambda: self._config, self._holders)
        self._readiness = ReadinessKeeper(self._looks, self._access, lambda: self._config)

    async def start(self) -> str:
        """Open the HTTP API, start the flows, and return the address of the HTTP API. Raises EnvironmentFault."""
        if faults := policy_faults(self._config):
            # The process that read the configuration file was able to load all policies. If this process runs on a
            # different machine, some policies may not be installed here.
            raise EnvironmentFault("\n".join(faults))
        address = url(self._config.http, advertised(await self._http.start(), self._config.http.advertised))
        clock = self._access.clock
        self._services = Services(
            config=self._config,
            engine=self._engine,
            holder=this_process(
                self._config.instance, address, hosts_all=self._engine.hosts_all, identity=self._identity
            ),
            clock=clock,
            claims=Claims(self._config.all_flows),
            watches={alias: ClusterWatch(alias, clock) for alias in self._config.clusters},
            admin=self._access.admin,
            upkeep=self._access.upkeep,
            mm2=self._access.mm2,
            ledger=self._ledger,
            probe=self._access.probe,
            find_written=self._access.find_written,
            succession=self._succession,
            superseded=self.superseded,
        )
        if self._succession is not None:
            self._succession.successor = Successor(address, program())
            self._own_tasks.keep(partial(self._replace, self._succession), name="succession", task="succession")
        self._own_tasks.keep(self._standby.run, name="standby", task="standby")
        self._own_tasks.keep(self._readiness.run, name="readiness", task="readiness")
        for flow in self._config.flows:
            self._add(flow, self._services)
        log.info("daemon_started", http=address, flows=[flow.name for flow in self._config.flows])
        return address

    @property
    def replaced_by(self) -> Successor | None:
        """The daemon that has taken over all flows of this daemon. None if no daemon has done so yet."""
        return self._handover.replaced_by

    @property
    def config(self) -> Config:
        """The current configuration of the daemon."""
        return self._config

    async def reload(self, given: FileDigest | None, *, dry_run: bool, giver: Giver = NO_GIVER) -> ConfigChanges:
        """Read the daemon's own file again, apply it, and return the changes. `given` is the digest of the file that
        an operator wants to apply. If the own file has a different digest or has faults, or if any change is refused,
        change nothing, and return the reasons as refusals. Raises EnvironmentFault if the file cannot be applied now.
        """
        if self._own_file is None:
            raise EnvironmentFault("nothing was changed: this daemon was not started with a file")
        if self._stopping.is_set():
            raise EnvironmentFault(DRAINING)
        try:
            config = await self._own_file.read(given)
        except ConfigError as fault:
            return ConfigChanges(refused=tuple(str(fault).splitlines()))

        async def note() -> None:
            if giver != NO_GIVER:
                await self._note("apply", given.by if given else "", giver)

        changes = await self.apply(config, dry_run=dry_run, note=note)
        if not dry_run and not changes.refused:
            flows = [change.flow for change in changes.flows]
            log.info("configuration_taken", flows=flows, replicators=changes.replicators)
        return changes

    async def apply(
        self, config: Config, *, dry_run: bool, note: Callable[[], Awaitable[None]] | None = None
    ) -> ConfigChanges:
        """Apply a new configuration, and return the changes. With `dry_run`, or if any change is refused, change
        nothing. `note` records the command before it takes effect, because a flow that is removed gives up its ledger.
        Raises EnvironmentFault if the daemon is draining."""
        async with self._applying:
            changes = await self._compared(config)
            if dry_run or changes.refused or self._services is None:
                return changes
            if note is not None:
                await note()
            if self._stopping.is_set():
                raise EnvironmentFault(DRAINING)
            await self._take(config, changes, self._services)
        return changes

    async def _compared(self, config: Config) -> ConfigChanges:
        """Return the changes between the current configuration and another one, or the reasons why it is refused."""
        changes = compare(self._config, config)
        if not changes.refused:
            changes = msgspec.structs.replace(changes, refused=tuple(policy_faults(config)))
        if changes.refused:
            return changes
        flows = [await self._with_topics(change, config) for change in changes.flows]
        return msgspec.structs.replace(changes, flows=tuple(flows))

    async def _take(self, config: Config, changes: ConfigChanges, services: Services) -> None:
        """Make a configuration the current one, and carry out its changes."""
        self._config = msgspec.structs.replace(config, clusters={**self._config.clusters, **config.clusters})
        if self._keep is not None:
            await self._keep(self._config)
        self._access.use(self._config)
        for alias in self._config.clusters.keys() - services.watches.keys():
            services.watches[alias] = ClusterWatch(alias, self._access.clock)
        self._services = services._replace(config=self._config)
        self._services.claims.know(self._config.all_flows)
        for change in changes.flows:
            self._carry_out(change, self._services)
        if changes.jobs:
            log.info("jobs_configuration", changes=changes.jobs)
        for flow in self._flows.values():
            flow.schedule.use(self._config)
        if changes.replicators:
            log.info("replicators_configuration", changes=changes.replicators)
            for flow in self._flows.values():
                flow.place_by(config.replicators, changes.replicators)

    async def wait(self) -> None:
        """Wait until `stop` is called. Then wait for up to `STOP_S` seconds until all flows have ended. Finally, close
        the engine and the HTTP API."""
        try:
            await self._stopping.wait()
            late = (await asyncio.wait(flows, timeout=STOP_S))[1] if (flows := tuple(self._tasks)) else ()
            for task in late:
                log.warning("flow_not_drained", flow=task.get_name())
        finally:
            self._tasks.cancel()
            self._own_tasks.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await asyncio.gather(self._engine.close(), self._http.close())
            log.info("daemon_stopped")

    async def order(self, order: Order, *, dry_run: bool, giver: Giver = NO_GIVER) -> OrderAnswer:
        """Carry out an operator command, such as pause, resume, move or drain. See
        `mirrord.supervision.order_execution.carry_out`."""
        if self._stopping.is_set():
            raise EnvironmentFault(DRAINING)
        desks = {name: flow.desk() for name, flow in self._flows.items()}
        return await carry_out(order, desks, self._access.clock, dry_run=dry_run, giver=giver)

    def status(self) -> Status:
        """Return the current status. No request is sent to a cluster."""
        return Status(
            version=version(),
            commit=commit() or None,
            instance=self._config.instance,
            at_ms=self._access.clock.wall_ms(),
            gathered="daemon",
            flows=tuple(self._completed(flow.status()) for flow in self._flows.values()),
            refused_requests=dict(self._http.refused.counts),
        )

    def _completed(self, flow: FlowStatus) -> FlowStatus:
        """Add to the status of a flow what its supervisor does not know."""
        if flow.state == "running":
            return msgspec.structs.replace(flow, readiness=self._readiness.summary(flow.name))
        remark = self._standby.remarks.get(flow.name) if flow.state == "standby" else None
        return flow if remark is None else msgspec.structs.replace(flow, remarks=(*flow.remarks, remark))

    def _looks(self) -> dict[str, FlowLook]:
        def ledger(name: str) -> FlowState | None:
            store = self._ledgers.get(name)
            return store.state if store is not None and store.state.flow else None

        return {
            name: FlowLook(flow.flow, isinstance(flow.desk(), Desk), flow.status, partial(ledger, name))
            for name, flow in self._flows.items()
        }

    async def readiness(self, question: ReadinessQuestion) -> bytes:
        """Return, as a JSON document, how ready flows are for the loss of their source clusters. Raises the same errors
        as `mirrord.daemon.http_api.StatusSource.readiness`."""
        return await self._readiness.report(question)

    def _holders(self) -> dict[str, str]:
        """For each flow for which this daemon is on standby, return the HTTP address of the daemon that runs the
        flow."""
        held = {name: flow.stands_by_for() for name, flow in self._flows.items()}
        return {name: http for name, http in held.items() if http}

    async def groups(self, *, reverse: bool = False) -> list[GroupsReport]:
        """Return the positions of consumer groups for each flow whose group follower runs in this daemon.

        With `reverse`, return instead the positions that are synced from the target back to the source. In that case,
        only flows with `groups.reverse` are included.
        """
        flows = [flow for flow in self._flows.values() if not reverse or flow.flow.groups.reverse]
        reports = await asyncio.gather(*(flow.groups.report(reverse=reverse) for flow in flows))
        return [report for report in reports if report is not None]

    def configuration(self) -> ConfigDigests:
        """Return the digests of the current configuration."""
        return digests(self._config)

    def ready(self) -> tuple[bool, list[str]]:
        """Return whether this daemon is ready, that is, whether each of its flows is running or on standby. Also return
        a reason for each flow that is neither."""
        reasons = [reason for flow in self._flows.values() if (reason := flow.ready())]
        return not reasons, reasons

    def metrics_text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return metrics_text(self.status())

    async def translate(self, question: Question) -> Answer:
        """Return the offset at which a consumer of one cluster resumes on the other cluster. Raises the same errors as
        `mirrord.daemon.http_api.StatusSource.translate`."""
        store = self._ledgers.get(self._config.flow(question.flow).name)
        if store is None or not store.state.flow:
            raise EnvironmentFault(f"the ledger of {question.flow} has not been read yet")
        return await answer(self._config, await chart(store), question)

    async def stop(self) -> None:
        """Begin to drain all flows. The method returns without waiting for them to be drained. Later calls have no
        effect."""
        self._begin_stop()

    async def ordered_stop(self, by: str, giver: Giver) -> None:
        """Record who has ordered this daemon to stop, and begin to stop it."""
        await self._note("stop", by, giver)
        self._begin_stop()

    async def hand_over(self, call: HandoverCall, giver: Giver = NO_GIVER) -> HandoverAnswer:
        """Answer a request from the daemon that replaces this daemon. See
        `mirrord.supervision.upgrade.outgoing.Handover`."""
        if call.verb == "begin" and call.successor is not None and call.flow in self._flows:
            http = printable(call.successor.http, LONGEST_NAME)
            if not self._flows[call.flow].handover.successor:
                await self._note("upgrade", call.by, giver, http, only=call.flow)
        return await self._handover.answer(
            call,
            HandoverTerms(
                program=program(),
                instance=self._config.instance,
                daemon=self._identity.daemon,
                lease_ttl_ms=self._config.runtime.lease_ttl_ms,
                flows=tuple(self._flows),
            ),
        )

    async def _note(
        self, command: DaemonCommand, by: str, giver: Giver, detail: str = "", only: str | None = None
    ) -> None:
        """Record a command to this daemon in the log, and in the ledgers of its flows or of one flow. If a ledger
        cannot be written in time, the command is carried out all the same, and the log has the only record."""
        origin = giver.origin(printable(by, LONGEST_NAME), "", self._access.clock.wall_ms())
        log.info("command_given", command=command, by=origin.by, client=giver.client, peer=giver.peer, detail=detail)
        await self._write(CommandGiven(command, origin, detail), only)

    def command_refused(self, refused: RefusedCommand, giver: Giver) -> None:
        """Begin to record a command that the role of the client's token does not permit. The client does not wait."""
        origin = giver.origin("", "", self._access.clock.wall_ms())
        fact = CommandGiven(refused.command, origin, refused=refused.reason, omitted=refused.omitted)
        self._own_tasks.start(self._write(fact), name="refused_command", task="refused_command")

    async def _write(self, fact: CommandGiven, only: str | None = None) -> None:
        if self._succession is not None and not self._succession.over:
            return  # replicators of an older version still read the ledgers, and could not read this fact
        desks = [flow.desk() for name, flow in self._flows.items() if only in {None, name}]
        try:
            async with asyncio.timeout(NOTE_S):
                written = (desk.record([fact]) for desk in desks if isinstance(desk, Desk))
                for result in await asyncio.gather(*written, return_exceptions=True):
                    if result is not None:
                        log.warning("command_not_in_ledger", command=fact.command, reason=str(result))
        except TimeoutError:
            log.warning("command_not_in_ledger", command=fact.command, reason=f"no answer within {NOTE_S:g} s")

    def _begin_stop(self) -> None:
        if not self._stopping.is_set():
            log.info("daemon_stopping")
        self._stopping.set()
        for flow in self._flows.values():
            flow.stop()

    async def _replace(self, succession: Succession) -> None:
        """Wait until all of the old daemon's replicators are gone. Then end the old daemon, and take over its HTTP
        address."""

        def left() -> bool:
            hosts = [flow.hosts() for flow in self._flows.values()]
            return any(each is None or not succession.names.isdisjoint(each) for each in hosts)

        await succession.dismiss(left)
        await self._http.move_in()

    def _ledger(self, flow: FlowConfig) -> LedgerStore:
        self._ledgers[flow.name] = store = self._access.ledger(flow)
        return store

    def _add(self, flow: FlowConfig, services: Services) -> None:
        supervisor = self._flows[flow.name] = FlowSupervisor(flow, services)
        self._tasks.keep(supervisor.run, name=flow.name, flow=flow.name)

    def _carry_out(self, change: FlowChange, services: Services) -> None:
        log.info("flow_configuration", flow=change.flow, kind=change.kind, changes=change.lines)
        match change.kind:
            case "added":
                self._add(self._config.flow(change.flow), services)
            case "removed":
                self._flows.pop(change.flow).stop()
                self._ledgers.pop(change.flow, None)
            case "changed":
                flow = self._config.flow(change.flow)
                self._flows[change.flow].change(flow, change.lines, drains=change.restarts)

    async def _with_topics(self, change: FlowChange, config: Config) -> FlowChange:
        """Return the change with a line added for each topic that will start or stop being copied."""
        if change.kind != "changed":
            return change
        try:
            lines = await self._flows[change.flow].preview(config.flow(change.flow))
        except EnvironmentFault as fault:
            lines = [f"it is currently not known which topics are affected: {fault}"]
        return msgspec.structs.replace(change, topics=tuple(lines))
