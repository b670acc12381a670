"""Supervises one flow: opens its ledger, takes the lease, runs its lanes on replicators, and releases the lease.

After a failure, the status reports the reason, and the supervisor tries again. Other flows are not affected.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

import structlog

from mirrord.config.schema import FlowConfig, ReplicatorsConfig
from mirrord.kafka.client.reachability import WatchedAdmin, both_ids
from mirrord.ledger.errors import ForeignFlow
from mirrord.ledger.facts.core import ConfigChanged, FlowOpened
from mirrord.ledger.folding.failovers import Recoveries
from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.ledger.store.lease import LeaseKeeper, Superseded
from mirrord.ledger.store.lease_observer import SeenLease, lease_status
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault, MirrordError, internal_error
from mirrord.model.status import FlowPhase, FlowStatus, LaneStatus, LeaseStatus, RpoStatus, Totals
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.runtime.wait import wait_for
from mirrord.supervision.deleted_topic_losses import DeletedTopicLosses
from mirrord.supervision.delivery_guarantee import TargetMode
from mirrord.supervision.drain_and_release import drain_and_release
from mirrord.supervision.failover.daemon_hands import DaemonParts, daemon_executor
from mirrord.supervision.failover.ended_flow import CopyingOver, check_not_over, is_ended, unless_over
from mirrord.supervision.failover.executor import FailoverExecutor
from mirrord.supervision.failover.receipt import failover_status
from mirrord.supervision.fleet.adoption import end_all
from mirrord.supervision.fleet.fleet import Fleet
from mirrord.supervision.flow_stats import FlowFigures
from mirrord.supervision.forgotten_copies import Forgetting
from mirrord.supervision.group_follower_keeper import GroupKeeper
from mirrord.supervision.jobs.schedule import Schedule
from mirrord.supervision.lane_status import lines, lost_topics, recorded_lanes, replicators
from mirrord.supervision.lane_wait_log import LaneWaits
from mirrord.supervision.order_execution import Desk, ledger_remarks
from mirrord.supervision.pruning import prune_for_ever
from mirrord.supervision.reconciling import reconcile_for_ever
from mirrord.supervision.renamed_alias import check_alias
from mirrord.supervision.rules.rpo import rpo_status
from mirrord.supervision.shared_services import Services
from mirrord.supervision.start_resolution import FirstLook
from mirrord.supervision.unfetched_partition_ends import UncoveredEnds, poll_pause_s
from mirrord.supervision.upgrade.outgoing import FlowHandover
from mirrord.supervision.upkeep import Upkeep, keep_in_step
from mirrord.topics.deletion_sync import deletion_guards
from mirrord.topics.discovery import Discovered, Discovery, hazards_of, next_refresh_s
from mirrord.topics.selection_preview import topics_that_change

RETRY_S = 1.0
REFUSED_S = 30.0
"""Pause before the next attempt to run a flow whose ledger belongs to other clusters, or whose source has a new alias.
Only an operator can fix this."""
POLL_S = 0.4  # `poll_pause_s` says why
OTHERS_S = 5.0
"""Maximum time that a flow waits for the ledgers of the other flows to be read. After this time, topics that may belong
to a flow with an unread ledger are reported as faults."""

log = structlog.get_logger()


class FlowSupervisor:
    """Runs one flow of a daemon: from the first attempt to open its ledger to the release of its lease."""

    def __init__(self, flow: FlowConfig, services: Services) -> None:
        self.flow = flow
        self._services = services
        self._source = services.watches[flow.source]
        self._target = services.watches[flow.target]
        services.claims.expect(flow)
        self._source_admin = WatchedAdmin(services.admin(flow.source), self._source, flow.name)
        self._target_admin = WatchedAdmin(services.admin(flow.target), self._target, flow.name)
        self._forgetting = Forgetting(flow.name, self._source_admin, self._target_admin, services.clock)
        self.groups = GroupKeeper(services.engine, services.config.instance)
        self.schedule = Schedule(flow.name, services.config, services.clock)
        self._upkeep, self._discovery, self._first_look = self._make_upkeep(flow)
        self._replicators = services.config.replicators
        self._ends = UncoveredEnds(services.clock)
        self._next: FlowConfig | None = None
        """The configuration that will replace `flow`. None if no change is pending."""
        self._unrecorded: list[str] = []
        """Descriptions of configuration changes that the ledger does not contain yet."""
        self._drains = False
        """Whether all lanes must be drained before `_next` takes effect."""
        self._changed = asyncio.Event()
        self._replaced = asyncio.Event()
        """Set when a new configuration has replaced `_upkeep`. `keep_in_step` then runs the new object."""
        self.handover = FlowHandover(services.engine, f"{services.config.instance}/{flow.name}/", services.clock)
        self._log = log.bind(flow=flow.name)
        self._state: FlowPhase = "starting"
        self._note = ""
        self._stopping = asyncio.Event()
        self._store: LedgerStore | None = None
        self._keeper: LeaseKeeper | None = None
        self._fleet: Fleet | None = None
        self._discovered: Discovered | None = None
        self._hazards: tuple[str, ...] = ()
        self._figures, self._mode, self._lease = FlowFigures(), TargetMode(services.probe), SeenLease(services.clock)
        self._waits, self._lost_topics = LaneWaits(flow.name), DeletedTopicLosses(services)
        self._held_before = False
        """Whether this process has already held the lease."""
        self._has_begun = False
        self._failover: FailoverExecutor | None = None
        self._recoveries: Recoveries = ()
        """The failovers of a flow that has ended. Its ledger is closed."""
        self._known: LedgerEnd | None = None
        """How far an earlier attempt read the ledger. A ledger that ends before this position has lost entries."""

    async def run(self) -> None:
        """Keep the flow running until `stop` is called. Then drain the flow."""
        while not self._stopping.is_set() and not self._services.superseded.is_set():
            attempt = asyncio.create_task(self._attempt())
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait({attempt, stopping}, return_when=asyncio.FIRST_COMPLETED)
            except BaseException:
                attempt.cancel()
                raise
            finally:
                stopping.cancel()
            if self._fleet is None:
                attempt.cancel()
            pause_s = await self._outcome(attempt)
            if self._drains:
                pause_s = 0.0
            if not self._stopping.is_set():
                self._state = "ended" if self._state == "ended" else "starting"
                await wait_for(self._stopping, pause_s)
        self._state = "stopped"
        self._services.claims.forget(self.flow.name)
        await asyncio.gather(self._source_admin.close(), self._target_admin.close(), self._upkeep.close())

    def stop(self) -> None:
        """Start draining the flow. `run` returns when all its lanes have been drained."""
        self._stopping.set()

    def change(self, flow: FlowConfig, lines: Sequence[str], *, drains: bool) -> None:
        """Switch to a new configuration of the flow. The ledger records `lines`, which describe the changes.

        Lanes that both configurations select are not interrupted, unless `drains` requires that all lanes be drained.
        """
        self._next = flow
        self._unrecorded += lines
        self._drains = self._drains or drains
        self._changed.set()

    def place_by(self, replicators: ReplicatorsConfig, lines: Sequence[str]) -> None:
        """Change the replicator count and lane placement. The ledger records `lines`, which describe the changes."""
        self._replicators = replicators
        if self._fleet is not None:
            self._fleet.place_by(replicators)
        self._unrecorded += lines
        self._changed.set()

    async def preview(self, flow: FlowConfig) -> list[str]:
        """Return one line for operators about each topic that the flow would start or stop copying with this
        configuration. Raises EnvironmentFault if a cluster does not answer."""
        return await topics_that_change(self.flow, flow, self._services.admin, self._services.claims)

    def ready(self) -> str:
        """Return why this daemon is neither holder nor standby of the flow, or an empty string if it is either, or if a
        failover has ended the copying."""
        if self._state in {"running", "standby", "ended"}:
            return ""
        return f"{self.flow.name}: {self._state}{f', {self._note}' if self._note else ''}"

    def desk(self) -> Desk | str:
        """Return the object that accepts operator commands, or the reason why the flow currently accepts none."""
        if self._store is None or self._keeper is None or self._fleet is None or self._state != "running":
            http = self.stands_by_for()
            return f"it is {self._shown_state()}{f', {http} has it' if http else ''}"
        return Desk(self._store, self._keeper, self._fleet, self.schedule.begin)

    def refusal(self) -> str:
        """Return why the flow cannot currently be handed over to another daemon, or an empty string if it can."""
        desk, succession = self.desk(), self._services.succession
        return desk if isinstance(desk, str) else succession.busy if succession is not None else ""

    def stands_by_for(self) -> str:
        """Return the lease holder's HTTP address if this daemon is a standby, or an empty string otherwise."""
        lease = self._lease_status() if self._shown_state() == "standby" else None
        return lease.http if lease else ""

    def hosts(self) -> list[str] | None:
        """Return the names of the flow's replicators, or None if the flow is not running here. A flow that has ended
        has none."""
        if self._state == "ended":
            return []
        return [host.name for host in self._fleet.hosts()] if self._fleet and self._state == "running" else None

    def status(self) -> FlowStatus:
        """Return the current status of the flow without sending a request to a cluster or replicator."""
        lanes, state = self._lanes(), self._store.state if self._store else None
        promise, promise_note = self._mode.promise(state)
        return FlowStatus(
            name=self.flow.name,
            source=self._source.status(),
            target=self._target.status(),
            state=self._shown_state(),
            lease=self._lease_status(),
            totals=Totals.of(lanes),
            lanes=lanes,
            replicators=replicators(self._fleet.last_reports, self._fleet.states()) if self._fleet is not None else (),
            guarantee=promise,
            guarantee_note=promise_note,
            note=self._remark(),
            topics=self._upkeep.topics(self._discovered) if self._fleet is not None else (),
            remarks=self._remarks(),
            latency=self._upkeep.latency if self._fleet is not None else None,
            rpo=self._rpo(lanes),
            counts=self._figures.counts if self._fleet is not None else None,
            ledger_end=state.next_offset if state else None,
            ledger_skipped=self._store.skipped.count if self._store else None,
            groups=self.groups.states,
            groups_followed=self.groups.followed,
            jobs=self.schedule.status(state.jobs if state else None),
            failover=failover_status(state.recoveries if state else self._recoveries),
            losses=lost_topics(state, self._discovered) if state else (),
            forgotten_losses={**state.forgotten_losses} if state else {},
        )

    # The steps of one attempt to run the flow.

    async def _outcome(self, attempt: asyncio.Task[None]) -> float:
        """Wait until an attempt to run the flow ends. Return how many seconds to wait before the next attempt."""
        try:
            await attempt
        except asyncio.CancelledError:
            running = asyncio.current_task()
            if running is not None and running.cancelling():
                raise
            # The supervisor was not cancelled. One of its tasks was cancelled and did not handle the cancellation.
            if not self._stopping.is_set():
                self._log.error("flow_failed", reason="cancelled from below")
        except ForeignFlow as fault:
            self._note_fault(str(fault))
            return REFUSED_S
        except CopyingOver as fault:
            self._state, self._note, self._recoveries = "ended", str(fault), fault.recoveries
            return REFUSED_S
        except Superseded as fault:
            self._note_fault(str(fault))
            self._services.superseded.set()
        except MirrordError as fault:
            clusters_answer = self._source.status().reachable and self._target.status().reachable
            self._note_fault(str(fault) if clusters_answer else "")
        except Exception as error:  # noqa: BLE001 -- one flow must not take the others down with it
            self._log.error("flow_failed", exc_info=error)
            self._note = internal_error(error)
        return RETRY_S

    async def _attempt(self) -> None:
        """Open the ledger, take the lease, and run the flow until the lease is lost or the flow is drained."""
        await self._take_up()
        ids = both_ids(self._source_admin, self._target_admin)
        claims, name = self._services.claims, self.flow.name
        source_id, target_id = await unless_over(
            ids, lambda: self._services.ledger(self.flow), lambda store: claims.read(name, store)
        )
        self._store = store = self._services.ledger(self.flow)
        store.remember(self._known)
        try:
            await store.open()
            self._services.claims.read(self.flow.name, store)
            self._lease.follow(store)
            check_not_over(store.state)
            await open_flow(store, FlowOpened(self.flow.name, source_id, target_id, keeps_starts=True))
            check_alias(self.flow, store.state)
            runtime = self._services.config.runtime
            lease = (store, self._services.holder, runtime.lease_ttl_ms, self._services.clock)
            self._keeper = keeper = LeaseKeeper(*lease, held_before=self._held_before)
            self._note_fault("")
            self._state = "standby"
            if self._services.succession is not None:
                known = (lambda: store.state, self._note_fault, lambda: self._lease.age_s)
                await self._services.succession.consent(self.flow.name, *known)
                self._note_fault("")
            epoch = await keeper.acquire()
            if is_ended(store.state):
                await keeper.release()
            check_not_over(store.state)
            self._held_before = True
            await self._take_up()
            clusters = self._services.config.clusters
            setup = FlowSetup(
                flow=self.flow,
                source=clusters[self.flow.source],
                target=clusters[self.flow.target],
                runtime=runtime,
                lease_epoch=epoch,
                source_cluster_id=source_id,
                target_cluster_id=target_id,
                mode=await self._mode.find(self.flow, store, epoch),
            )
            await self._serve(store, keeper, setup)
        finally:
            if self._keeper is not None:
                await self._keeper.close()
            await store.close()
            self._known = store.known
            self._store = self._keeper = self._discovered = self._failover = None

    async def _serve(self, store: LedgerStore, keeper: LeaseKeeper, setup: FlowSetup) -> None:
        """Take over or kill replicators that earlier processes left running. Then run the flow as lease holder."""
        services = self._services
        known = (services.config.instance, lambda: store.state, services.clock, keeper)
        self._fleet = fleet = Fleet(services.engine, setup, self._replicators, *known)
        try:
            if keeper.turn > 1:
                await fleet.adopt()
                self._figures.adopt(host.name for host in fleet.hosts())
            else:
                await end_all(services.engine, f"{services.config.instance}/{self.flow.name}/")
            await self._work(store, keeper, setup, fleet)
        finally:
            self._fleet = None
            for name in (setup.flow.source, setup.flow.target):
                services.watches[name].forget(f"{self.flow.name}/replicators")

    async def _work(self, store: LedgerStore, keeper: LeaseKeeper, setup: FlowSetup, fleet: Fleet) -> None:
        """Run the flow until the lease is lost or the flow must stop. Then drain, kill or hand over its replicators."""
        recorder = Recorder(store, keeper)
        discovery = (lambda: self._discovered, self._changed.set, lambda: keeper.is_valid)
        parts = DaemonParts(setup, lambda: self.flow, recorder, fleet, self.groups, self._target_admin, *discovery)
        self._failover = daemon_executor(self._services, parts)
        self._state = "running"
        self._log.info("flow_running", epoch=setup.lease_epoch)
        work = [
            asyncio.create_task(coroutine)
            for coroutine in (
                self._discover(recorder, fleet),
                keep_in_step(lambda: self._upkeep, self._replaced, lambda: store.state, recorder),
                self._reconcile(keeper, recorder, fleet),
                self._poll(fleet),
                self._failover.run(),
                self._ends.follow(setup.source, recorder, lambda: (self._discovered, fleet.reports)),
                self.groups.run(setup, lambda: self.flow, keeper.turn),
                self.schedule.keep(),
                prune_for_ever(store, lambda: self._discovered, setup.source, setup.target),
            )
        ]
        ends = [asyncio.create_task(event.wait()) for event in (self._stopping, keeper.lost)]
        try:
            await asyncio.wait([*work, *ends], return_when=asyncio.FIRST_COMPLETED)
            goes = keeper.superseded.is_set() and self.handover.went_to(store.state.holder)
            self.groups.parts = keeper.superseded.is_set() and not goes
            for task in work:
                task.cancel()
            results = await asyncio.gather(*work, return_exceptions=True)
            if keeper.superseded.is_set():
                await fleet.part()
                if goes:
                    await self._stand_aside(store)
                    return
                raise Superseded("another process of this daemon has the replicators")
            if (self._stopping.is_set() or self._drains or self._failover.is_over) and not keeper.lost.is_set():
                self._state = "draining"
                await drain_and_release(self.flow.name, fleet, keeper)
            else:
                self._log.warning("flow_lost", epoch=setup.lease_epoch)
                await fleet.abandon()
            for result in results:
                if isinstance(result, Exception):
                    raise result
        finally:
            for task in (*work, *ends):
                task.cancel()

    async def _stand_aside(self, store: LedgerStore) -> None:
        """In an upgrade, wait while the new daemon holds the flow's lease and controls this daemon's replicators."""
        self._log.info("flow_handed_over", to=self.handover.successor)
        self._state = "draining"
        if not await self.handover.stand_aside(store, self._stopping):
            self._log.warning("flow_taken_back")
            self._held_before = False

    def _make_upkeep(self, flow: FlowConfig) -> tuple[Upkeep, Discovery, FirstLook]:
        """Return a new `Upkeep`, `Discovery` and `FirstLook` for this configuration of the flow."""
        services, admins = self._services, (self._source_admin, self._target_admin)
        clusters = services.upkeep(flow.source), services.upkeep(flow.target), services.clock
        upkeep = Upkeep(flow, *clusters, services.mm2(flow), *deletion_guards(flow, services.config, services.claims))
        self.groups.on_translated = upkeep.see_groups
        discovery = Discovery(flow, *admins, services.claims, upkeep.settings.for_new)
        return upkeep, discovery, FirstLook(flow, services.config.clusters[flow.source])

    async def _take_up(self) -> None:
        """Switch to the latest configuration if a change is pending."""
        self._drains = False
        if self._next is None:
            return
        former, discovery, self.flow, self._next = self._upkeep, self._discovery, self._next, None
        self._upkeep, self._discovery, self._first_look = self._make_upkeep(self.flow)
        self._discovery.go_on_from(discovery)
        self._replaced.set()
        self._log.info("flow_changed", changes=self._unrecorded)
        if self._fleet is None:
            await former.close()

    async def _discover(self, recorder: Recorder, fleet: Fleet) -> None:
        """Refresh the set of lanes regularly. Return when all lanes must be drained for a new configuration."""
        await self._services.claims.until_read(self.flow, OTHERS_S)
        while not self._drains:
            self._changed.clear()
            await self._take_up()
            if self._unrecorded:
                unrecorded, self._unrecorded = self._unrecorded, []
                await recorder.write([ConfigChanged(tuple(unrecorded))])
            try:
                if self.flow.on_recreated == "fresh":
                    await recorder.read()  # the ledger shows what was copied before a topic was re-created
                note = partial(self._first_look.note, recorder=recorder)
                self._discovered = await self._discovery.refresh(recorder.bind, note)
            except EnvironmentFault:
                looked = None  # `ClusterWatch` reports the failure; known lanes continue
            else:
                looked = self._discovered
                fleet.want(self._discovered.lanes)
                self._figures.keep([lane.lane for lane in self._discovered.lanes])
                self._hazards = hazards_of(self.flow, self._discovered, self._store.state if self._store else None)
                await self._lost_topics.record_lost(self.flow, recorder, self._source_admin, looked, fleet.last_reports)
                self._discovered = found = looked.with_faults(self._lost_topics.hidden)
                seen = (found, fleet.last_reports, self._upkeep.deleted)
                forgotten = await self._forgetting.due(recorder.state, *seen)
                await recorder.write((*found.facts, *forgotten))
                self._upkeep.see(found)
            await wait_for(self._changed, next_refresh_s(self.flow, looked, is_unrecorded=recorder.waiting))

    async def _reconcile(self, keeper: LeaseKeeper, recorder: Recorder, fleet: Fleet) -> None:
        is_new, self._has_begun = keeper.turn == 1 and not self._has_begun, True
        at_ms = self._services.clock.wall_ms()
        await reconcile_for_ever(self.flow.name, fleet, recorder, is_new=is_new, at_ms=at_ms)

    async def _poll(self, fleet: Fleet) -> None:
        observer = f"{self.flow.name}/replicators"
        while True:
            await fleet.poll()
            reports = self._ends.see(fleet.reports)
            self._waits.see(reports)
            self._figures.retention = self._upkeep.settings.retention
            self._figures.note(reports, fleet.deaths, self._services.clock.monotonic())
            await fleet.hurry(self._figures.urgent(reports, self._services.clock.wall_ms()))
            if reports:
                self._source.record(observer, next(filter(None, (each.source_error for each in reports.values())), ""))
                self._target.record(observer, next(filter(None, (each.target_error for each in reports.values())), ""))
            await asyncio.sleep(poll_pause_s(POLL_S, sum(len(each.lanes) for each in reports.values())))

    # The status of the flow.

    def _lanes(self) -> tuple[LaneStatus, ...]:
        if self._store is None:
            return ()
        state, clock = self._store.state, self._services.clock
        if self._fleet is None:
            return recorded_lanes(state, state.lanes, {}, clock.wall_ms())
        wanted = self._discovered.lanes if self._discovered else ()
        reports = self._ends.amend(self._fleet.reports)
        return lines(state, reports, wanted, self._figures, clock, self._ends.by_name, self._lost_topics.hidden)

    def _rpo(self, lanes: Sequence[LaneStatus]) -> RpoStatus | None:
        found = self._discovered
        faults = found.faults if found else ()
        return rpo_status(self.flow.rpo_ms, self._shown_state(), lanes, faults, looked=found is not None)

    def _shown_state(self) -> FlowPhase:
        if self._state != "standby" or self._store is None:
            return self._state
        ledger = self._store.state
        return "standby" if ledger.lease_epoch and not ledger.released else "starting"

    def _lease_status(self) -> LeaseStatus | None:
        return lease_status(self._store.state, int(self._lease.age_s * 1000)) if self._store is not None else None

    def _remark(self) -> str:
        """Return the flow's most important problem as one line for operators, or an empty string if there is none."""
        if note := self._note or self.handover.note:
            return note
        if self._keeper is not None and self._keeper.trouble and not self._keeper.is_valid:
            return f"the lease cannot be renewed, so another daemon may take the flow: {self._keeper.trouble}"
        if self._fleet is not None and self._fleet.note:
            return f"no replicator starts: {self._fleet.note}"
        return self._discovered.note(self._upkeep.faults) if self._discovered is not None else ""

    def _remarks(self) -> tuple[str, ...]:
        hosts = [host.name for host in self._fleet.hosts()] if self._fleet is not None else []
        orders = ledger_remarks(self._store, hosts) if self._store is not None else ()
        if self._fleet is None:
            return orders
        waits = sorted({each.remark for each in self._fleet.reports.values() if each.remark})
        others = (*self._upkeep.remarks, *self._hazards, *self.groups.remarks)
        return (*(self._failover.remarks if self._failover is not None else ()), *orders, *waits, *others)

    def _note_fault(self, line: str) -> None:
        if line and line != self._note:
            self._log.error("flow_not_running", reason=line)
        self._note = line
