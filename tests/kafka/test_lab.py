"""The lab itself, on real brokers: the other tests of this tier rely on it."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AclOperation, AdminClient, NewTopic

from mirrord.config.security import Mechanism
from mirrord.lab import server_properties
from mirrord.lab.cluster import Cluster
from mirrord.lab.jars import kafka_jars
from mirrord.lab.ports import free_ports
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.java import find_java
from tests.fixtures import class_archive
from tests.fixtures.lab import Allow, LabPair, client_settings

SECONDS = 60


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.05)


def new_topic(cluster: Cluster, replicas: int = 1) -> str:
    name = f"lab-{uuid.uuid4().hex[:8]}"
    admin = AdminClient(client_settings(cluster))
    (created,) = admin.create_topics([NewTopic(name, 1, replicas)]).values()
    created.result(SECONDS)
    return name


def produce(cluster: Cluster, topic: str, values: list[bytes], **settings: str) -> None:
    failures: list[KafkaError] = []
    # A batch that is sent again keeps its place.
    producer = Producer({**client_settings(cluster), "enable.idempotence": True, **settings})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(SECONDS) == 0
    assert failures == []


def consume(cluster: Cluster, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**client_settings(cluster), "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + SECONDS
    while len(values) < count and time.monotonic() < deadline:
        values += [
            message.value() or b"" for message in consumer.consume(count - len(values), 1.0) if not message.error()
        ]
    consumer.close()
    return values


VALUES = [b"%d" % number for number in range(1000)]


def test_two_clusters_are_two_clusters(lab_pair: LabPair) -> None:
    topic = new_topic(lab_pair.source)
    produce(lab_pair.source, topic, VALUES)
    assert consume(lab_pair.source, topic, len(VALUES)) == VALUES
    assert topic not in AdminClient(client_settings(lab_pair.target)).list_topics(timeout=SECONDS).topics


@pytest.mark.parametrize("end", [Cluster.kill, Cluster.stop])
def test_a_broker_that_ends_comes_back_with_its_data(lab_pair: LabPair, end: Callable[[Cluster], None]) -> None:
    cluster = lab_pair.target
    topic = new_topic(cluster)
    produce(cluster, topic, VALUES)
    bootstrap, pid = cluster.bootstrap, cluster.pid()
    end(cluster)
    assert not psutil.pid_exists(pid)
    cluster.restart()
    assert cluster.bootstrap == bootstrap
    produce(cluster, topic, [b"after"])
    assert consume(cluster, topic, len(VALUES) + 1) == [*VALUES, b"after"]


def test_a_paused_broker_answers_when_it_continues(lab_pair: LabPair) -> None:
    cluster = lab_pair.target
    topic = new_topic(cluster)
    producer = Producer(client_settings(cluster))
    cluster.pause()
    try:
        producer.produce(topic, b"late")
        assert producer.flush(1) == 1
    finally:
        cluster.resume()
    assert producer.flush(SECONDS) == 0
    assert consume(cluster, topic, 1) == [b"late"]


def test_tls_with_client_certificates(lab_tls: Cluster) -> None:
    topic = new_topic(lab_tls)
    produce(lab_tls, topic, VALUES)
    assert consume(lab_tls, topic, len(VALUES)) == VALUES
    settings = client_settings(lab_tls)
    del settings["ssl.key.location"], settings["ssl.certificate.location"]
    assert refusal(settings) in {KafkaError._SSL, KafkaError._TRANSPORT}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_sasl_lets_in_who_knows_the_password(lab_sasl: Cluster, mechanism: Mechanism) -> None:
    settings = client_settings(lab_sasl, mechanism=mechanism)
    assert AdminClient(settings).list_topics(timeout=SECONDS).brokers
    assert refusal(settings | {"sasl.password": "wrong"}) == KafkaError._AUTHENTICATION


def refusal(settings: dict[str, str | int | float | bool]) -> int:
    """The first error of a client that is not admitted."""
    codes: list[int] = []
    callback: dict[str, Any] = {"error_cb": lambda error: codes.append(error.code())}
    admin = AdminClient({**settings, **callback})
    until(lambda: admin.poll(0.05) >= 0 and bool(codes), "the client is refused")
    return codes[0]


def test_sasl_takes_an_unsigned_token(lab_sasl: Cluster) -> None:
    token = str(client_settings(lab_sasl, mechanism="OAUTHBEARER")["sasl.password"])
    settings = client_settings(lab_sasl, mechanism="OAUTHBEARER")
    del settings["sasl.password"], settings["sasl.username"]
    callback: dict[str, Any] = {"oauth_cb": lambda _: (token, time.time() + 3600)}
    admin = AdminClient({**settings, **callback})
    # librdkafka calls the callback only when it is polled.
    admin.poll(1)
    assert admin.list_topics(timeout=SECONDS).brokers


def test_acls_deny_what_they_do_not_allow(lab_sasl: Cluster, allow: Allow) -> None:
    topic = new_topic(lab_sasl)
    stranger = client_settings(lab_sasl, "stranger")
    assert delivery_error(stranger, topic) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow("stranger", AclOperation.WRITE, topic)
    until(lambda: delivery_error(stranger, topic) is None, "the ACL allows the write")


def delivery_error(settings: dict[str, str | int | float | bool], topic: str) -> int | None:
    codes: list[int | None] = []
    producer = Producer({**settings, "message.timeout.ms": 5000})
    producer.produce(topic, b"?", on_delivery=lambda error, _: codes.append(error.code() if error else None))
    producer.flush(SECONDS)
    (code,) = codes
    return code


def test_another_broker_leads_when_the_leader_is_killed(lab_three: Cluster) -> None:
    cluster = lab_three
    topic = new_topic(cluster, replicas=3)
    produce(cluster, topic, VALUES)
    admin = AdminClient(client_settings(cluster))

    def leader() -> int:
        return admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions[0].leader

    first = leader()
    cluster.kill(first)
    until(lambda: leader() not in {first, -1}, "another leader")
    produce(cluster, topic, [b"after"])
    cluster.restart(first)
    assert consume(cluster, topic, len(VALUES) + 1) == [*VALUES, b"after"]


HOLDER = """
import sys
from mirrord.lab import server_properties
from mirrord.lab.cluster import Cluster
cluster = Cluster().start()
print(cluster.pid(), flush=True)
sys.stdin.read()
"""


def test_brokers_end_with_a_process_that_is_killed() -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdin is not None
    assert holder.stdout is not None
    with holder:
        broker = psutil.Process(int(holder.stdout.readline()))
        os.kill(holder.pid, signal.SIGKILL)
        broker.wait(SECONDS)


def test_a_taken_port_is_left_to_who_has_it(monkeypatch: pytest.MonkeyPatch, lab_pair: LabPair) -> None:
    taken = int(lab_pair.source.bootstrap.rpartition(":")[2])
    offers = [[taken, *free_ports(3)]]
    monkeypatch.setattr("mirrord.lab.cluster.free_ports", lambda count: offers.pop() if offers else free_ports(count))
    with Cluster(LabOptions(heap_mb=256)) as cluster:
        assert str(taken) not in cluster.bootstrap
        assert AdminClient(client_settings(cluster)).list_topics(timeout=SECONDS).brokers


def mirrord_lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from mirrord.cli.main import main; raise SystemExit(main())", "lab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_pair_of_the_command_line_outlives_it_and_goes_down(tmp_path: Path) -> None:
    home = ("--dir", str(tmp_path))
    assert mirrord_lab("status", *home).returncode == 1
    try:
        up = mirrord_lab("up", "--heap-mb", "256", "--json", *home)
        assert up.returncode == 0, up.stderr
        clusters = json.loads(up.stdout)["clusters"]
        for name in ("source", "target"):
            admin = AdminClient({"bootstrap.servers": clusters[name]["bootstrap"]})
            assert admin.list_topics(timeout=SECONDS).brokers
        assert mirrord_lab("up", "--json", *home).stdout == up.stdout
        assert mirrord_lab("status", "--json", *home).stdout == up.stdout
        os.kill(clusters["source"]["pid"], signal.SIGKILL)
        until(lambda: mirrord_lab("status", *home).returncode == 1, "half a pair is reported")
    finally:
        down = mirrord_lab("down", *home)
    assert down.returncode == 0, down.stderr
    assert not any(psutil.pid_exists(cluster["pid"]) for cluster in clusters.values())
    assert [path.name for path in tmp_path.iterdir()] == ["lab.lock"]


def test_a_broker_starts_with_the_class_archive_and_ignores_one_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The archive is created once. Java ignores another one."""
    class_archive.create()
    archive = server_properties.class_archive(find_java(), kafka_jars())
    before = archive.stat().st_mtime_ns
    class_archive.create()
    assert archive.stat().st_mtime_ns == before
    foreign = tmp_path / "foreign.jsa"
    foreign.write_bytes(b"\0" * 4 + archive.read_bytes()[4:])
    for path in (archive, foreign):
        monkeypatch.setattr(server_properties, "class_archive", lambda *_, path=path: path)
        with Cluster() as cluster:
            assert f"-XX:SharedArchiveFile={path}" in psutil.Process(cluster.pid()).cmdline()


def test_half_a_class_archive_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java would crash with it, and with it every broker."""
    class_archive.create()
    whole = server_properties.class_archive(find_java(), kafka_jars()).read_bytes()
    monkeypatch.setattr(class_archive, "class_archive", lambda *_: tmp_path / "half.jsa")
    stop = Cluster.stop

    def stop_and_truncate(cluster: Cluster) -> None:
        stop(cluster)
        (written,) = tmp_path.glob("half.[0-9]*")
        written.chmod(0o600)
        written.write_bytes(whole[:5_000])

    monkeypatch.setattr(Cluster, "stop", stop_and_truncate)
    with pytest.raises(EnvironmentFault, match="Java does not take the classes"):
        class_archive.create()
    assert [path.name for path in tmp_path.iterdir()] == ["half.lock"]
