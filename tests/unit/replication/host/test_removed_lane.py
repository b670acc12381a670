"""A lane that a replicator no longer hosts is freed at once, without the garbage collector."""

import asyncio
import gc
import weakref
from collections.abc import Generator

import pytest

from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.replication.host import lane_host
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.host.lane_host import LaneHost
from mirrord.replication.lane.assignment import FlowSetup, LaneAssignment, Parting
from mirrord.runtime.clock import SystemClock
from tests.fixtures.supervision import eventually

LANES = 5
CLUSTERS = {alias: ClusterConfig(("127.0.0.1:1",), Security()) for alias in ("eu", "us")}
SETUP = FlowSetup(
    flow=FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",)),
    source=CLUSTERS["eu"],
    target=CLUSTERS["us"],
    runtime=RuntimeConfig(),
    lease_epoch=1,
    source_cluster_id=ClusterId("a"),
    target_cluster_id=ClusterId("b"),
)


@pytest.fixture(autouse=True)
def _uncollected() -> Generator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_removed_lanes_are_freed_without_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_host, "GONE_KEPT_S", 0.0)
    pool, options = BufferPool(0), ConnectionOptions()
    source, target = (ClusterView(alias, config, pool, options, ClusterId("")) for alias, config in CLUSTERS.items())
    store = LedgerStore(MemoryLog(MemoryLedger()), SystemClock(), trims=False)
    await store.open()
    host = LaneHost(SETUP, SystemClock(), store, lambda: True, source, target)
    ended: list[weakref.ref[HostedLane] | weakref.ref[asyncio.Future[Parting]]] = []
    for number in range(LANES):
        key = LaneKey(TopicId(f"source {number}"), 0, TopicId(f"target {number}"))
        hosted = host.add(LaneAssignment(key, "orders", "eu.orders", "none"), f"replicator/{number}")
        assert hosted is not None
        host.start(hosted)
        host.remove(hosted)
        ended += [weakref.ref(hosted), weakref.ref(hosted.left)]
        del hosted
    await eventually(lambda: not [each for each in ended if each() is not None])
    await host.close()
    await store.close()
