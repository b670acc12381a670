"""What disturbs a drill on real brokers: other clients, missing permissions, frozen brokers, other flows."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, AdminClient

from mirrord.config.loader import load
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.lab.cluster import Cluster
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.recovery.drill import canary as module
from mirrord.recovery.drill.canary import Canary, CanaryFailed
from tests.fixtures.daemon import Daemon, all_ends, conf, fill, mirrord, unique
from tests.fixtures.drill import DrilledFlow, drill, findings, groups_for
from tests.fixtures.groups import commit, committed, forget
from tests.fixtures.lab import Allow, LabPair, client_settings
from tests.fixtures.mirror import create_topic


def test_the_contents_of_transformed_records_are_not_compared(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(
        lab_pair,
        tmp_path,
        "transformed",
        flow_more='\nrecords = { transform = "tests.fixtures.sample_policies:Upper" }',
    )
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        code, receipt = drill(flow.path, "--no-canary")
        assert (code, receipt["compared"]) == (0, 2)
        assert "the contents of transformed records were not compared" in receipt["note"]


def test_a_position_that_another_client_has_committed_on_the_target_is_found(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "ahead")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        commit(flow.target, flow.group, flow.copy, {0: 80})
        line = f"group {flow.group} in {flow.topic}-0 at 40: it would skip the record at 40 on the target"
        daemon.until(lambda: any(line in each for each in findings(flow.path, "--no-canary")))


def test_an_open_transaction_of_another_client_hides_records_and_is_no_finding(
    lab_pair: LabPair, tmp_path: Path
) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "transaction")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        with transaction(flow.target, flow.copy):
            fill(flow.source, flow.topic, 2, 20, first=200)
            daemon.until_copied(all_ends(flow.source, flow.topic))
            commit(flow.source, flow.group, flow.topic, {0: 100, 1: 100})
            daemon.until(lambda: drill(flow.path, "--no-canary") and waiting(flow.path) == 1)
        assert findings(flow.path, "--no-canary") == []


def waiting(path: Path) -> int:
    """The number of positions that wait. There is no finding."""
    code, receipt = drill(path, "--no-canary")
    assert code == 0, receipt
    return receipt["waiting"]


@contextmanager
def transaction(cluster: Cluster, topic: str) -> Generator[None]:
    """Keep a transaction open that has a record in the first partition."""
    producer = Producer({**client_settings(cluster), "transactional.id": unique("other")})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"foreign", partition=0)
    producer.flush(30)
    yield
    producer.abort_transaction(30)


def test_groups_that_the_source_does_not_list_are_found(
    lab_pair: LabPair, lab_sasl: Cluster, allow: Allow, tmp_path: Path
) -> None:
    """mirrord follows them, because it may read the topic with the offsets."""
    topic, group = create_topic(lab_sasl, unique("unlisted"), 2), unique("readers")
    fill(lab_sasl, topic, 2, 200)
    commit(lab_sasl, group, topic, {0: 40, 1: 50})
    for operation in (AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        allow("mirrord", operation, topic)
    allow("mirrord", AclOperation.READ, "__consumer_offsets")
    path = conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=unique("unlisted"), flow_more=groups_for(group))
    security = ", ".join(f'{key} = "{value}"' for key, value in lab_sasl.security("mirrord", "SCRAM-SHA-512").items())
    address = f'bootstrap = "{lab_sasl.bootstrap}"\nsecurity = {{ {security} }}'
    path.write_text(path.read_text().replace(f'bootstrap = "{lab_pair.source.bootstrap}"', address, 1))
    with Daemon(path) as daemon:
        daemon.until(lambda: committed(lab_pair.target, group, f"eu.{topic}", range(2)) == {0: 40, 1: 50})
        forget(lab_pair.target, group)
        line = f"the source does not list group {group}: DESCRIBE may be missing on it"
        daemon.until(lambda: line in findings(path, "--no-canary"))


def test_a_flow_without_anything_to_rehearse_does_not_keep_others_from_it(lab_pair: LabPair, tmp_path: Path) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "two")
    with Daemon(flow.path) as daemon:
        flow.until_in_step(daemon)
        text = flow.path.read_text()
        table = text[text.index("[[flows]]") : text.index("[runtime]")]
        second = table.replace(flow.name, f"{flow.name}-b").replace(flow.topic, f"{flow.topic}-b")
        both = flow.path.with_name("both.toml")
        both.write_text(text.replace("[runtime]", f"{second}[runtime]"))
        ended = mirrord("drill", both, "--no-canary")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert f"flow {flow.name}-b has never run, so there is nothing to rehearse" in ended.stderr
        assert f"{flow.name}: no findings" in ended.stdout


def test_the_canary_topic_is_not_copied_by_the_flow_in_the_opposite_direction(
    lab_pair: LabPair, tmp_path: Path
) -> None:
    flow = DrilledFlow(lab_pair, tmp_path, "reverse")
    text = flow.path.read_text()
    table = text[text.index("[[flows]]") : text.index("[runtime]")]
    back = table.replace(f'name = "{flow.name}"', f'name = "{flow.name}-back"')
    back = back.replace('from = "eu"', 'from = "us"').replace('to = "us"', 'to = "eu"')
    back = back.replace(f"topics = ['{flow.topic}']", f"topics = ['.*{flow.name}.*', '{flow.topic}-x']")
    flow.path.write_text(text.replace("[runtime]", f"{back}[runtime]"))
    with Daemon(flow.path) as daemon:
        daemon.until(lambda: committed(flow.target, flow.group, flow.copy, range(2)) == {0: 40, 1: 50})
        for _ in range(3):
            assert mirrord("drill", flow.path, "--flow", flow.name).returncode == 0
    topics = AdminClient(client_settings(flow.source)).list_topics(timeout=30).topics
    assert [name for name in topics if "drill" in name and flow.name in name] == []


def test_a_canary_ends_even_if_the_target_freezes(
    lab_pair: LabPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "STEP_S", 3.0)
    monkeypatch.setattr(module, "STOP_S", 1.0)
    path = conf(tmp_path, lab_pair.source, lab_pair.target, "x", flow=unique("frozen"))

    class Freezing(module.AIOKafkaProducer):
        async def send_and_wait(self, *given: object, **named: object) -> object:
            answer = await super().send_and_wait(*given, **named)
            lab_pair.target.pause()
            return answer

    monkeypatch.setattr(module, "AIOKafkaProducer", Freezing)

    async def run() -> None:
        config = load(path)
        access = ClusterAccess(config, 10.0)
        topics, upkeep = access.admin("us"), access.upkeep("us")
        cluster = (await topics.describe([])).cluster_id
        async with view_of("us", config.clusters["us"], cluster) as view:
            target = config.clusters["us"]
            await Canary(unique("canary"), target, topics, upkeep, GroupAdmin(view)).run(1)

    try:
        with pytest.raises(CanaryFailed, match="canary topic"):
            asyncio.run(asyncio.wait_for(run(), 60))
    finally:
        lab_pair.target.resume()
