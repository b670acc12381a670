"""An older Kafka on one side and the newest on the other: versions are negotiated down, the records arrive the same."""

import asyncio
import random
from pathlib import Path

from confluent_kafka import Producer

from mirrord.kafka.protocol.api_versions import PRODUCE, PRODUCE_BY_TOPIC_ID
from mirrord.lab.cluster import Cluster
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.broker_probe import probe_target
from tests.fixtures.daemon import Daemon, all_ends, assert_same, conf, fill, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import SECONDS, Written, config_of, create_topic, mirror, send, write
from tests.fixtures.wire import linked

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


async def test_the_older_one_wants_topics_by_name(lab_old: Cluster) -> None:
    async with linked(lab_old) as connection:
        assert connection.version(PRODUCE) < PRODUCE_BY_TOPIC_ID


async def test_the_older_one_keeps_the_rules(lab_old: Cluster) -> None:
    found = await probe_target(config_of(lab_old), f"mirrord.{unique('old')}.probe", SystemClock(), None, SECONDS)
    assert (found.passed, found.failures) == (True, ())


async def test_from_the_older_to_the_newest(lab_old: Cluster, lab_pair: LabPair, seed: int) -> None:
    chance = random.Random(seed)
    async with mirror(lab_old, lab_pair.target) as flow:
        topic = flow.topic(len(CODECS) + 1)
        for partition, codec in enumerate(CODECS):
            records = [Written(b"%d" % n, chance.randbytes(50) * 4, partition=partition) for n in range(500)]
            await asyncio.to_thread(write, lab_old, topic, records, compression_type=codec, batch_num_messages=50)
        await asyncio.to_thread(write_in_transactions, lab_old, topic, len(CODECS))
        reports = await flow.caught_up(await flow.copying())
        assert not any(lane.rebuilt for lane in reports)
        await flow.assert_same(records=500 * len(CODECS) + 101)


def write_in_transactions(cluster: Cluster, topic: str, partition: int) -> None:
    """100 records in two transactions, as many that are aborted, and one after all of them."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(30)
    for turn in range(4):
        producer.begin_transaction()
        for number in range(50):
            send(producer, topic, Written(b"%d" % turn, b"%d" % number, partition=partition))
        if turn % 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    write(cluster, topic, [Written(None, b"the end", partition=partition)])


def test_from_the_newest_to_the_older(lab_old: Cluster, lab_pair: LabPair, tmp_path: Path) -> None:
    """A daemon with its ledger on the older one; it is killed, and another one continues."""
    source = lab_pair.source
    topic = create_topic(source, unique("orders"), 3)
    path = conf(tmp_path, source, lab_old, topic, flow=unique("old"))
    fill(source, topic, 3, 1_500)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        daemon.kill()
    fill(source, topic, 3, 1_500, first=1_500)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert_same(source, lab_old, [topic], 3_000)
