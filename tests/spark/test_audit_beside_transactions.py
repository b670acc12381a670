"""A copy is lost in a compacted target topic, and another client writes its key in a transaction. Only a
committed record explains the loss."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from mirrord.cli.main import main
from mirrord.kafka.client.range_reader import ReadBatch
from tests.fixtures.lab import LabPair
from tests.fixtures.log_files import LogFile, lay_down
from tests.fixtures.mirror import PATIENT, SECONDS, Mirror, Written, copy_of, ids, mirror, write_batches
from tests.spark.test_audit import configuration, rewritten

BEGUN_MS = int(time.time() * 1000) - 60_000
COPIED, ALL = 10, 20
LOST = 2
PLACES = ("aborted, in the range", "committed, in the range", "open, in the range", "aborted", "committed", "open")
"""What becomes of the transaction of each partition, and whether copied records follow it."""
UNKNOWN = [PLACES.index("open, in the range"), PLACES.index("open")]


def records_of(first: int, end: int) -> list[Written]:
    return [
        Written(b"key-%d" % number, b"value-%d" % number, (), partition, BEGUN_MS + number)
        for partition in range(len(PLACES))
        for number in range(first, end)
    ]


class Client:
    """Another client of the target, with a transaction in one partition."""

    def __init__(self, flow: Mirror, topic: str, partition: int) -> None:
        name = f"{topic}-{partition}"
        settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        self._producer = Producer({"bootstrap.servers": flow.target.bootstrap, **settings})
        self._place = copy_of(topic), partition

    def write(self, end: str) -> None:
        """Write the key of the lost record, and end the transaction so."""
        topic, partition = self._place
        self._producer.init_transactions(SECONDS)
        self._producer.begin_transaction()
        self._producer.produce(topic, b"newer", b"key-%d" % LOST, partition=partition)
        assert self._producer.flush(SECONDS) == 0, "what is aborted has to be in the log"
        if end.startswith("aborted"):
            self._producer.abort_transaction(SECONDS)
        elif end.startswith("committed"):
            self.commit()

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS)


def without_lost(batches: list[ReadBatch], stable: int | None) -> LogFile:
    """The whole log without the copy of the lost record. If a transaction is open, `stable` is the last stable
    offset."""
    stored = [bytes(memoryview(each.buffer)[each.start : each.end]) for each in batches]
    stored[0] = rewritten(batches[0], lambda records: [each for each in records if each.offset != LOST])
    return LogFile(b"".join(stored), batches[-1].header.last_offset + 1 if stable is None else stable)


async def lose(flow: Mirror, topic: str) -> list[Client]:
    """Copy, and lose a copy in each partition. Other clients write its key before and after the last copied records."""
    clients = [Client(flow, topic, partition) for partition in range(len(PLACES))]
    await write_batches(flow.source, topic, records_of(0, COPIED))
    replicator = await flow.copying()
    await flow.caught_up(replicator)
    for client, place in zip(clients, PLACES, strict=True):
        if "range" in place:
            await asyncio.to_thread(client.write, place)
    await write_batches(flow.source, topic, records_of(COPIED, ALL))
    await flow.caught_up(replicator)
    lanes = ids(await flow.lanes())
    await flow.have_read_gaps(replicator, lanes)
    assert await replicator.release(lanes, SECONDS) == dict.fromkeys(lanes, True)
    logs: dict[int, LogFile] = {}
    for partition, place in enumerate(PLACES):
        is_open = place == "open, in the range"
        _, batches = await flow.batches(topic, partition, target_end=ALL + 1 if is_open else None)
        logs[partition] = without_lost(batches, COPIED if is_open else None)
    await lay_down(flow.target, copy_of(topic), logs)
    for client, place in zip(clients, PLACES, strict=True):
        if "range" not in place:
            await asyncio.to_thread(client.write, place)
    return clients


@pytest.mark.usefixtures("spark")
async def test_only_a_committed_record_of_another_client_explains_a_lost_copy(
    lab_pair: LabPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def audit(*options: str) -> dict[str, Any]:
        code = await asyncio.to_thread(main, ["audit", conf, "--json", "--level", "records", "--again", *options])
        captured = capsys.readouterr()
        assert code == 3, captured.err
        (document,) = (line for line in captured.out.splitlines() if line.startswith('{"level":"'))
        return json.loads(document)

    async with mirror(lab_pair.source, lab_pair.target, **PATIENT) as flow:
        topic = flow.topic(partitions=len(PLACES), target_configs={"cleanup_policy": "compact"})
        conf = configuration(flow, tmp_path)
        clients = await lose(flow, topic)
        first = await audit("--out", str(tmp_path / "results"))
        for partition in UNKNOWN:
            await asyncio.to_thread(clients[partition].commit)
        second = await audit("--resume", str(tmp_path / "results"))

    missing = [place for place in PLACES if place.startswith("aborted")]
    foreign = [place for place in PLACES if "range" in place]
    for document in (first, second):
        assert sorted(differences(document)) == sorted(
            [*(("missing", place, LOST) for place in missing), *(("foreign", place, None) for place in foreign)]
        )
    unknown = [PLACES[partition] for partition in UNKNOWN]
    assert undecided(first) == dict.fromkeys(unknown, 1)
    assert undecided(second) == {}
    committed = [place for place in PLACES if place.startswith("committed")]
    assert explained(first) == set(committed)
    assert explained(second) == {*committed, *unknown}
    assert [document["partitions"][PLACES.index("open")]["proven_to"] for document in (first, second)] == [None, ALL]


def differences(document: Any) -> list[tuple[str, str, int | None]]:
    found = [(each["partition"], each["difference"]) for each in document["differences"]]
    return [(difference["kind"], PLACES[partition], difference["source"]) for partition, difference in found]


def undecided(document: Any) -> dict[str, int]:
    return {PLACES[each["partition"]]: each["undecided"] for each in document["partitions"] if each["undecided"]}


def explained(document: Any) -> set[str]:
    """The partitions in which compaction explains a missing record."""
    found = {PLACES[each["partition"]]: each["explained"] for each in document["partitions"]}
    assert all(causes in ({}, {"target-compaction": 1}) for causes in found.values())
    return {place for place, causes in found.items() if causes}
