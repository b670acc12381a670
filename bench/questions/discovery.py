"""What does it cost to keep a thousand topics in sync?

Discovery and upkeep run in this process, without a daemon and without copying, so the CPU-seconds are only theirs:
first round by round, then on their own schedule with mirrord's intervals. In addition, a whole daemon in one process is
measured at rest, with a lane for each partition of the same topics.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Topic
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Security
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.lab.cluster import Cluster
from mirrord.ledger.facts.core import FlowOpened, Holder
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.upkeep import Upkeep
from mirrord.topics.discovery import Discovery, next_refresh_s
from mirrord.topics.topic_claims import Claims

TOPICS = 1_000
PARTITIONS = 3
ROUNDS = 10
CREATED_AT_ONCE = 100
STEADY_S = 60.0
SETTLE_S = 10.0
START_S = 180.0
LIMIT_S = 60.0
_POLL_S = 0.5
FLOW = FlowConfig(name="discovery", source="eu", target="us", topics=("topic-.*",))
REFRESH_S = (FLOW.refresh_ms or 0) / 1000
"""mirrord's default."""

PrintLine = Callable[[str], None]

FIRST = "discovery: all topics are new, all looks together"
AT_REST = "discovery: nothing has changed"
CHANGED = "discovery: one topic is new, all looks together"
SETTINGS_FIRST = "settings: first look"
SETTINGS_AT_REST = "settings: nothing has changed"
SETTINGS_CHANGED = "settings: one topic is new"
STEADY = "discovery and upkeep at their intervals"
DAEMON = "all of a daemon at rest, engine process"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """CPU-seconds of one kind of round."""

    what: str
    rounds: int
    median_s: float
    greatest_s: float


class Rest(msgspec.Struct, frozen=True, kw_only=True):
    """CPU-seconds per second, with nothing to do."""

    what: str
    seconds: float
    core_share: float


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of keeping this number of topics in sync."""

    topics: int
    partitions: int
    """Partitions of each topic."""
    costs: list[Cost]
    rests: list[Rest]


class Works(NamedTuple):
    """The work of a flow's holder, apart from its lanes."""

    discovery: Discovery
    upkeep: Upkeep
    store: LedgerStore
    recorder: Recorder


class Costs:
    """The measured rounds."""

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


def measure(source: Cluster, target: Cluster, share: float, print_line: PrintLine) -> Kept:
    """Create the topics and keep them in sync. Raises EnvironmentFault."""
    print_line(f"discovery: creating {TOPICS:,} topics of {PARTITIONS} partitions")
    admin = Admin(source.bootstrap)
    names = [f"topic-{number:04}" for number in range(TOPICS)]
    for first in range(0, TOPICS, CREATED_AT_ONCE):
        admin.create([_topic(name) for name in names[first : first + CREATED_AT_ONCE]])
    costs, rests = asyncio.run(_look_after(source, target, share, print_line))
    rests.append(_daemon_at_rest(source, target, share, print_line))
    return Kept(topics=TOPICS, partitions=PARTITIONS, costs=costs.rows, rests=rests)


async def _look_after(
    source: Cluster, target: Cluster, share: float, print_line: PrintLine
) -> tuple[Costs, list[Rest]]:
    costs, rounds = Costs(), max(1, round(ROUNDS * share))
    async with _works(source, target) as works:
        discovery, settings, recorder = works.discovery, works.upkeep.settings, works.recorder
        await _shown(source, TOPICS)
        print_line("discovery: the first look, which creates all copies")
        await costs.measure(FIRST, 1, lambda: _until_lanes(discovery, TOPICS * PARTITIONS))
        print_line("discovery: more looks")
        await costs.measure(AT_REST, rounds, discovery.refresh)
        lanes = (await discovery.refresh()).lanes
        await costs.measure(SETTINGS_FIRST, 1, lambda: settings.round(lanes, recorder))
        await costs.measure(SETTINGS_AT_REST, rounds, lambda: settings.round(lanes, recorder))
        Admin(source.bootstrap).create([_topic("topic-new")])
        await _shown(source, TOPICS + 1)
        await costs.measure(CHANGED, 1, lambda: _until_lanes(discovery, (TOPICS + 1) * PARTITIONS))
        lanes = (await discovery.refresh()).lanes
        await costs.measure(SETTINGS_CHANGED, 1, lambda: settings.round(lanes, recorder))
        print_line(f"discovery: at rest for {STEADY_S * share:.0f} s")
        return costs, [await _steady(works, STEADY_S * share)]


async def _shown(cluster: Cluster, topics: int) -> None:
    """Wait until the broker shows this number of topics, because it answers a creation earlier. Raises
    EnvironmentFault."""
    admin = KafkaTopicAdmin(ClusterConfig((cluster.bootstrap,), Security()), LIMIT_S)
    deadline = time.monotonic() + START_S
    try:
        while sum(1 for each in (await admin.describe()).topics.values() if each.partitions == PARTITIONS) < topics:
            if time.monotonic() > deadline:
                raise EnvironmentFault(f"the broker does not show {topics:,} topics within {START_S:g} s")
            await asyncio.sleep(_POLL_S)
    finally:
        await admin.close()


async def _until_lanes(discovery: Discovery, lanes: int) -> None:
    """Run as many discoveries as it takes, as often as a daemon does. Raises EnvironmentFault."""
    deadline = time.monotonic() + START_S
    while len((found := await discovery.refresh()).lanes) < lanes:
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"there are {len(found.lanes):,} of {lanes:,} lanes after {START_S:g} s")
        await asyncio.sleep(next_refresh_s(FLOW, found, is_unrecorded=False) or 0)


async def _steady(works: Works, seconds: float) -> Rest:
    """Run both on their own schedule, as `mirrord.supervision.flow_supervisor` does."""

    async def discover() -> None:
        while True:
            works.upkeep.see(await works.discovery.refresh())
            await asyncio.sleep(REFRESH_S)

    tasks = [asyncio.create_task(work) for work in (discover(), works.upkeep.run(_state(works), works.recorder))]
    try:
        await asyncio.sleep(REFRESH_S)
        began, before = time.monotonic(), time.process_time()
        await asyncio.sleep(seconds)
        used, took_s = time.process_time() - before, time.monotonic() - began
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return Rest(what=STEADY, seconds=took_s, core_share=used / took_s)


def _daemon_at_rest(source: Cluster, target: Cluster, share: float, print_line: PrintLine) -> Rest:
    with tempfile.TemporaryDirectory(prefix="mirrord-discovery-") as folder:
        settings = Settings(
            source=source.bootstrap,
            target=target.bootstrap,
            topics=FLOW.topics[0],
            engine="process",
            flow=FLOW.name,
            refresh_s=REFRESH_S,
        )
        daemon = Daemon(Path(folder), settings)
        try:
            print_line("discovery: a daemon starts")
            daemon.start()
            lanes = {"copying": (TOPICS + 1) * PARTITIONS}
            daemon.wait_for("lane", lambda flow: flow.totals.lanes == lanes, START_S)
            time.sleep(SETTLE_S)
            print_line(f"discovery: the daemon at rest for {STEADY_S * share:.0f} s")
            process = psutil.Process(daemon.pid)
            began, before = time.monotonic(), _cpu_s(process)
            time.sleep(STEADY_S * share)
            used, took_s = _cpu_s(process) - before, time.monotonic() - began
        except psutil.Error as error:
            raise EnvironmentFault(f"the daemon has ended: {error}") from error
        finally:
            daemon.stop()
    return Rest(what=DAEMON, seconds=took_s, core_share=used / took_s)


@asynccontextmanager
async def _works(source: Cluster, target: Cluster) -> AsyncGenerator[Works]:
    here, there = (ClusterConfig((each.bootstrap,), Security()) for each in (source, target))
    clock = SystemClock()
    upkeep = Upkeep(FLOW, KafkaUpkeepAdmin(here, LIMIT_S), KafkaUpkeepAdmin(there, LIMIT_S), clock)
    admins = KafkaTopicAdmin(here, LIMIT_S), KafkaTopicAdmin(there, LIMIT_S)
    store = LedgerStore(MemoryLog(MemoryLedger()), clock)
    await store.open()
    await open_flow(store, FlowOpened(FLOW.name, ClusterId("eu"), ClusterId("us")))
    keeper = LeaseKeeper(store, Holder("here", 1, "bench", ""), 600_000, clock)
    await keeper.acquire()
    discovery = Discovery(FLOW, *admins, Claims(), upkeep.settings.for_new)
    try:
        yield Works(discovery, upkeep, store, Recorder(store, keeper))
    finally:
        await keeper.close()
        await store.close()
        await asyncio.gather(upkeep.close(), *(each.close() for each in admins))


def _state(works: Works) -> Callable[[], FlowState]:
    return lambda: works.store.state


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _topic(name: str) -> Topic:
    return Topic(name, PARTITIONS, "none", settings={"retention.ms": "7200000"})
