"""What does the offset map cost: in the ledger, at a start, in memory, and for each translation?

A ledger on a real cluster is filled with runs and trimmed, so that its snapshots hold them all. A fresh process then
opens it as every reader does, with little memory for it and with the default, and translates. There are three maps: one
partition with ten million runs; 100 partitions of a transactional source with 10 commits per second each, for 10
minutes, which are recorded in the ledger fact by fact; and the same as copied by a daemon (`bench.questions.map_copy`).
"""

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Callable

import msgspec
import psutil

from bench.questions import map_copy
from mirrord.config.limits import LimitsConfig
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.lab.cluster import Cluster
from mirrord.ledger.codec import encode_state
from mirrord.ledger.facts.core import (
    AnyFact,
    FlowOpened,
    Holder,
    LaneOpened,
    LaneTaken,
    LeaseTaken,
    SourceRun,
    TargetRun,
)
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.ledger.state_topic_rows import Kept
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import FileAttic
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId
from mirrord.model.run_memory import ALL_OF_IT, PIECE_RUNS, RunMemory
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock

RUNS = 10_000_000
LANES = 100
COMMITS = 6_000
LONGEST_TRANSACTION = 199
TOLD_TOGETHER = 500
TRANSLATIONS = 20_000
MAP_BYTES = (8 << 20, LimitsConfig().map_bytes)
DEADLINE_S = 120.0

PrintLine = Callable[[str], None]


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a fresh process."""

    map_bytes: int
    """`limits.map_bytes`."""
    open_s: float
    rss_bytes: int
    """Growth of its resident memory."""
    newest_us: float
    """A translation among the newest runs of a partition, in both directions alternately."""
    any_us: float
    """A translation anywhere in the map."""
    file_bytes: int
    """Size of the temporary file for the part that does not fit."""


class MapCost(msgspec.Struct, frozen=True, kw_only=True):
    """One map."""

    what: str
    partitions: int
    runs: int
    snapshot_bytes: int
    opened: tuple[Opened, ...]


def measure(source: Cluster, target: Cluster, share: float, seed: int, print_line: PrintLine) -> list[MapCost]:
    """Measure all maps. Raises EnvironmentFault."""
    chance = random.Random(seed)
    return [
        asyncio.run(_measure(target.bootstrap, "one partition", 1, round(RUNS * share), chance, print_line)),
        asyncio.run(_measure(target.bootstrap, "transactions", LANES, round(COMMITS * share), chance, print_line)),
        _measure_copy(source, target, share, print_line),
    ]


def _measure_copy(source: Cluster, target: Cluster, share: float, print_line: PrintLine) -> MapCost:
    flow = f"map-{uuid.uuid4().hex[:8]}"
    commits = map_copy.copy(source, target, flow, share, print_line)
    state = asyncio.run(_read(flow, target.bootstrap))
    lanes = [lane for lane in state.lanes.values() if lane.source_topic == map_copy.TOPIC]
    runs = sum(len(lane.source_runs) + len(lane.target_runs) for lane in lanes)
    if runs < commits * len(lanes):
        raise EnvironmentFault(f"{commits} transactions in {len(lanes)} partitions gave {runs} runs only")
    size = snapshot_bytes(state)
    opened = tuple(_open_in_a_fresh_process(flow, target.bootstrap, each) for each in MAP_BYTES)
    return MapCost(what="copied", partitions=len(lanes), runs=runs, snapshot_bytes=size, opened=opened)


async def _read(flow: str, bootstrap: str) -> FlowState:
    store = store_of(flow, bootstrap)
    await store.open(read_only=True)
    await store.close()
    return store.state


async def _measure(
    bootstrap: str, what: str, lanes: int, runs: int, chance: random.Random, print_line: PrintLine
) -> MapCost:
    flow = f"map-{uuid.uuid4().hex[:8]}"
    print_line(f"map: {what}: {lanes * runs:,} runs")
    store = store_of(flow, bootstrap)
    await store.open()
    try:
        await open_flow(store, FlowOpened(flow, ClusterId("source"), ClusterId("target")))
        await store.append(1, [LeaseTaken(1, Holder("bench", 0, "bench", ""), 60_000)])
        for number in range(lanes):
            await fill(store, lane_of(number), runs, chance, is_recorded=lanes > 1)
        print_line(f"map: {what}: filled")
        await store.trim(0)
        size = snapshot_bytes(store.state)
    finally:
        await store.close()
    opened = [await asyncio.to_thread(_open_in_a_fresh_process, flow, bootstrap, each) for each in MAP_BYTES]
    return MapCost(what=what, partitions=lanes, runs=lanes * runs, snapshot_bytes=size, opened=tuple(opened))


async def fill(store: LedgerStore, lane: LaneId, runs: int, chance: random.Random, *, is_recorded: bool) -> None:
    key = LaneKey.parse(lane)
    opening: tuple[AnyFact, ...] = (
        LaneOpened(lane, "orders", "eu.orders", key.partition, 1, 0, "all"),
        LaneTaken(lane, 1, "bench"),
        TargetRun(lane, 1, 0, 0, 0),
    )
    await store.append(1, opening)
    state = store.state.lanes[lane].source_runs
    ordinal = offset = 0
    facts: list[AnyFact] = []
    for _ in range(runs):
        if is_recorded:
            facts.append(SourceRun(lane, 1, (Run(ordinal, offset),)))
        else:
            # As if it had been recorded: only the work of a reader of the snapshots is measured.
            state.add(ordinal, offset)
        length = chance.randint(1, LONGEST_TRANSACTION)
        ordinal, offset = ordinal + length, offset + length + 1
        if len(facts) == TOLD_TOGETHER:
            await store.append(1, facts)
            facts.clear()
    if facts:
        await store.append(1, facts)


def snapshot_bytes(state: FlowState) -> int:
    cut = snapshots(state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0))
    return sum(len(encode_state(record)) for record in cut.records)


def _open_in_a_fresh_process(flow: str, bootstrap: str, map_bytes: int) -> Opened:
    command = [sys.executable, "-m", "bench.questions.map_cost", flow, bootstrap, str(map_bytes)]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    if done.returncode:
        raise EnvironmentFault(f"the ledger could not be opened: {done.stderr[-500:]}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Opened)


async def _open(flow: str, bootstrap: str, map_bytes: int) -> Opened:
    process, attic = psutil.Process(), FileAttic()
    before = process.memory_info().rss
    store = store_of(flow, bootstrap, RunMemory(map_bytes, attic))
    began = time.perf_counter()
    await store.open(read_only=True)
    open_s = time.perf_counter() - began
    await store.close()
    lane = max(store.state.lanes.values(), key=lambda each: len(each.source_runs))
    last = lane.source_runs.last
    if last is None:
        raise EnvironmentFault("the map is empty")
    lane_map = LaneMap(lane, CopiedPosition(last.ordinal, last.ordinal, last.offset))
    newest = lane.source_runs.at(max(len(lane.source_runs) - PIECE_RUNS, 0)).offset
    newest_us = _translation_us(lane_map, newest, last.offset)
    any_us = _translation_us(lane_map, 0, last.offset)
    return Opened(
        map_bytes=map_bytes,
        open_s=open_s,
        rss_bytes=process.memory_info().rss - before,
        newest_us=newest_us,
        any_us=any_us,
        file_bytes=attic.file_bytes,
    )


def _translation_us(lane_map: LaneMap, first: int, end: int) -> float:
    chance = random.Random(1)
    asked = [chance.randrange(first, end) for _ in range(TRANSLATIONS)]
    began = time.perf_counter()
    for offset in asked:
        translation = lane_map.to_target(offset)
        lane_map.to_source(translation.offset or 0)
    return (time.perf_counter() - began) / TRANSLATIONS / 2 * 1e6


def store_of(flow: str, bootstrap: str, memory: RunMemory = ALL_OF_IT) -> LedgerStore:
    cluster = ClusterConfig(tuple(bootstrap.split(",")), Security())
    topics = KafkaLog(flow, cluster, deadline_seconds=DEADLINE_S)
    return LedgerStore(topics, SystemClock(), deadline_seconds=DEADLINE_S, memory=memory)


def lane_of(number: int) -> LaneId:
    return LaneKey(TopicId("source-topic-id-000000"), number, TopicId("target-topic-id-000000")).id


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(_open(sys.argv[1], sys.argv[2], int(sys.argv[3])))).decode())
