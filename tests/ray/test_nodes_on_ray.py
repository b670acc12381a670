"""A daemon on a Ray cluster of several nodes, on one machine: a node that joins, and one that is cut off."""

import os
import signal
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest
from ray.cluster_utils import Cluster as RayCluster

from actors.ray_connection import OBJECT_STORE_BYTES
from mirrord.model.status import FlowStatus
from tests.fixtures.daemon import RAY_START_S, Daemon, Load, assert_same, conf, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic
from tests.ray.test_daemon_on_ray import finish, is_alive, until_ended

PARTITIONS = 4
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
QUICK = {"health_check_period_ms": 500, "health_check_timeout_ms": 10_000, "health_check_failure_threshold": 4}
"""With these settings Ray counts a node whose manager is dead as lost after seconds instead of a quarter of a minute,
because its port is closed. A node that is only slow has more time."""


@pytest.fixture
def ray_nodes() -> Generator[RayCluster]:
    made = RayCluster(initialize_head=True, head_node_args={**NODE, "_system_config": QUICK})
    yield made
    made.shutdown()


def nodes(flow: FlowStatus) -> Counter[str]:
    """How many replicators work on each node."""
    return Counter(each.node for each in flow.replicators if each.state == "healthy" and each.lanes)


def spread(daemon: Daemon, nodes_wanted: int) -> FlowStatus:
    """The flow, as soon as two replicators on this many nodes copy all of it."""
    seen: list[FlowStatus] = []

    def is_spread() -> bool:
        flow = daemon.flow()
        at_work = nodes(flow)
        seen[:] = [flow]
        even = flow.totals.lanes == {"copying": PARTITIONS} and sum(at_work.values()) == 2
        return even and len(at_work) == nodes_wanted

    daemon.until(is_spread, RAY_START_S)
    return seen[0]


def test_lanes_follow_a_node_that_comes_and_leave_one_that_is_cut_off(
    lab_pair: LabPair, tmp_path: Path, ray_nodes: RayCluster
) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), PARTITIONS)
    more = f'[replicators]\ncount = 2\n[ray]\naddress = "{ray_nodes.address}"'
    path = conf(tmp_path, source, target, topic, flow=unique("nodes"), engine="ray", more=more, lease_ttl="10s")
    path.write_text(f'instance = "{unique("nodes")}"\n{path.read_text()}')
    with Load(source, topic, PARTITIONS).running() as load, Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        (head,) = nodes(spread(daemon, 1))

        joined = ray_nodes.add_node(**NODE)
        assert nodes(spread(daemon, 2)) == {head: 1, joined.node_id: 1}
        load.wait_for(2_000)

        # Its manager is killed, and Ray counts the node as lost; but its processes still run, and copy.
        (victim,) = (each for each in spread(daemon, 2).replicators if each.node == joined.node_id)
        zombie = psutil.Process(victim.pid)
        manager = next(each for each in zombie.parents() if each.name() == "raylet")
        assert zombie.ppid() == manager.pid, "whose end the replicator looks for"
        os.kill(manager.pid, signal.SIGKILL)
        load.wait_for(500)
        assert is_alive(zombie), "Ray's workers end with their manager by now; what is done about that can go"
        assert set(nodes(spread(daemon, 1))) == {head}
        until_ended([zombie])
        load.wait_for(2_000)
        assert daemon.stop() == 0
    finish(path, source, topic)
    assert_same(source, target, [topic], load.written)
    written = "".join(path.read_text() for path in (tmp_path / "logs").glob("*.log"))
    assert "replicator_cut_off" in written
    assert "replicator_orphaned" in written
