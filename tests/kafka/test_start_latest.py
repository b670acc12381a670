"""`start = "latest"` applies to partitions that exist at the first look. Of all others no record is skipped."""

from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions

from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import SECONDS, Daemon, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, ends, messages, write
from tests.kafka.test_recreated import delete


def grow(cluster: Cluster, topic: str, partitions: int) -> None:
    """Add partitions and wait until the brokers accept records for them."""
    admin = AdminClient(client_settings(cluster))
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(SECONDS)


def put(cluster: Cluster, topic: str, partition: int, records: int, first: int = 0) -> None:
    write(cluster, topic, (Written(b"%d" % n, b"v", partition=partition) for n in range(first, first + records)))


def copied(target: Cluster, topic: str, partition: int) -> list[int]:
    """The keys of a target topic; none if it does not exist."""
    there = f"eu.{topic}"
    if partition not in ends(target, there):
        return []
    return [int(message.key() or b"") for message in messages(target, there, partition)]


def test_partitions_and_topics_that_appear_later_begin_at_their_first_record(lab_pair: LabPair, tmp_path: Path) -> None:
    """While the daemon runs, and while none does. The start offset of a topic whose lane could not open is that of the
    first look; so is that of a topic which another configuration selects."""
    source, target = lab_pair.source, lab_pair.target
    name, other = unique("late"), unique("joined")
    grows, held, born, born_meanwhile = (f"{name}-{each}" for each in ("grows", "held", "born", "meanwhile"))
    for topic in (grows, held, other):
        create_topic(source, topic)
        fill(source, topic, 1, 50)
    blocker = f"eu_{held}"  # Kafka refuses the name eu.<held> beside it
    create_topic(target, blocker)
    path = conf(tmp_path, source, target, f"{name}.*", flow=unique("latest"), flow_more='start = "latest"')
    with Daemon(path) as daemon:
        daemon.until(lambda: [lane.topic for lane in daemon.flow().lanes if lane.state == "copying"] == [grows])
        put(source, held, 0, 100, first=1_000)
        grow(source, grows, 2)
        put(source, grows, 1, 100)
        create_topic(source, born)
        put(source, born, 0, 100)
        daemon.until(lambda: len(copied(target, grows, 1)) == len(copied(target, born, 0)) == 100)
        assert daemon.stop() == 0
    grow(source, grows, 3)
    put(source, grows, 2, 1_000)
    create_topic(source, born_meanwhile, 2)
    put(source, born_meanwhile, 1, 100)
    delete(target, blocker)
    path.write_text(path.read_text().replace(f"'{name}.*'", f"'{name}.*', '{other}'"))
    with Daemon(path) as daemon:
        daemon.until(lambda: {lane.topic for lane in daemon.flow().lanes if lane.state == "copying"} >= {held, other})
        put(source, other, 0, 10, first=500)
        daemon.until(lambda: len(copied(target, grows, 2)) >= 1_000 and len(copied(target, born_meanwhile, 1)) >= 100)
        daemon.until(lambda: len(copied(target, held, 0)) >= 100 and len(copied(target, other, 0)) >= 10)
        assert daemon.stop() == 0
    assert copied(target, grows, 0) == [], "it was there before"
    assert copied(target, grows, 1) == copied(target, born, 0) == copied(target, born_meanwhile, 1) == [*range(100)]
    assert copied(target, grows, 2) == [*range(1_000)]
    assert copied(target, held, 0) == [*range(1_000, 1_100)]
    assert copied(target, other, 0) == [*range(500, 510)]
    assert mirrord("gaps", path).returncode == 0
    audited = mirrord("audit", path, "--level", "ledger")
    assert audited.returncode == 0, audited.stdout
