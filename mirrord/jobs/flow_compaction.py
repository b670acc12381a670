"""Compacts the offset maps of several flows: moves older runs from the ledgers into files. Spark is started only if
there are runs to move."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from mirrord.config.jobs import SparkSettings
from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.compaction import Compacted, FileWork, RunSelection, Spread, compact, write
from mirrord.ledger.store.run_archive import ArchiveFile, writable
from mirrord.operations.status_report import PATIENCE_S

OnFlowProgress = Callable[[str, int, int], None]
"""The callback that receives the progress of a flow: the name of the flow, the number of runs written so far, and the
total number of runs."""


def compact_flows(
    config: Config, folder: Path, wanted: RunSelection, settings: SparkSettings, report: OnFlowProgress
) -> list[Compacted]:
    """Compact the offset map of each flow that has a ledger. Return, for each of these flows, how many runs were moved
    into how many files. Raises ConfigError or EnvironmentFault."""
    due = [(flow, asyncio.run(_count_runs(config, flow, wanted))) for flow in config.flows]
    writable(folder)
    with ExitStack() as stack:
        spread: Spread = _here
        if any(runs for _, runs in due):
            from mirrord.jobs.compaction_spark_tasks import open_spread  # noqa: PLC0415 - it loads Spark

            spread = stack.enter_context(open_spread(settings))
        return [
            asyncio.run(_compact(config, flow, folder, wanted, spread, report))
            for flow, runs in due
            if runs is not None
        ]


def moved_line(done: Sequence[Compacted]) -> str:
    """Return one line that says how many runs were moved into how many files."""
    if not any(each.runs for each in done):
        return "nothing to move"
    return f"{sum(each.runs for each in done):,} gaps moved into {sum(each.files for each in done):,} files"


def _here(works: Sequence[FileWork]) -> list[ArchiveFile]:
    """Write the files in this process, without Spark. Used if no flow had runs to move when `compact_flows` counted
    them, but some runs can be moved now."""
    return [write(work) for work in works]


async def _count_runs(config: Config, flow: FlowConfig, wanted: RunSelection) -> int | None:
    """Count the runs that can be moved from a flow's ledger into files. Return None if the flow has no ledger."""
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    try:
        await store.open(read_only=True)
    except LedgerMissing:
        return None
    try:
        return sum(part.runs for part in wanted.parts(store.state))
    finally:
        await store.close()


async def _compact(
    config: Config, flow: FlowConfig, folder: Path, wanted: RunSelection, spread: Spread, report: OnFlowProgress
) -> Compacted:
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    await store.open()
    try:
        return await compact(
            store, folder / flow.name, wanted, spread, lambda done, every: report(flow.name, done, every)
        )
    finally:
        await store.close()
