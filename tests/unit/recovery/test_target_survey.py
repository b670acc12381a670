"""What the target does not reveal is reported, and does not always make a flow unready."""

import pytest

from mirrord.config.flow_features import GroupsConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Security
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import RequestRefused
from mirrord.kafka.client.connection import Unreachable
from mirrord.ledger.last_seen.quotas import quota_records
from mirrord.ledger.state import FlowState
from mirrord.model.names import ClusterId
from mirrord.model.quotas import ClientQuota
from mirrord.model.readiness import FlowReadiness
from mirrord.recovery.flow_readiness import Live, ReadinessOptions, flow_readiness
from mirrord.recovery.target_survey import TargetClients
from tests.fixtures.supervision import FakeAdmin, FakeCluster, FakeUpkeep
from tests.unit.ledger.last_seen.test_last_seen_configs import save

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",), groups=GroupsConfig(mode="off"))
QUOTA = ClientQuota((("user", "ada"),), "producer_byte_rate", 1.0)


async def readiness(fault: Exception | None = None) -> FlowReadiness:
    """The readiness of a flow without lanes, if the target answers the request for quotas with this error."""

    class Target(FakeUpkeep):
        async def quotas(self) -> frozenset[ClientQuota]:
            if fault is not None:
                raise fault
            return await super().quotas()

    state, target = FlowState(), FakeCluster(ClusterId("us-id"))
    save(state, quota_records(state, {QUOTA}, "", 1, 1_000))
    clients = TargetClients(ClusterConfig(("127.0.0.1:1",), Security()), FakeAdmin(target), Target(target))
    return await flow_readiness(FLOW, state, Live(), clients, 2_000, ReadinessOptions())


async def test_quotas_of_both_clusters_are_compared() -> None:
    found = await readiness()
    assert found.quotas.differences == (f"missing on the target: {QUOTA}",)
    assert found.quotas.seen_ms == 1_000


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        (RequestRefused("not authorized"), "the target: not authorized"),
        (NotOffered("too old"), "the target: too old"),
        (Unreachable("gone"), "the target does not answer: gone"),
    ],
)
async def test_quotas_that_cannot_be_read_do_not_make_a_flow_unready(fault: Exception, note: str) -> None:
    found = await readiness(fault)
    assert note not in found.blockers
    assert f"client quotas were not compared: {note}" in found.remarks
