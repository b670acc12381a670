"""Runs drills. Finds the ledger and the clusters of each flow, and rehearses its failover."""

import asyncio
from collections.abc import Callable

from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.job_lease import busy_line
from mirrord.ledger.store.process_identity import is_dead_worker
from mirrord.model.drill import DrillReceipt
from mirrord.model.errors import ConfigError
from mirrord.model.jobs import JobOutcome
from mirrord.model.readiness import FlowReadiness
from mirrord.operations.readiness_report import readiness_of
from mirrord.recovery.drill.flow_drill import DrillOptions, DrillTools, FlowDrill
from mirrord.recovery.drill.group_stage import GroupClients
from mirrord.recovery.flow_readiness import ReadinessOptions
from mirrord.supervision.rules.failover_orders import check_no_failover

PATIENCE_S = 10.0
"""Time limit for a ledger to answer."""

OnProgress = Callable[[int, int], None]


class NothingToRehearse(ConfigError):
    """Raised if a flow has copied nothing yet, or if its copying has ended or is about to end."""


def drill(config: Config, flow: FlowConfig, asked: DrillOptions, progress: OnProgress) -> DrillReceipt:
    """Rehearse the failover of a flow and return the receipt. `progress` is called with the number of examined
    positions, and with the number of all.

    Raises NothingToRehearse, and EnvironmentFault if the ledger does not answer.
    """
    return asyncio.run(_drill(config, flow, asked, progress))


async def _drill(config: Config, flow: FlowConfig, asked: DrillOptions, progress: OnProgress) -> DrillReceipt:
    access = ClusterAccess(config, PATIENCE_S)
    store = access.ledger(flow)
    try:
        await store.open(read_only=True)
    except LedgerMissing:
        raise NothingToRehearse(f"flow {flow.name} has never run, so there is nothing to rehearse") from None
    source_topics, topics, upkeep = access.admin(flow.source), access.admin(flow.target), access.upkeep(flow.target)
    try:
        check_rehearsable(flow, store.state)

        async def ready() -> FlowReadiness:
            return await readiness_of(config, flow, ReadinessOptions(principals=asked.principals))

        clusters = (config.clusters[flow.source], config.clusters[flow.target])
        clients = GroupClients(*clusters, store, source_topics, topics, upkeep, progress)
        return await FlowDrill(flow, DrillTools(clients, access.clock, ready), asked).run()
    finally:
        await asyncio.gather(source_topics.close(), topics.close(), upkeep.close(), store.close())


async def _check(config: Config, flow: FlowConfig) -> str:
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    try:
        await store.open(read_only=True)
    except LedgerMissing:
        raise NothingToRehearse(f"flow {flow.name} has never run, so there is nothing to rehearse") from None
    try:
        check_rehearsable(flow, store.state)
        job = store.state.jobs.get("drill")
        return "" if job is None or job.outcome is not None or is_dead_worker(job.worker) else busy_line(flow.name, job)
    finally:
        await store.close()


def check_drill(config: Config, flow: FlowConfig) -> str:
    """Return why a drill of the flow cannot run now, as one line, or an empty string. Raises
    NothingToRehearse, and EnvironmentFault if the ledger cannot be read."""
    return asyncio.run(_check(config, flow))


def check_rehearsable(flow: FlowConfig, state: FlowState) -> None:
    """Raise NothingToRehearse if there is nothing to rehearse."""
    try:
        check_no_failover(flow.name, state.recoveries)
    except ConfigError as fault:
        raise NothingToRehearse(str(fault)) from None
    if not state.lanes:
        raise NothingToRehearse(f"flow {flow.name} has not copied anything yet, so there is nothing to rehearse")


def outcome_of(receipt: DrillReceipt) -> tuple[JobOutcome, str]:
    """Return the outcome of a drill, and one line that describes it."""
    took_s = sum(each.took_ms for each in receipt.stages) / 1000
    if receipt.is_good:
        return "done", f"no findings: {_counted(receipt)}, in {took_s:.1f} s"
    found = len(receipt.findings) + receipt.omitted
    more = f" (and {found - 1} more)" if found > 1 else ""
    return "differences", f"{receipt.findings[0]}{more}"


def receipt_lines(receipt: DrillReceipt) -> list[str]:
    """Return the receipt for operators."""
    found = len(receipt.findings) + receipt.omitted
    head = "no findings" if receipt.is_good else "1 finding" if found == 1 else f"{found} findings"
    lines = [f"{receipt.flow}: {head}"]
    lines += [f"  ! {line}" for line in receipt.findings]
    lines += [f"  ! and {receipt.omitted} more"] if receipt.omitted else []
    lines += [f"  consumer groups: {receipt.groups}, {_counted(receipt)}"]
    lines += [f"  {receipt.note}"] if receipt.note else []
    stages = ", ".join(f"{each.name} {each.took_ms / 1000:.1f} s" for each in receipt.stages)
    return [*lines, f"  {stages}"]


def _counted(receipt: DrillReceipt) -> str:
    parts = [f"{receipt.compared:,} next records are the same"]
    for number, what in (
        (receipt.at_end, "at the end"),
        (receipt.waiting, "not copied yet"),
        (receipt.explained, "explained by the ledger or by compaction"),
        (receipt.active, "active on the target"),
        (receipt.kept, "kept as they are on the target"),
        (receipt.skipped, "not examined"),
    ):
        if number:
            parts.append(f"{number:,} {what}")
    return f"{receipt.positions:,} positions: {', '.join(parts)}"
