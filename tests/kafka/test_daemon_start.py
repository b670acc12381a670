"""What prevents a daemon from starting: one clear line, the right exit code, and nothing created."""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import Daemon, all_ends, assert_same, conf, fill, mirrord, unique
from tests.fixtures.lab import Allow, LabPair, client_settings
from tests.fixtures.mirror import create_topic


def topics_of(cluster: Cluster) -> set[str]:
    return set(AdminClient(client_settings(cluster)).list_topics(timeout=30).topics)


def test_a_wrong_password(lab_pair: LabPair, lab_sasl: Cluster, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("no-such-password")
    security = lab_sasl.security("mirrord") | {"password": f"file:{wrong}"}
    topic = create_topic(lab_pair.source, unique("orders"), 1)
    before = topics_of(lab_sasl)
    answer = mirrord("start", conf(tmp_path, lab_pair.source, lab_sasl, topic, flow=unique("pw"), security=security))
    assert answer.returncode == 1
    (line,) = [line for line in answer.stderr.splitlines() if not line.startswith("{")]
    assert line.startswith("mirrord: cluster us: ")
    assert "refuses 'mirrord' by SCRAM-SHA-512" in line
    assert "no-such-password" not in answer.stderr + answer.stdout
    assert topics_of(lab_sasl) == before


def test_a_missing_right(lab_pair: LabPair, lab_sasl: Cluster, allow: Allow, tmp_path: Path) -> None:
    topic, flow = create_topic(lab_pair.source, unique("orders"), 1), unique("right")
    path = conf(tmp_path, lab_pair.source, lab_sasl, topic, flow=flow, security=lab_sasl.security("stranger"))
    before = topics_of(lab_sasl)
    answer = mirrord("start", path)
    assert answer.returncode == 1
    missing = "CREATE (to create it), READ (to read its records) and WRITE (to copy into it)"
    assert f"flow {flow}: cluster us: {missing} on the topic eu.{topic} are missing" in answer.stderr
    assert topics_of(lab_sasl) == before
    for operation in (AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DELETE):
        allow("stranger", operation, "eu.orders")
        allow("stranger", operation, f"mirrord.{flow}.")
    allow("stranger", AclOperation.WRITE, f"mirrord.{flow}.")
    allow("stranger", AclOperation.DESCRIBE_CONFIGS, f"mirrord.{flow}.")
    admin = AdminClient(client_settings(lab_sasl))
    for future in admin.create_topics([NewTopic(f"eu.{topic}", 1, 1)]).values():
        future.result(30)
    answer = mirrord("start", path)
    assert answer.returncode == 1
    assert f"flow {flow}: cluster us: WRITE (to copy into it) on the topic eu.{topic} is missing" in answer.stderr
    assert f"mirrord.{flow}.ledger" not in topics_of(lab_sasl)


def test_two_flows_that_meet_in_one_topic(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 1)
    path = conf(tmp_path, source, target, f"{topic[:-1]}.", flow=unique("first"))
    path.write_text(
        path.read_text()
        + f"""
[[flows]]
name = "{unique("second")}"
from = "eu"
to = "us"
topics = ['.{topic[1:]}']
"""
    )
    before = topics_of(target)
    answer = mirrord("start", path)
    assert answer.returncode == 2
    assert (
        f"topic name collision: {topic} would be copied into eu.{topic}, which is the copy of {topic}" in answer.stderr
    )
    assert topics_of(target) == before


def test_a_topic_stays_with_the_flow_that_has_copied_it(lab_pair: LabPair, tmp_path: Path) -> None:
    """Also after a restart with a file in which another flow, listed first there, selects the topic too."""
    source, target = lab_pair.source, lab_pair.target
    orders, other = (create_topic(source, unique(name), 1) for name in ("orders", "other"))
    first, second = unique("first"), unique("second")
    path = conf(tmp_path, source, target, other, flow=second)
    off = """heartbeats = { emit = "off", replicate = false }
mm2_records = { checkpoints = false, offset_syncs = "off" }"""
    text = (
        path.read_text()
        + f"\n[[flows]]\nname = '{first}'\nfrom = 'eu'\nto = 'us'\ntopics = ['{orders[:-1]}.']\n{off}\n"
    )
    path.write_text(text)
    fill(source, orders, 1, 100)
    fill(source, other, 1, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, orders, other))
        assert daemon.stop() == 0
    path.write_text(text.replace(f"topics = ['{other}']", f"topics = ['{other}', '.{orders[1:]}']"))
    fill(source, orders, 1, 100, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, orders, other))
        states = {flow.name: flow for flow in daemon.status().flows}
        assert {flow.state for flow in states.values()} == {"running"}
        assert [lane.topic for lane in states[first].lanes] == [orders]
        assert [lane.topic for lane in states[second].lanes] == [other]
        assert f"which is the copy of {orders} in the flow {first}" in states[second].note
        assert daemon.stop() == 0
    assert_same(source, target, [orders], 200)


def test_a_flow_name_that_belongs_to_other_clusters(lab_pair: LabPair, tmp_path: Path) -> None:
    topic, flow = create_topic(lab_pair.source, unique("orders"), 1), unique("name")
    with Daemon(conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=flow)) as daemon:
        daemon.until(lambda: daemon.flow().state == "running")
        assert daemon.stop() == 0
    answer = mirrord("start", conf(tmp_path, lab_pair.target, lab_pair.target, topic, flow=flow))
    assert answer.returncode == 2
    assert f"the flow name {flow} is taken" in answer.stderr


def test_a_cluster_that_cannot_be_reached_is_reported_once_and_tried_again(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic = create_topic(source, unique("orders"), 1)
    path = conf(tmp_path, source, target, topic, flow=unique("away"))
    source.kill()
    with Daemon(path) as daemon:
        daemon.until(lambda: daemon.flow().source.error)
        time.sleep(3)
        events = [event for event in daemon.events() if event["event"] == "cluster_unreachable"]
        assert [event["cluster"] for event in events] == ["eu"]
        source.restart()
        daemon.until(lambda: daemon.flow().state == "running" and daemon.flow().source.reachable)
        assert daemon.stop() == 0


def test_an_address_that_is_taken(lab_pair: LabPair, tmp_path: Path) -> None:
    topic = create_topic(lab_pair.source, unique("orders"), 1)
    path = conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=unique("http"))
    with Daemon(path) as daemon:
        taken = daemon.http().removeprefix("http://")
        second = conf(
            tmp_path,
            lab_pair.source,
            lab_pair.target,
            topic,
            flow=unique("http"),
            more=f'[http]\nlisten = "{taken}"',
        )
        answer = mirrord("start", second)
        assert answer.returncode == 1
        assert f"http.listen: cannot listen on {taken}" in answer.stderr


@pytest.mark.parametrize("content", ["", "[[flows]]\n"])
def test_a_configuration_that_is_wrong(tmp_path: Path, content: str) -> None:
    path = tmp_path / "conf.toml"
    path.write_text(content)
    answer = mirrord("start", path)
    assert answer.returncode == 2
    assert answer.stderr.startswith("mirrord: ")
