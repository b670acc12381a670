"""Determines how ready flows are for the loss of their source clusters. The flow's daemon is asked for its status; if
it does not answer, the target cluster alone is enough."""

import asyncio
import socket
import threading
from collections.abc import Sequence
from contextlib import closing, suppress

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.log_offsets import LogOffsets
from mirrord.ledger.last_seen.source_ends import SeenEnd
from mirrord.ledger.source_ends import SourcePartition
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.names import TopicPartition
from mirrord.model.readiness import FlowReadiness, ReadinessReport
from mirrord.model.version import version
from mirrord.operations.status_report import PATIENCE_S, LedgerView, ask_daemons, read_ledgers
from mirrord.recovery.flow_readiness import Live, ReadinessOptions, assess
from mirrord.recovery.target_survey import TargetClients
from mirrord.recovery.turns import Turns
from mirrord.supervision.lane_status import present_lanes

SOURCE_S = 1.0
"""Time limit for the source to report its high watermarks, if no daemon answers. It may be gone."""


def gather_readiness(config: Config, asked: ReadinessOptions) -> ReadinessReport:
    """Return the readiness of the configured flows. Raises EnvironmentFault if no ledger can be read."""
    return asyncio.run(_gather(config, asked))


async def readiness_of(config: Config, flow: FlowConfig, asked: ReadinessOptions) -> FlowReadiness:
    """Return the readiness of one flow. Raises EnvironmentFault if its ledger cannot be read."""
    (found,) = (await _gather(config.only([flow]), asked)).flows
    return found


async def _gather(config: Config, asked: ReadinessOptions) -> ReadinessReport:
    access = ClusterAccess(config, PATIENCE_S)
    views = await read_ledgers(config, access)
    if all(isinstance(view, MirrordError) for view in views.values()):
        raise EnvironmentFault("\n".join(f"flow {name}: {view}" for name, view in views.items()))
    daemons = await ask_daemons((view.http for view in views.values() if isinstance(view, LedgerView)), config)
    reported = {flow.name: flow for daemon in daemons for flow in daemon.flows if flow.state == "running"}

    async def one(flow: FlowConfig) -> FlowReadiness:
        view, status = views[flow.name], reported.get(flow.name)
        if not isinstance(view, LedgerView):
            return _unreadable(flow, view, access.clock.wall_ms())
        live = (
            Live(status.lanes)
            if status is not None
            else Live(ends=await _source_ends(config, flow, view.state, access))
        )
        topics, upkeep = access.admin(flow.target), access.upkeep(flow.target)
        try:
            clients = TargetClients(config.clusters[flow.target], topics, upkeep, bool(asked.principals))
            found = await assess(flow, view.state, live, clients, access.clock.wall_ms(), Turns())
            return found.answer(asked)
        finally:
            await asyncio.gather(topics.close(), upkeep.close())

    flows = tuple(await asyncio.gather(*(one(flow) for flow in config.flows)))
    return ReadinessReport(version=version(), ready=all(flow.ready for flow in flows), flows=flows)


def _unreadable(flow: FlowConfig, why: MirrordError, now_ms: int) -> FlowReadiness:
    return FlowReadiness(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        ready=False,
        at_ms=now_ms,
        grounds="ledger",
        blockers=(f"the ledger: {why}",),
    )


async def _source_ends(
    config: Config, flow: FlowConfig, state: FlowState, access: ClusterAccess
) -> dict[TopicPartition, SeenEnd]:
    """Return the high watermarks of the source, if it answers at once."""
    wanted = [
        SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition)
        for lane in present_lanes(state, state.lanes)
    ]
    if not await _is_resolved(config.clusters[flow.source].bootstrap):
        return {}
    asked_ms = access.clock.wall_ms()
    with closing(LogOffsets(config.clusters[flow.source], SOURCE_S)) as client:
        try:
            async with asyncio.timeout(SOURCE_S):
                ends = await client.high_watermarks(wanted)
        except (EnvironmentFault, TimeoutError):
            return {}
    return {TopicPartition(each.topic, each.partition): SeenEnd(end, asked_ms) for each, end in ends.items()}


async def _is_resolved(bootstrap: Sequence[str]) -> bool:
    """Return whether the names of these servers are resolved in time. They may have gone with the source.

    A thread of the event loop would be awaited at the end of the process, however long it takes.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def resolve() -> None:
        _resolve(bootstrap)
        with suppress(RuntimeError):  # the event loop may have ended
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=resolve, daemon=True).start()
    with suppress(TimeoutError):
        await asyncio.wait_for(done.wait(), SOURCE_S)
    return done.is_set()


def _resolve(bootstrap: Sequence[str]) -> None:
    for server in bootstrap:
        host, _, port = server.rpartition(":")
        with suppress(OSError):
            socket.getaddrinfo(host.strip("[]"), port)
