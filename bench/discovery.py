"""What does it cost to keep a thousand topics in step? `python -m bench.discovery`

Two clusters of the lab, 1,000 topics of 3 partitions each. Discovery and upkeep run in this process, without a daemon
and without copying, so the CPU-seconds of this process are theirs alone.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec

from bench.clusters import Admin
from bench.load import Topic
from bench.pair import pair
from mirrord.lab.cluster import Cluster
from mirrord.lab.settings import LabOptions
from mirrord.model.config import ClusterConfig, FlowConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.model.facts import FlowOpened, Holder
from mirrord.model.names import ClusterId
from mirrord.model.security import Security
from mirrord.shell.clock import SystemClock
from mirrord.shell.discovery import Claims, Discovery
from mirrord.shell.lease import LeaseKeeper
from mirrord.shell.ledger_memory import MemoryLedger, MemoryLog
from mirrord.shell.ledger_store import LedgerStore, open_flow
from mirrord.shell.recorder import Recorder
from mirrord.shell.settings_sync import SettingsSync
from mirrord.shell.topics import KafkaTopicAdmin
from mirrord.shell.upkeep_admin import KafkaUpkeepAdmin

TOPICS = 1_000
PARTITIONS = 3
ROUNDS = 10
CREATED_AT_ONCE = 100
LIMIT_S = 60.0
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("topic-.*",))


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU-seconds of one kind of round."""

    what: str
    rounds: int
    median_s: float
    greatest_s: float


class Costs:
    """Rounds that were measured."""

    def __init__(self) -> None:
        self.rows: list[Cost] = []

    async def measure(self, what: str, rounds: int, work: Callable[[], Awaitable[object]]) -> None:
        """Run rounds of work, one after the other."""
        used: list[float] = []
        for _ in range(rounds):
            before = time.process_time()
            await work()
            used.append(time.process_time() - before)
        self.rows.append(Cost(what=what, rounds=rounds, median_s=statistics.median(used), greatest_s=max(used)))

    def seconds(self, what: str) -> float:
        """The median of a kind of round."""
        return next(row.median_s for row in self.rows if row.what == what)


async def measure(source: Cluster, target: Cluster, topics: int) -> Costs:
    """All rounds. Raises EnvironmentFault."""
    admin = Admin(source.bootstrap)
    names = [f"topic-{number:04}" for number in range(topics)]
    for first in range(0, topics, CREATED_AT_ONCE):
        admin.create([_topic(name) for name in names[first : first + CREATED_AT_ONCE]])
    here, there = (ClusterConfig((each.bootstrap,), Security()) for each in (source, target))
    admins = KafkaTopicAdmin(here, LIMIT_S), KafkaTopicAdmin(there, LIMIT_S)
    upkeep = KafkaUpkeepAdmin(here, LIMIT_S), KafkaUpkeepAdmin(there, LIMIT_S)
    sync = SettingsSync(FLOW, *upkeep)
    discovery = Discovery(FLOW, *admins, Claims(), sync.for_new)
    clock = SystemClock()
    store = LedgerStore(MemoryLog(MemoryLedger()), clock)
    await store.open()
    await open_flow(store, FlowOpened(FLOW.name, ClusterId("eu"), ClusterId("us")))
    keeper = LeaseKeeper(store, Holder("here", 1, "bench", ""), 600_000, clock)
    await keeper.acquire()
    recorder = Recorder(store, keeper)
    costs = Costs()
    try:
        await costs.measure("discovery, all topics are new", 1, discovery.refresh)
        await costs.measure("discovery, nothing is new", ROUNDS, discovery.refresh)
        lanes = (await discovery.refresh()).lanes
        await costs.measure("settings, first look", 1, lambda: sync.round(lanes, recorder))
        await costs.measure("settings, nothing is new", ROUNDS, lambda: sync.round(lanes, recorder))
        admin.create([_topic("topic-new")])
        await costs.measure("discovery, one topic is new", 1, discovery.refresh)
        lanes = (await discovery.refresh()).lanes
        await costs.measure("settings, one topic is new", 1, lambda: sync.round(lanes, recorder))
    finally:
        await keeper.close()
        await store.close()
        await asyncio.gather(*(each.close() for each in (*admins, *upkeep)))
    return costs


def _topic(name: str) -> Topic:
    return Topic(name, PARTITIONS, "none", settings={"retention.ms": "7200000"})


def main(arguments: list[str]) -> int:
    """Prints CPU-seconds per round and the share of a core that the defaults make of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.discovery", description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS, help="how many (default: %(default)s)")
    topics: int = parser.parse_args(arguments).topics
    try:
        options = LabOptions(heap_mb=1024)
        with pair(options, options) as (source, target):
            costs = asyncio.run(measure(source, target, topics))
    except EnvironmentFault as fault:
        print(f"bench.discovery: {fault}", file=sys.stderr)
        return 1
    print(f"{topics:,} topics of {PARTITIONS} partitions; CPU-seconds per round of discovery or upkeep")
    for row in costs.rows:
        print(f"{row.what:<32} {row.rounds:>3} rounds  median {row.median_s:.3f}  greatest {row.greatest_s:.3f}")
    refresh_s, every_s = (FLOW.refresh_ms or 5_000) / 1000, FLOW.sync.every_ms / 1000
    steady = (
        costs.seconds("discovery, nothing is new") / refresh_s + costs.seconds("settings, nothing is new") / every_s
    )
    print(f"at rest, every {refresh_s:g} s and {every_s:g} s: {steady:.1%} of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
