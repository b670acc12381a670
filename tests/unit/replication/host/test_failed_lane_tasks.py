"""A lane whose question cannot be answered because of an error inside mirrord halts, instead of waiting forever."""

from structlog.testing import capture_logs

from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.host.lane_host import LaneHost
from mirrord.replication.lane.assignment import LaneAssignment
from mirrord.runtime.clock import SystemClock
from tests.fixtures.supervision import eventually
from tests.unit.replication.host.test_removed_lane import CLUSTERS, SETUP


async def test_a_lane_whose_task_fails_halts_alone() -> None:
    pool, options = BufferPool(0), ConnectionOptions()
    source, target = (ClusterView(alias, config, pool, options, ClusterId("")) for alias, config in CLUSTERS.items())
    store = LedgerStore(MemoryLog(MemoryLedger()), SystemClock(), trims=False)
    await store.open()
    host = LaneHost(SETUP, SystemClock(), store, lambda: True, source, target)
    lanes: list[HostedLane] = []
    for number in range(2):
        key = LaneKey(TopicId(f"source {number}"), 0, TopicId(f"target {number}"))
        hosted = host.add(LaneAssignment(key, "orders", "eu.orders", "none"), f"replicator/{number}")
        assert hosted is not None
        lanes.append(hosted)
    failing, other = lanes

    async def fail() -> None:
        raise KeyError("x")

    with capture_logs() as events:
        host._begin(failing, fail())  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: any(each["event"] == "lane_halted" for each in events))
    halted = [each for each in events if each["event"] == "lane_halted"]
    assert [each["lane"] for each in halted] == [failing.lane.id]
    assert "an error inside mirrord" in halted[0]["line"]
    failed = [each for each in events if each["event"] == "host_task_failed"]
    assert [each["lane"] for each in failed] == [str(failing.lane.id)]
    with capture_logs() as events:
        # A task of a lane that has left the host changes nothing.
        host.remove(other)
        host._begin(other, fail())  # pyright: ignore[reportPrivateUsage]
        await eventually(lambda: any(each["event"] == "host_task_failed" for each in events))
    assert not any(each["event"] == "lane_halted" for each in events)
    await host.close()
    await store.close()
