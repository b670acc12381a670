"""Where a status document comes from when another process asks: the daemon, or else the target cluster alone.

The daemon is found by the flow's lease. When it does not answer, ledger and progress marks tell how far every lane is;
the source is asked for its ends, and when it does not answer either, they are as the marks last told. Nothing is
written.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from mirrord.cluster.probe import guarantee
from mirrord.cluster.rpo import rpo_status
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.state import FlowState as LedgerState
from mirrord.model.config import ClusterConfig, Config, FlowConfig
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.facts import LeaseRenewed
from mirrord.model.names import TopicPartition
from mirrord.model.status import ClusterStatus, FlowState, FlowStatus, Status, Totals
from mirrord.model.version import version
from mirrord.shell.lane_view import recorded_lanes
from mirrord.shell.lease_holder import is_dead
from mirrord.shell.log_offsets import log_offsets
from mirrord.shell.orders import order_remarks
from mirrord.shell.remote import NoAnswer, ask_status
from mirrord.shell.schedule import job_statuses
from mirrord.shell.seen_lease import lease_status
from mirrord.shell.supervise import Surroundings

PATIENCE_S = 3.0
"""How long a target may take to tell what its ledgers say: somebody waits for it."""


class LedgerView(msgspec.Struct, frozen=True):
    """A flow as its ledger tells it."""

    flow: FlowConfig
    state: LedgerState
    renewal: LeaseRenewed | None

    @property
    def http(self) -> str | None:
        """Where the flow's daemon should be; None when the last one left or is known to be dead."""
        holder = self.state.holder
        if holder is None or self.state.released or is_dead(holder):
            return None
        return holder.http

    def age_ms(self, now_ms: int) -> int:
        """Since the lease was renewed, by the wall clocks of two machines: for people."""
        return max(0, now_ms - self.renewal.at_ms) if self.renewal else 0


def gather_status(config: Config) -> Status:
    """The status of the configured flows. Raises EnvironmentFault when neither daemon nor target can be asked."""
    return asyncio.run(_gather(config))


async def read_ledgers(config: Config, surroundings: Surroundings) -> dict[str, LedgerView | MirrordError]:
    """Every flow's ledger as it stands, or why it cannot be read; LedgerMissing when the flow has never run."""

    async def read(flow: FlowConfig) -> LedgerView:
        store = surroundings.ledger(flow)
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
    surroundings = Surroundings(config, PATIENCE_S)
    views = await read_ledgers(config, surroundings)
    if all(isinstance(view, EnvironmentFault) and not isinstance(view, LedgerMissing) for view in views.values()):
        raise EnvironmentFault("\n".join(f"flow {name}: {view}" for name, view in views.items()))
    daemons = await _ask_daemons(view.http for view in views.values() if isinstance(view, LedgerView))
    told = {flow.name: flow for daemon in daemons for flow in daemon.flows}
    flows = [
        told[flow.name] if flow.name in told else await _from_ledger(config, surroundings, flow, views[flow.name])
        for flow in config.flows
    ]
    return Status(
        version=version(),
        instance=config.instance,
        at_ms=surroundings.clock.wall_ms(),
        gathered="daemon" if told else "target",
        flows=tuple(flows),
    )


async def _ask_daemons(addresses: Iterable[str | None]) -> list[Status]:
    asked = sorted({address for address in addresses if address})
    answers = await asyncio.gather(*(ask_status(address) for address in asked), return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, NoAnswer):
            raise answer
    return [answer for answer in answers if isinstance(answer, Status)]


async def _from_ledger(
    config: Config, surroundings: Surroundings, flow: FlowConfig, view: LedgerView | MirrordError
) -> FlowStatus:
    """A flow whose daemon does not answer."""
    now_ms = surroundings.clock.wall_ms()
    if not isinstance(view, LedgerView):
        missing = isinstance(view, LedgerMissing)
        return _flow_status(
            flow,
            source=ClusterStatus(flow.source, None, False),
            target=ClusterStatus(flow.target, None, missing, error=None if missing else str(view)),
            state="stopped" if missing else "down",
            note="the flow has never run" if missing else "",
        )
    ends, error = await _source_ends(config.clusters[flow.source], view.state)
    lanes = recorded_lanes(view.state, view.state.lanes, ends, now_ms)
    status = _flow_status(
        flow,
        source=ClusterStatus(flow.source, view.state.source_cluster, not error, error=error or None),
        target=ClusterStatus(flow.target, view.state.target_cluster, True),
        state=_state(view, now_ms),
        note="",
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
    )


def _flow_status(
    flow: FlowConfig, *, source: ClusterStatus, target: ClusterStatus, state: FlowState, note: str
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


def _state(view: LedgerView, now_ms: int) -> FlowState:
    state = view.state
    if state.holder is None or state.released:
        return "stopped"
    if is_dead(state.holder) or view.age_ms(now_ms) > state.ttl_ms:
        return "down"
    return "running"


async def _source_ends(cluster: ClusterConfig, state: LedgerState) -> tuple[dict[TopicPartition, int], str]:
    """The high watermarks of the lanes' source partitions; or nothing, and why."""
    try:
        lanes = {TopicPartition(lane.source_topic, lane.partition) for lane in state.lanes.values()}
        return await log_offsets(cluster, lanes, "end"), ""
    except EnvironmentFault as error:
        return {}, str(error)
