"""What prevents a daemon from starting, found on made-up clusters before anything is created."""

from collections import defaultdict
from pathlib import Path

import msgspec
import pytest

from mirrord.config.http import HttpConfig
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.kafka.client.connection import AuthenticationFailed
from mirrord.ledger.facts.core import FlowOpened, Holder, LaneOpened, LeaseTaken
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.operations.rules.required_acls import CODES
from mirrord.operations.start_refusals import check_start
from mirrord.runtime.clock import SystemClock
from tests.fixtures.supervision import EVERYTHING, FakeAdmin, FakeCluster

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",))


class World:
    """Two clusters and the content of the ledger."""

    def __init__(self) -> None:
        self.clusters = {alias: FakeCluster(ClusterId(f"{alias}-id")) for alias in ("eu", "us", "asia")}
        self.clusters["eu"].add("orders", 2)
        self.ledgers: defaultdict[str, MemoryLedger] = defaultdict(MemoryLedger)

    async def check(self, *flows: FlowConfig) -> None:
        config = Config(clusters=dict.fromkeys(self.clusters, ClusterConfig((), Security())), flows=flows or (FLOW,))
        before = {alias: dict(cluster.topics) for alias, cluster in self.clusters.items()}
        try:
            await check_start(config, lambda alias: FakeAdmin(self.clusters[alias]), lambda flow: self.store(flow.name))
        finally:
            assert {alias: cluster.topics for alias, cluster in self.clusters.items()} == before, "nothing is created"

    def store(self, flow: str = "eu-us") -> LedgerStore:
        return LedgerStore(MemoryLog(self.ledgers[flow]), SystemClock())

    async def has_copied(self, flow: str, source: str) -> None:
        """Record that the flow has copied some topic."""
        self.clusters["us"].add(f"mirrord.{flow}.ledger", 1)
        store = self.store(flow)
        await store.open()
        await open_flow(store, FlowOpened(flow, ClusterId(f"{source}-id"), ClusterId("us-id")))
        lane = LaneKey(TopicId("id-other"), 0, TopicId("id-copy")).id
        opened = LaneOpened(lane, "other", "other", 0, 1, 0, "all")
        assert await store.append(1, [LeaseTaken(1, Holder("h", 1, "mirrord", ""), 6000), opened]) == (True, True)
        await store.close()


async def test_nothing_is_wrong() -> None:
    await World().check()


async def test_an_empty_token_keeps_a_daemon_from_starting(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("\n")
    http = HttpConfig(token=Secret(f"file:{tmp_path}/token"))
    config = Config(clusters={}, flows=(), http=http)
    with pytest.raises(EnvironmentFault, match=r"http\.token: the secret file:.*/token is empty"):
        await check_start(config, lambda alias: FakeAdmin(FakeCluster(ClusterId(alias))), lambda _: World().store())


async def test_a_cluster_that_cannot_be_reached_is_no_reason() -> None:
    world = World()
    world.clusters["us"].fail()
    await world.check()


async def test_a_cluster_that_refuses_us() -> None:
    world = World()
    world.clusters["us"].error = AuthenticationFailed("us1:9092 refuses 'mirrord' by PLAIN: wrong")
    with pytest.raises(EnvironmentFault, match=r"^cluster us: us1:9092 refuses 'mirrord'"):
        await world.check()


async def test_a_topic_that_may_not_be_seen() -> None:
    world = World()
    world.clusters["eu"].topics.clear()
    world.clusters["eu"].hidden["orders"] = "TOPIC_AUTHORIZATION_FAILED"
    with pytest.raises(
        EnvironmentFault, match=r"^flow eu-us: cluster eu: READ \(to copy it\) on the topic orders is m"
    ):
        await world.check()


async def test_a_topic_that_does_not_exist_yet_is_no_reason() -> None:
    world = World()
    world.clusters["eu"].topics.clear()
    world.clusters["eu"].hidden["orders"] = "UNKNOWN_TOPIC_OR_PARTITION"
    await world.check()


async def test_each_missing_right_has_a_line() -> None:
    world = World()
    world.clusters["eu"].allowed["orders"] = EVERYTHING & ~(1 << CODES["READ"])
    world.clusters["us"].add("eu.orders", 1)
    world.clusters["us"].allowed["eu.orders"] = EVERYTHING & ~(1 << CODES["WRITE"]) & ~(1 << CODES["ALTER"])
    world.clusters["us"].refuses["mirrord.eu-us.ledger"] = "CLUSTER_AUTHORIZATION_FAILED"
    with pytest.raises(EnvironmentFault) as raised:
        await world.check()
    assert str(raised.value).splitlines() == [
        "flow eu-us: cluster eu: READ (to copy it) on the topic orders is missing",
        "flow eu-us: cluster us: CREATE (to create the ledger) on the topic mirrord.eu-us.ledger is missing",
        "flow eu-us: cluster us: WRITE (to copy into it) and ALTER (to grow it when the source topic grows) on the "
        "topic eu.orders are missing",
    ]


async def test_what_a_flow_can_do_without_is_no_reason() -> None:
    """`check` reports it as a warning or a note."""
    world = World()
    world.clusters["us"].add("eu.orders", 2)
    lacks = {"ALTER", "ALTER_CONFIGS", "DESCRIBE_CONFIGS", "DELETE", "CREATE"}
    world.clusters["us"].allowed["eu.orders"] = EVERYTHING & ~sum(
        1 << CODES[right] for right in CODES if right in lacks
    )
    world.clusters["us"].refuses["mirrord.eu-us.probe"] = "TOPIC_AUTHORIZATION_FAILED"
    world.clusters["us"].hidden["mm2-offsets.eu.internal"] = "TOPIC_AUTHORIZATION_FAILED"
    await world.check()


async def test_two_flows_that_meet_in_one_topic() -> None:
    world = World()
    world.clusters["asia"].add("orders", 1)
    one = msgspec.structs.replace(FLOW, naming="identity")
    other = msgspec.structs.replace(one, name="asia-us", source="asia")
    with pytest.raises(ConfigError, match="flow asia-us: topic name collision: orders would be copied into orders"):
        await world.check(one, other)


async def test_two_flows_that_meet_after_both_have_copied_are_reported_later() -> None:
    """A topic of yesterday must not keep everything else from being copied after a restart."""
    world = World()
    world.clusters["asia"].add("orders", 1)
    one = msgspec.structs.replace(FLOW, naming="identity")
    other = msgspec.structs.replace(one, name="asia-us", source="asia")
    await world.has_copied("eu-us", "eu")
    with pytest.raises(ConfigError, match="flow asia-us: topic name collision"):
        await world.check(one, other)
    await world.has_copied("asia-us", "asia")
    await world.check(one, other)


async def test_a_ledger_of_other_clusters() -> None:
    world = World()
    world.clusters["us"].add("mirrord.eu-us.ledger", 1)
    store = world.store()
    await store.open()
    await open_flow(store, FlowOpened("eu-us", ClusterId("another"), ClusterId("us-id")))
    await store.close()
    with pytest.raises(ConfigError, match="the flow name eu-us is taken"):
        await world.check()


async def test_a_ledger_of_these_clusters() -> None:
    world = World()
    world.clusters["us"].add("mirrord.eu-us.ledger", 1)
    store = world.store()
    await store.open()
    await open_flow(store, FlowOpened("eu-us", ClusterId("eu-id"), ClusterId("us-id")))
    await store.close()
    await world.check()
