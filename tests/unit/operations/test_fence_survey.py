"""What `mirrord check` and `mirrord failover --dry-run` say about late batches."""

import pytest

from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Security
from mirrord.model.findings import Finding
from mirrord.operations import fence_survey
from mirrord.operations.fence_survey import fence_findings, fence_remarks
from mirrord.supervision.failover.producer_fence import FenceObstacle

FLOWS = tuple(FlowConfig(name=f"eu-{each}", source="eu", target=each, topics=("orders",)) for each in ("us", "ap"))
CLUSTERS = {each: ClusterConfig((f"{each}:9092",), Security()) for each in ("eu", "us", "ap")}
CONFIG = Config(clusters=CLUSTERS, flows=FLOWS)
WHEN = "after a failover, a process that was suspended may still deliver late batches"


@pytest.fixture
def obstacles(monkeypatch: pytest.MonkeyPatch) -> dict[str, FenceObstacle]:
    found: dict[str, FenceObstacle] = {}

    async def ask(alias: str, cluster: ClusterConfig, timeout_s: float) -> FenceObstacle | None:
        assert (cluster, timeout_s) == (CONFIG.clusters[alias], CONFIG.runtime.request_timeout_ms / 1000)
        return found.get(alias)

    monkeypatch.setattr(fence_survey, "fence_obstacle", ask)
    return found


async def test_nothing_is_said_where_late_batches_can_be_fenced_off(obstacles: dict[str, FenceObstacle]) -> None:
    assert not obstacles
    assert await fence_findings(CONFIG, FLOWS[0]) == []
    assert await fence_remarks(CONFIG) == []


async def test_a_missing_permission_and_a_missing_request(obstacles: dict[str, FenceObstacle]) -> None:
    obstacles["us"] = FenceObstacle(True, "us: it needs something")
    assert await fence_remarks(CONFIG) == [f"eu-us: {WHEN}: us: it needs something"]
    do = "allow ALTER on the cluster (before Kafka 3.8: CLUSTER_ACTION), or accept it"
    what = f"{WHEN}: us: it needs something"
    assert await fence_findings(CONFIG, FLOWS[0]) == [
        Finding(severity="note", flow="eu-us", where="us: cluster kafka-cluster", what=what, do=do)
    ]
    obstacles["ap"] = FenceObstacle(False, "ap: the broker does not offer WriteTxnMarkers")
    assert await fence_findings(CONFIG, FLOWS[1]) == [
        Finding(severity="note", flow="eu-ap", where="ap: its brokers", what=f"{WHEN}: {obstacles['ap'].line}")
    ]
    assert len(await fence_remarks(CONFIG)) == 2
