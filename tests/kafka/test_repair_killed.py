"""`mirrord repair` that is killed, or suspended while another one does its work: each record is in the topic once."""

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.audit.result_files import ResultRow, Results
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.results import Compared, Difference, RangeResult
from mirrord.lab.cluster import Cluster
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.model import names
from mirrord.model.names import repair_topic
from mirrord.replication.dead_letters.records import LetterHeaders, understood
from mirrord.runtime.leash import leashed
from tests.fixtures.daemon import SECONDS, Daemon, all_ends, conf, mirrord, unique
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, config_of, create_topic, write
from tests.kafka.test_refused_records import committed

RECORDS = 400
"""In each of two partitions, each in a batch of its own: each batch is a transaction of the repair."""


def start_repair(folder: Path, path: Path) -> subprocess.Popen[str]:
    """Start `mirrord repair --apply`, which ends with the test."""
    command = [sys.executable, "-m", "mirrord.cli.main", "repair", str(folder), str(path), "--apply", "--json"]
    return subprocess.Popen(leashed(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lying(cluster: Cluster, topic: str) -> list[tuple[int, int, int]]:
    """What readers are given: partition and source offset of each record, and the number in its key."""
    found: list[tuple[int, int, int]] = []
    for message in committed(cluster, topic):
        letter = understood(cast(LetterHeaders, message.headers()))
        assert letter is not None
        found.append((int(letter.place.lane.split(".")[1]), letter.place.offset, int(message.key() or b"")))
    return found


class Sight:
    """Follows the topic from its first record on."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._admin, self._topic = AdminClient(client_settings(cluster)), topic
        quick = {"group.id": "tests", "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        self._consumer = Consumer({**client_settings(cluster), **quick})
        self._is_there = False
        self._seen = 0

    def count(self) -> int:
        """The number of records seen so far."""
        if not self._is_there and self._topic in self._admin.list_topics(timeout=SECONDS).topics:
            self._is_there = True
            self._consumer.assign([TopicPartition(self._topic, 0, 0)])
        if self._is_there:
            self._seen += sum(message.error() is None for message in self._consumer.consume(1_000, 0.005))
        return self._seen

    def until(self, process: subprocess.Popen[str], records: int) -> int:
        """Wait until this many are seen while the repair runs."""
        deadline = time.monotonic() + SECONDS
        while (count := self.count()) < records:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, count
        return count


async def lanes_of(cluster: Cluster, flow: str) -> list[LaneState]:
    reading = LedgerReading(KafkaLog(flow, config_of(cluster)))
    await read_gaps(reading)
    return sorted(reading.state.lanes.values(), key=lambda lane: lane.partition)


def audited(folder: Path, flow: str, lane: LaneState) -> None:
    """Write the result of an audit that found none of a partition's records on the target."""
    whole = {"lane": lane.key.id, "first": 0, "end": RECORDS}
    wanted = AuditRange(
        producer_id=lane.producer_id, source_start=0, source_end=RECORDS, target_start=0, target_end=RECORDS,
        pieces=(), **whole,
    )  # fmt: skip
    result = RangeResult(by="records", compared=Compared(0, (Difference("missing", 0, 0, RECORDS),)), **whole)
    source = names.TopicPartition(lane.source_topic, lane.partition)
    kept = {"flow": flow, "source": source, "target_topic": lane.target_topic, "level": "records"}
    Results(folder).write([ResultRow(audited_at_ms=0, wanted=wanted, result=result, **kept)])


class World:
    """A flow that has copied two partitions, and results by which both are to be repaired."""

    def __init__(self, pair: LabPair, folder: Path) -> None:
        self.target, topic, self.flow = pair.target, unique("damaged"), unique("repair")
        create_topic(pair.source, topic, 2)
        records = [Written(b"%d" % number, b"value", partition=number % 2) for number in range(2 * RECORDS)]
        write(pair.source, topic, records, linger_ms=0, batch_num_messages=1, enable_idempotence=True)
        self.path = conf(folder, pair.source, pair.target, topic, flow=self.flow)
        with Daemon(self.path) as daemon:
            daemon.until_copied(all_ends(pair.source, topic))
            assert daemon.stop() == 0
        self.results, self.into = folder / "results", repair_topic(self.flow)
        for lane in asyncio.run(lanes_of(pair.target, self.flow)):
            audited(self.results, self.flow, lane)

    def lies(self) -> list[tuple[int, int, int]]:
        return lying(self.target, self.into)

    def check(self) -> None:
        """Each record is there once, and the ledger lists each range once."""
        assert sorted(self.lies()) == sorted((n % 2, n // 2, n) for n in range(2 * RECORDS))
        lanes = asyncio.run(lanes_of(self.target, self.flow))
        assert [[(each.start, each.end) for each in lane.repaired] for lane in lanes] == [[(0, RECORDS)]] * 2
        shown = mirrord("repair", self.results, self.path, "--json")
        assert shown.returncode == 0, shown.stderr
        assert [each["records"] for each in json.loads(shown.stdout)["ranges"]] == [RECORDS] * 2


def test_kill_9_after_the_first_records_are_seen(lab_pair: LabPair, tmp_path: Path, seed: int) -> None:
    """And again after more are, and once more within the second partition."""
    world, chance = World(lab_pair, tmp_path), random.Random(seed)
    sight = Sight(world.target, world.into)
    for least in (1, chance.randrange(RECORDS // 4, RECORDS // 2), RECORDS + chance.randrange(RECORDS // 4)):
        process = start_repair(world.results, world.path)
        sight.until(process, max(least, sight.count() + 1))
        process.kill()
        process.communicate()
        assert len(world.lies()) < 2 * RECORDS, "it was too quick for this test"
    assert mirrord("repair", world.results, world.path).returncode == 3
    for _ in range(2):
        done = mirrord("repair", world.results, world.path, "--apply")
        assert done.returncode == 0, done.stderr
        world.check()


def test_a_repair_that_stood_still_while_another_one_did_its_work(lab_pair: LabPair, tmp_path: Path) -> None:
    world = World(lab_pair, tmp_path)
    process = start_repair(world.results, world.path)
    Sight(world.target, world.into).until(process, 1)
    process.send_signal(signal.SIGSTOP)
    done = mirrord("repair", world.results, world.path, "--apply")
    assert done.returncode == 0, done.stderr
    process.send_signal(signal.SIGCONT)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors.count("\n")) == (1, 1), errors
    world.check()
