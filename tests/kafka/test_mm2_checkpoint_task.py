"""MirrorMaker 2's own checkpoint task, on Kafka Connect beside mirrord, translates groups by mirrord's offset syncs."""

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import Daemon, conf, fill, unique
from tests.fixtures.groups import commit, committed
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import SECONDS, Written, create_topic, ends, write
from tests.fixtures.mm2 import checkpoint_task


def topics(cluster: Cluster) -> set[str]:
    return set(AdminClient(client_settings(cluster)).list_topics(timeout=SECONDS).topics)


def checkpoints(cluster: Cluster, topic: str) -> dict[str, tuple[int, int]]:
    """The newest of each group: its offset on the source and on the target."""
    consumer = Consumer({**client_settings(cluster), "group.id": "nobody", "enable.auto.commit": False})
    found: dict[str, tuple[int, int]] = {}
    try:
        end = ends(cluster, topic)[0]
        consumer.assign([TopicPartition(topic, 0, 0)])
        while end and consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            for message in consumer.consume(100, 0.1):
                try:
                    checkpoint = Checkpoint.decode(message.key(), message.value())  # type: ignore[arg-type]
                except WireError:
                    continue
                found[checkpoint.group] = checkpoint.upstream, checkpoint.downstream
    finally:
        consumer.close()
    return found


def test_it_translates_by_our_pairs(lab_pair: LabPair, tmp_path: Path) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, alias, group = create_topic(source, unique("orders")), unique("eu"), unique("billing")
    copy = create_topic(target, f"{alias}.{topic}")
    # Foreign records: offsets on the target are different ones.
    write(target, copy, (Written(b"foreign", b"foreign") for _ in range(7)))
    fill(source, topic, 1, 1_000)
    more = 'groups = { mode = "off" }\nmm2_records = { checkpoints = false, offset_syncs = "target" }'
    path = conf(tmp_path, source, target, topic, flow=unique("flow"), flow_more=more)
    path.write_text(path.read_text().replace("clusters.eu", f"clusters.{alias}").replace('"eu"', f'"{alias}"'))
    internal = f"{alias}.checkpoints.internal"
    with Daemon(path) as daemon:
        daemon.until_copied({(topic, 0): 1_000})
        syncs = f"mm2-offset-syncs.{alias}.internal"
        daemon.until(lambda: syncs in topics(target))
        commit(source, f"{group}-head", topic, {0: 1_000})
        commit(source, f"{group}-behind", topic, {0: 137})
        with checkpoint_task(tmp_path, source, target, alias=alias, topic=topic, groups=f"{group}-.*") as task:

            def pairs() -> dict[str, tuple[int, int]]:
                assert task.running, task.log_tail()
                return checkpoints(target, internal) if internal in topics(target) else {}

            daemon.until(lambda: pairs().get(f"{group}-head") == (1_000, 1_007), 2 * SECONDS)
            daemon.until(lambda: f"{group}-behind" in pairs())
            # Far behind the head it knows only an earlier pair: it never skips.
            upstream, downstream = pairs()[f"{group}-behind"]
            assert upstream == 137
            assert 7 < downstream <= 144
            daemon.until(lambda: committed(target, f"{group}-head", copy) == {0: 1_007})
            fill(source, topic, 1, 50, first=1_000)
            commit(source, f"{group}-head", topic, {0: 1_050})
            daemon.until(lambda: pairs().get(f"{group}-head") == (1_050, 1_057))
        assert daemon.stop() == 0
