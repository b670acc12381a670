"""Gathers the status of flows outside the daemon. It asks the daemon, or reads the target cluster if no daemon answers.

The lease of a flow contains the address of its daemon. If the ledger has lost facts, the configured address is used. If
no daemon answers, the ledger and the progress records show the offset up to which every lane has copied. The log end
offsets of the source partitions come from the source cluster or, if it does not answer, from the latest progress
records. Nothing is written.
"""

import asyncio
from collections.abc import Iterable
from contextlib import closing

import msgspec

from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.control.address import configured
from mirrord.control.command_sender import CommandRefused, NoAnswer
from mirrord.kafka.client.log_offsets import LogOffsets
from mirrord.ledger.errors import LedgerMissing, LedgerWentBack
from mirrord.ledger.facts.core import LeaseRenewed
from mirrord.ledger.source_ends import SourcePartition, former_losses
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.lease_observer import lease_status
from mirrord.ledger.store.process_identity import is_dead
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import Alias, TopicPartition
from mirrord.model.status import ClusterStatus, FlowPhase, FlowStatus, Status, Totals
from mirrord.model.version import version
from mirrord.supervision.daemon_http_client import ask_status
from mirrord.supervision.failover.ended_flow import ended_line, is_ended
from mirrord.supervision.failover.receipt import failover_status
from mirrord.supervision.jobs.schedule import job_statuses
from mirrord.supervision.lane_status import present_lanes, recorded_lanes
from mirrord.supervision.order_execution import order_remarks
from mirrord.supervision.rules.broker_probe import guarantee
from mirrord.supervision.rules.rpo import rpo_status

PATIENCE_S = 3.0
"""Time limit in seconds for reading the ledgers on the target. It is short, because a person is waiting for the
result."""


class LedgerView(msgspec.Struct, frozen=True):
    """The state of a flow according to its ledger."""

    flow: FlowConfig
    state: FlowState
    renewal: LeaseRenewed | None

    @property
    def http(self) -> str | None:
        """The HTTP address of the flow's daemon. None if the last daemon has released the lease or is known to be
        dead."""
        holder = self.state.holder
        if holder is None or self.state.released or is_dead(holder):
            return None
        return holder.http

    def age_ms(self, now_ms: int) -> int:
        """Return the number of milliseconds since the lease was renewed.

        The two times come from the clocks of two machines, so the result is intended only for display.
        """
        return max(0, now_ms - self.renewal.at_ms) if self.renewal else 0


def gather_status(config: Config) -> Status:
    """Return the status of the configured flows. Raises EnvironmentFault if neither the daemon nor the target
    answers."""
    return asyncio.run(_gather(config))


async def read_ledgers(config: Config, access: ClusterAccess) -> dict[str, LedgerView | MirrordError]:
    """Return the state of every flow's ledger, or the error if the ledger cannot be read. The error is LedgerMissing if
    the flow has never run."""

    async def read(flow: FlowConfig) -> LedgerView:
        store = access.ledger(flow)
        await store.open(read_only=True)
        try:
            return LedgerView(flow, store.state, store.renewal)
        finally:
            await store.close()

    answers = await asyncio.gather(*(read(flow) for flow in config.flows), return_exceptions=True)
    views: dict[str, LedgerView | MirrordError] = {}
    for flow, answer in zip(config.flows, answers, strict=True):
        if not isinstance(answer, LedgerView | MirrordError):
            raise answer
        views[flow.name] = answer
    return views


async def _gather(config: Config) -> Status:
    access = ClusterAccess(config, PATIENCE_S)
    views = await read_ledgers(config, access)
    daemons = await ask_daemons((view.http for view in views.values() if isinstance(view, LedgerView)), config)
    if any(isinstance(view, LedgerWentBack) for view in views.values()):
        there = await ask_daemons([configured(config.http)], config)
        daemons += [daemon for daemon in there if daemon.instance == config.instance]
    reported = {flow.name: flow for daemon in daemons for flow in daemon.flows}
    known = (LedgerMissing, LedgerWentBack, LedgerView)
    if not reported and not any(isinstance(view, known) for view in views.values()):
        raise EnvironmentFault("\n".join(f"flow {name}: {view}" for name, view in views.items()))
    flows = [
        reported[flow.name] if flow.name in reported else await _from_ledger(config, access, flow, views[flow.name])
        for flow in config.flows
    ]
    return Status(
        version=version(),
        instance=config.instance,
        at_ms=access.clock.wall_ms(),
        gathered="daemon" if reported else "target",
        flows=tuple(flows),
    )


async def ask_daemons(addresses: Iterable[str | None], config: Config) -> list[Status]:
    """Return the status of each daemon that answers at these addresses."""
    asked = sorted({address for address in addresses if address})
    answers = await asyncio.gather(*(ask_status(address, config) for address in asked), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, NoAnswer | CommandRefused):
            raise answer
    return [answer for answer in answers if isinstance(answer, Status)]


async def _from_ledger(
    config: Config, access: ClusterAccess, flow: FlowConfig, view: LedgerView | MirrordError
) -> FlowStatus:
    """Return the status of a flow whose daemon does not answer, according to the ledger and the source."""
    now_ms = access.clock.wall_ms()
    if not isinstance(view, LedgerView):
        missing, lost = isinstance(view, LedgerMissing), isinstance(view, LedgerWentBack)
        target = ClusterStatus(flow.target, None, missing or lost, error=None if missing or lost else str(view))
        return _flow_status(
            flow,
            source=await _reach(access, flow.source),
            target=target,
            state="stopped" if missing else "down",
            note="the flow has never run" if missing else str(view) if lost else "",
        )
    ends, error = await _source_ends(config.clusters[flow.source], view.state)
    lanes = recorded_lanes(view.state, view.state.lanes, ends, now_ms)
    status = _flow_status(
        flow,
        source=ClusterStatus(flow.source, view.state.source_cluster, not error, error=error or None),
        target=ClusterStatus(flow.target, view.state.target_cluster, True),
        state=_state(view, now_ms),
        note=ended_line(view.state) if is_ended(view.state) else "",
    )
    promise, promise_note = guarantee(view.state.probed)
    return msgspec.structs.replace(
        status,
        lease=lease_status(view.state, view.age_ms(now_ms)),
        lanes=lanes,
        totals=Totals.of(lanes),
        guarantee=promise,
        guarantee_note=promise_note,
        rpo=rpo_status(flow.rpo_ms, status.state, lanes, (), looked=bool(lanes)),
        remarks=tuple(order_remarks(view.state, ())),
        jobs=job_statuses(config, view.state.jobs, {}, {}),
        failover=failover_status(view.state.recoveries),
        losses=former_losses(view.state, {lane.key.id for lane in present_lanes(view.state, view.state.lanes)}),
        forgotten_losses={**view.state.forgotten_losses},
    )


async def _reach(access: ClusterAccess, alias: Alias) -> ClusterStatus:
    """Return the status of a cluster: its id, and whether it answers. This function is used when nothing else has to be
    read from the cluster."""
    admin = access.admin(alias)
    try:
        async with asyncio.timeout(PATIENCE_S):
            return ClusterStatus(alias, (await admin.describe([])).cluster_id, True)
    except (EnvironmentFault, TimeoutError) as error:
        return ClusterStatus(alias, None, False, error=str(error) or None)
    finally:
        await admin.close()


def _flow_status(
    flow: FlowConfig, *, source: ClusterStatus, target: ClusterStatus, state: FlowPhase, note: str
) -> FlowStatus:
    return FlowStatus(
        name=flow.name,
        source=source,
        target=target,
        state=state,
        lease=None,
        totals=Totals.of(()),
        lanes=(),
        note=note,
        rpo=rpo_status(flow.rpo_ms, state, (), (), looked=False),
    )


def _state(view: LedgerView, now_ms: int) -> FlowPhase:
    state = view.state
    if is_ended(state):
        return "ended"
    if state.holder is None or state.released:
        return "stopped"
    if is_dead(state.holder) or view.age_ms(now_ms) > state.ttl_ms:
        return "down"
    return "running"


async def _source_ends(cluster: ClusterConfig, state: FlowState) -> tuple[dict[TopicPartition, int], str]:
    """Return the high watermarks of the lanes' source partitions. If the source does not answer, return no offsets and
    the reason.

    If a topic was deleted and re-created, the high watermarks of the new topic are not assigned to lanes of the old
    topic.
    """
    lanes = present_lanes(state, state.lanes)
    wanted = [SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition) for lane in lanes]
    try:
        with closing(LogOffsets(cluster)) as client:
            ends = await client.high_watermarks(wanted)
    except EnvironmentFault as error:
        return {}, str(error)
    return {TopicPartition(each.topic, each.partition): end for each, end in ends.items()}, ""
