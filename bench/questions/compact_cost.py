"""What does it cost to move a map of ten million runs into a dataset, and how does the ledger behave afterwards?

A ledger on a real cluster is filled as in `bench.questions.map_cost`: one partition of a transactional source. Its
lease is released, as by a daemon that was stopped. Then `mirrord compact` runs as a separate process, including Spark's
start. A fresh process opens the ledger before and after, and translates.
"""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec

from bench.questions.map_cost import fill, lane_of, snapshot_bytes, store_of
from mirrord.config.loader import load_file
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import FlowOpened, Holder, LeaseReleased, LeaseTaken, Progress
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId

RUNS = 10_000_000
TRANSLATIONS = 2_000
DEADLINE_S = 120.0

PrintLine = Callable[[str], None]


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a fresh process."""

    open_s: float
    first_ms: float
    """The first translation of an old offset."""
    any_us: float
    """A translation of any offset, after all parts have been read once."""
    answers: tuple[int | None, ...]


class CompactCost(msgspec.Struct, frozen=True, kw_only=True):
    """One compaction."""

    runs: int
    moved: int
    seconds: float
    dataset_bytes: int
    snapshot_bytes: tuple[int, int]
    """Before and after."""
    opened: tuple[Answered, Answered]


def measure(target: Cluster, share: float, seed: int, print_line: PrintLine) -> CompactCost:
    """Measure one map. Raises EnvironmentFault."""
    flow, runs = f"compact-{uuid.uuid4().hex[:8]}", round(RUNS * share)
    print_line(f"compact: {runs:,} runs")
    with tempfile.TemporaryDirectory(prefix="mirrord-compact-") as folder:
        conf = Path(folder) / "conf.toml"
        conf.write_text(
            f'[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "{target.bootstrap}"\n'
            f'[[flows]]\nname = "{flow}"\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n[compact]\npath = "maps"\n'
        )
        before = asyncio.run(_filled(flow, target.bootstrap, runs, seed))
        print_line("compact: filled")
        opened = _asked(conf)
        began = time.monotonic()
        (done,) = msgspec.json.decode(_run("mirrord.cli.main", "compact", str(conf), "--json"))["flows"]
        seconds = time.monotonic() - began
        print_line(f"compact: moved {done['runs']:,} runs in {seconds:.1f} s")
        after = asyncio.run(_size(flow, target.bootstrap))
        reopened = _asked(conf)
    if reopened.answers != opened.answers:
        raise EnvironmentFault("the map answers differently after it was compacted")
    return CompactCost(
        runs=runs,
        moved=done["runs"],
        seconds=seconds,
        dataset_bytes=done["size_bytes"],
        snapshot_bytes=(before, after),
        opened=(opened, reopened),
    )


async def _filled(flow: str, bootstrap: str, runs: int, seed: int) -> int:
    """Return the size of its snapshots."""
    store, lane = store_of(flow, bootstrap), lane_of(0)
    await store.open()
    try:
        await open_flow(store, FlowOpened(flow, ClusterId("source"), ClusterId("target")))
        await store.append(1, [LeaseTaken(1, Holder("bench", 0, "bench", ""), 60_000)])
        await fill(store, lane, runs, random.Random(seed), is_recorded=False)
        last = store.state.lanes[lane].source_runs.last
        end = last.ordinal if last is not None else 0
        await store.save(Progress(lane, 1, 1, end, end, 0, end, end, 0, 0, protected=True, state="copying"))
        await store.append(1, [LeaseReleased(1)])
        await store.trim(0)
        return snapshot_bytes(store.state)
    finally:
        await store.close()


async def _size(flow: str, bootstrap: str) -> int:
    store = store_of(flow, bootstrap)
    await store.open(read_only=True)
    await store.close()
    return snapshot_bytes(store.state)


def _asked(conf: Path) -> Answered:
    return msgspec.json.decode(_run("bench.questions.compact_cost", str(conf)), type=Answered)


def _run(*words: str) -> str:
    """Return the last line of a process's output."""
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, check=False, text=True)
    if done.returncode:
        raise EnvironmentFault(f"{words[0]} failed: {done.stderr[-500:]}")
    return done.stdout.splitlines()[-1]


async def _ask(conf: str) -> Answered:
    config = load_file(conf).config
    (flow,) = config.flows
    store: LedgerStore = ClusterAccess(config, DEADLINE_S).ledger(flow)
    began = time.perf_counter()
    await store.open(read_only=True)
    open_s = time.perf_counter() - began
    await store.close()
    lane = store.state.lanes[lane_of(0)]
    lane_map = LaneMap(lane, CopiedPosition.by(store.state.progress[lane_of(0)]))
    last = lane.source_runs.last
    if last is None:
        raise EnvironmentFault("the map is empty")
    chance = random.Random(1)
    asked = [chance.randrange(last.offset) for _ in range(TRANSLATIONS)]
    began = time.perf_counter()
    lane_map.to_target(last.offset // 3)
    first_ms = (time.perf_counter() - began) * 1e3
    answers = [lane_map.to_target(offset).offset for offset in asked]
    began = time.perf_counter()
    for offset in asked:
        lane_map.to_target(offset)
    any_us = (time.perf_counter() - began) / TRANSLATIONS * 1e6
    return Answered(open_s=open_s, first_ms=first_ms, any_us=any_us, answers=tuple(answers[:200]))


if __name__ == "__main__":
    print(msgspec.json.encode(asyncio.run(_ask(sys.argv[1]))).decode())
