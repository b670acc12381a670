"""The ledger store on real brokers: the contract, and what brokers do that memory does not."""

import asyncio
import re
import time
import uuid
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from mirrord.cli.main import main
from mirrord.config.ledger import LedgerConfig
from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.config.security import Secret, Security
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin
from mirrord.kafka.client.connection import Connection
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.kafka.protocol.api_versions import PRODUCE, Api
from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import free_ports
from mirrord.lab.server_properties import ADMIN
from mirrord.ledger.errors import LedgerMissing, LedgerUnavailable, LedgerWentBack, SignedLedger
from mirrord.ledger.facts.core import LaneTaken, LeaseReleased, LeaseTaken, SourceRun, Verdict, VerdictGiven
from mirrord.ledger.state_topic_records import LEASE_KEY
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ledger_topic, state_topic
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.internal_topic_sync import OwnSettings
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.ledger import FLOW, HOLDER, lane_id, opened, plain
from tests.fixtures.ledger_contract import LANE, LedgerContract, MakeStore, OpenStore, progress, start_flow
from tests.fixtures.wire import security_of

SECONDS = 60

pytestmark = pytest.mark.usefixtures("own_ledgers")


def config(cluster: Cluster, user: str = ADMIN) -> ClusterConfig:
    return ClusterConfig(tuple(cluster.bootstrap.split(",")), security_of(cluster, user))


class Flow:
    """The ledger of one flow, with a unique name."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"flow-{uuid.uuid4().hex[:8]}"
        self.deadline_seconds = float(SECONDS)
        """For appends and saves."""
        self.stores: list[LedgerStore] = []

    def make(self, user: str = ADMIN) -> LedgerStore:
        log = KafkaLog(self.name, config(self.cluster, user), deadline_seconds=SECONDS)
        return LedgerStore(log, SystemClock(), deadline_seconds=self.deadline_seconds)

    async def open(self) -> LedgerStore:
        self.stores.append(self.make())
        await self.stores[-1].open()
        return self.stores[-1]

    async def close(self) -> None:
        await asyncio.gather(*(store.close() for store in self.stores))

    def settings(self, topic: str) -> dict[str, str]:
        admin = AdminClient(client_settings(self.cluster))
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        return {key: entry.value for key, entry in described.result(SECONDS).items()}

    def delete(self, topic: str) -> None:
        admin = AdminClient(client_settings(self.cluster))
        admin.delete_topics([topic])[topic].result(SECONDS)


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        await asyncio.sleep(0.05)


@pytest.fixture
async def flow(lab_pair: LabPair) -> AsyncGenerator[Flow]:
    flow = Flow(lab_pair.target)
    yield flow
    await flow.close()


@pytest.fixture
def make_store(flow: Flow) -> MakeStore:
    return flow.make


@pytest.fixture
def open_store(flow: Flow) -> OpenStore:
    return flow.open


class TestOnBrokers(LedgerContract):
    pass


async def test_a_ledger_is_signed_and_a_foreign_transaction_is_skipped(
    lab_pair: LabPair, flow: Flow, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    former = await flow.open()
    await start_flow(former)
    await former.save(progress(0, 5))
    await former.append(1, [LeaseReleased(1)])
    await former.close()
    producer = Producer({**client_settings(flow.cluster), "transactional.id": flow.name})
    await asyncio.to_thread(producer.init_transactions, SECONDS)
    producer.begin_transaction()
    producer.produce(ledger_topic(flow.name), b"hello")
    await asyncio.to_thread(producer.commit_transaction, SECONDS)
    foreign = await flow.open()
    # The record, and the marker of its transaction, which the broker may write after it has answered.
    await until(lambda: foreign.skipped.count == 2, "both are skipped")
    await foreign.close()
    key = tmp_path / "key"
    key.write_text("k" * 32)
    conf = tmp_path / "conf.toml"
    conf.write_text(
        f'[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "{flow.cluster.bootstrap}"\n'
        f'[[flows]]\nname = "{flow.name}"\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n[ledger]\nkey = "file:key"\n'
    )
    assert await asyncio.to_thread(main, ["ledger", "show", str(conf)]) == 0
    assert "no signature" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["ledger", "sign", "--reason", "set up", str(conf)]) == 0
    assert await asyncio.to_thread(main, ["ledger", "show", str(conf)]) == 0
    assert "the ledger is signed from here on, by" in capsys.readouterr().out
    ledger = LedgerConfig(Secret(f"file:{key}"))
    signed = LedgerStore(
        KafkaLog(flow.name, msgspec.structs.replace(config(flow.cluster), ledger=ledger), deadline_seconds=SECONDS),
        SystemClock(),
    )
    await signed.open(create=False)
    try:
        assert plain(signed.state)["lanes"] == plain(former.state)["lanes"]
        assert signed.state.progress == {LANE: progress(0, 5)}
        assert await signed.append(2, [LeaseTaken(2, HOLDER, 6_000)]) == (False,)
    finally:
        await signed.close()
    with pytest.raises(SignedLedger, match="is signed, but `key`"):
        await flow.make().open(create=False)


async def test_the_topics_are_created_once_and_keep_what_they_must(flow: Flow) -> None:
    await asyncio.gather(*(flow.open() for _ in range(3)))
    ledger, state = flow.settings(ledger_topic(flow.name)), flow.settings(state_topic(flow.name))
    assert (ledger["cleanup.policy"], ledger["retention.ms"], ledger["min.insync.replicas"]) == ("delete", "-1", "1")
    assert (state["cleanup.policy"], state["min.insync.replicas"]) == ("compact", "1")


async def test_read_only_creates_nothing(flow: Flow) -> None:
    with pytest.raises(LedgerMissing, match=f"there is no flow {flow.name} on this cluster"):
        await flow.make().open(read_only=True)
    topics = AdminClient(client_settings(flow.cluster)).list_topics(timeout=SECONDS).topics
    assert not [topic for topic in topics if flow.name in topic]


async def test_topics_that_would_forget_are_refused(flow: Flow) -> None:
    admin = AdminClient(client_settings(flow.cluster))
    wrong = [
        NewTopic(ledger_topic(flow.name), 1, 1, config={"retention.ms": "1000"}),
        NewTopic(state_topic(flow.name), 1, 1),
    ]
    for created in admin.create_topics(wrong).values():
        created.result(SECONDS)
    with pytest.raises(EnvironmentFault, match=r"ledger has retention.ms=1000, which loses facts; it must be -1"):
        await flow.open()


async def test_a_ledger_of_several_partitions_is_refused(flow: Flow) -> None:
    admin = AdminClient(client_settings(flow.cluster))
    for created in admin.create_topics([NewTopic(ledger_topic(flow.name), 2, 1)]).values():
        created.result(SECONDS)
    with pytest.raises(EnvironmentFault, match="has 2 partitions; a ledger has one"):
        await flow.open()


async def test_a_deleted_ledger_is_found_out(flow: Flow) -> None:
    flow.deadline_seconds = 3
    store = await flow.open()
    await start_flow(store)
    await store.read_to_end()
    await store.save(store.recorded_end)
    flow.delete(ledger_topic(flow.name))
    with pytest.raises((LedgerWentBack, LedgerUnavailable)):
        await store.append(1, [opened(1)])
    await store.close()
    with pytest.raises(LedgerWentBack, match=r"`mirrord rebuild`"):
        await flow.open()


async def test_the_state_survives_compaction_of_a_large_flow(flow: Flow) -> None:
    store = await flow.open()
    await start_flow(store, lanes=20)
    runs = tuple(Run(number * 2, number * 3) for number in range(20_000))
    await asyncio.gather(*(store.append(1, [SourceRun(lane_id(number), 1, runs)]) for number in range(20)))
    for ordinal in range(5):
        await asyncio.gather(*(store.save(progress(number, ordinal)) for number in range(20)))
        await store.trim(kept_entries=0)
        await store.append(1, [SourceRun(LANE, 1, (Run(60_000 + ordinal, 200_000 + 2 * ordinal),))])
    later = await flow.open()
    assert plain(later.state) == plain(store.state)


async def repeat(append: Callable[[], Coroutine[Any, Any, tuple[bool, ...]]]) -> tuple[bool, ...]:
    """Append until there is an answer."""
    async with asyncio.timeout(SECONDS):
        while True:
            with suppress(LedgerUnavailable):
                return await append()


async def test_a_broker_that_is_killed_and_comes_back_costs_nothing(flow: Flow) -> None:
    flow.deadline_seconds = 2
    store, other, leaving = [await flow.open() for _ in range(3)]
    await start_flow(store)
    flow.cluster.kill()
    try:
        await leaving.close()
        facts = [LaneTaken(LANE, 2, "r2"), VerdictGiven(LANE, 2, (Verdict(0, 7, "control"),))]
        lost = await asyncio.gather(store.append(1, facts), store.save(progress(0, 1)), return_exceptions=True)
        assert [type(error) for error in lost] == [LedgerUnavailable] * 2
    finally:
        await asyncio.to_thread(flow.cluster.restart)
    assert await repeat(lambda: store.append(1, facts)) == (True, True)
    await other.read_to_end()
    assert other.state.lanes[LANE].verdicts.counts == {"control": 7}
    # The save that was given up may still be under way: it can arrive later, and both stores then read it.
    await until(lambda: plain(other.state) == plain(store.state), "both hold the same")


async def test_an_answer_that_is_lost_doubles_nothing(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await flow.open()
    await start_flow(store)
    losses = [ConnectionLost("the answer is lost")]

    async def losing(connection: Connection, api: Api, *rest: Any) -> Any:
        answer = await ask(connection, api, *rest)
        if api == PRODUCE and losses:
            raise losses.pop()
        return answer

    monkeypatch.setattr("mirrord.ledger.store.partition_io.ask", losing)
    before = store.state.next_offset
    assert await store.append(1, [LaneTaken(LANE, 2, "r2")]) == (True,)
    # An entry can be read back before its producer is answered, so the loss may be yet to come.
    await until(lambda: losses == [], "the answer is lost")
    assert await store.append(1, [LaneTaken(LANE, 3, "r3")]) == (True,)
    await store.read_to_end()
    assert store.recorded_end.end == before + 2


async def test_a_leader_that_forgot_the_producer_gets_another_one(flow: Flow) -> None:
    store = await flow.open()
    await start_flow(store)
    log = store._log
    assert isinstance(log, KafkaLog)
    former = log._entries._producer
    log._entries._sequence += 100
    assert await store.append(1, [LaneTaken(LANE, 2, "r2")]) == (True,)
    assert log._entries._producer != former


async def test_more_than_one_batch_arrives_in_order(flow: Flow) -> None:
    store = await flow.open()
    await start_flow(store, lanes=30)
    runs = tuple(Run(number * 2, number * 3) for number in range(20_000))
    appends = [store.append(1, [SourceRun(lane_id(number), 1, runs)]) for number in range(30)]
    assert await asyncio.gather(*appends) == [(True,)] * 30
    later = await flow.open()
    assert plain(later.state) == plain(store.state)


async def test_a_ledger_behind_tls_and_acls(lab_sasl: Cluster) -> None:
    flow = Flow(lab_sasl)
    try:
        store = await flow.open()
        await start_flow(store)
        await store.trim(kept_entries=0)
        assert plain((await flow.open()).state) == plain(store.state)
        with pytest.raises(EnvironmentFault, match="may not be used: TOPIC_AUTHORIZATION_FAILED"):
            await flow.make("stranger").open(read_only=True)
    finally:
        await flow.close()


def test_the_verb_reads_a_real_ledger(lab_pair: LabPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flow = Flow(lab_pair.target)

    async def fill() -> None:
        store = await flow.open()
        await start_flow(store)
        await store.trim(kept_entries=1)
        await store.append(1, [LaneTaken(LANE, 2, "r2")])
        await flow.close()

    asyncio.run(fill())
    capsys.readouterr()
    conf = tmp_path / "conf.toml"
    conf.write_text(
        f'[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "{flow.cluster.bootstrap}"\n'
        f'[[flows]]\nname = "{flow.name}"\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
    )
    assert main(["ledger", "show", str(conf)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[4] for line in lines] == ["lane_opened", "lane_taken", "lane_taken"]
    assert lines[2].endswith("orders-0: grant 2 taken by r2")
    skip_damaged_state(flow, conf, capsys)
    conf.write_text(conf.read_text().replace(flow.name, "nobody"))
    assert main(["ledger", "show", str(conf)]) == 1
    assert "there is no flow nobody on this cluster" in capsys.readouterr().err


def skip_damaged_state(flow: Flow, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A record of the state topic that cannot be read stops readers, until the command that they name."""
    producer = Producer(client_settings(flow.cluster))
    producer.produce(state_topic(flow.name), key=LEASE_KEY, value=b"\x09\x94")
    assert producer.flush(SECONDS) == 0
    assert main(["ledger", "show", str(conf)]) == 1
    error = capsys.readouterr().err
    command = re.search(r"mirrord.*, offset \d+: .*; `mirrord (.*)` skips exactly this record", error)
    assert command is not None, error
    assert main([*command[1].split(), "--reason", "a tool wrote it", str(conf)]) == 0
    assert "is no longer in force" in capsys.readouterr().out
    assert main(["ledger", "show", str(conf)]) == 0
    assert capsys.readouterr().out.endswith(": a tool wrote it\n")


async def test_of_two_keepers_one_wins_and_the_other_takes_over(flow: Flow) -> None:
    clock = SystemClock()
    stores = [await flow.open() for _ in range(2)]
    await open_flow(stores[0], FLOW)
    keepers = [LeaseKeeper(store, HOLDER, 1500, clock) for store in stores]
    races = [asyncio.create_task(keeper.acquire()) for keeper in keepers]
    done, _ = await asyncio.wait(races, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
    assert [race.result() for race in done] == [1]
    winner, standby = (0, 1) if races[0].done() else (1, 0)
    renewed_from = keepers[winner].valid_until
    await until(lambda: keepers[winner].valid_until > renewed_from + 2, "renewed for longer than it lasts")
    assert not races[standby].done()
    await keepers[winner].close()
    assert await asyncio.wait_for(races[standby], SECONDS) == 2
    await asyncio.wait_for(stores[winner].until(lambda: stores[winner].state.lease_epoch == 2), SECONDS)
    await keepers[standby].release()
    third = LeaseKeeper(stores[winner], HOLDER, 60_000, clock)
    assert await asyncio.wait_for(third.acquire(), SECONDS) == 3
    await third.close()


async def settings_are_put_right(flow: Flow) -> None:
    """A daemon's upkeep reverts what another client changed."""
    topic = ledger_topic(flow.name)
    changed = {"min.insync.replicas": "1", "retention.ms": "86400000"}
    resource = ConfigResource(ResourceType.TOPIC, topic, set_config=changed)
    admin = AdminClient(client_settings(flow.cluster))
    (altered,) = admin.alter_configs([resource]).values()
    altered.result(SECONDS)
    upkeep, topics = KafkaUpkeepAdmin(config(flow.cluster), SECONDS), KafkaTopicAdmin(config(flow.cluster), SECONDS)
    own = OwnSettings(FlowConfig(name=flow.name, source="eu", target="us", topics=("orders",)), upkeep)
    right = {"min.insync.replicas": "2", "retention.ms": "-1"}
    # Each broker learns of a change at a different time.
    await until(lambda: flow.settings(topic).items() >= changed.items(), "the settings are changed")
    deadline = time.monotonic() + SECONDS
    try:
        while not flow.settings(topic).items() >= right.items():
            assert time.monotonic() < deadline, "the settings stay wrong"
            await own.round(await topics.describe())
    finally:
        await upkeep.close()
        await topics.close()


async def test_a_cluster_of_three_keeps_the_ledger_through_a_leader_change(lab_three: Cluster) -> None:
    flow = Flow(lab_three)
    try:
        store = await flow.open()
        await start_flow(store)
        assert flow.settings(ledger_topic(flow.name))["min.insync.replicas"] == "2"
        topics = AdminClient(client_settings(flow.cluster)).list_topics(timeout=SECONDS).topics
        partition = topics[ledger_topic(flow.name)].partitions[0]
        assert len(partition.replicas) == 3
        await settings_are_put_right(flow)
        flow.cluster.kill(partition.leader)
        assert await repeat(lambda: store.append(1, [LaneTaken(LANE, 2, "r2")])) == (True,)
        later = await flow.open()
        assert plain(later.state) == plain(store.state)
    finally:
        await flow.close()


async def test_nobody_listens(free_port: int) -> None:
    log = KafkaLog("nowhere", ClusterConfig((f"127.0.0.1:{free_port}",), Security()), deadline_seconds=1)
    with pytest.raises(LedgerUnavailable, match=r"cannot be reached"):
        await LedgerStore(log, SystemClock()).open()


@pytest.fixture
def free_port() -> int:
    return free_ports(1)[0]
