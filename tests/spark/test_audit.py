"""Damage on the target, each kind found at its exact offsets; and a target topic without damage."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from mirrord.cli.main import main
from mirrord.config.ledger import LedgerConfig
from mirrord.config.security import Secret
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HEADER, Header
from mirrord.kafka.records.record_decoding import decode
from tests.fixtures.daemon import signing
from tests.fixtures.lab import LabPair
from tests.fixtures.log_files import LogFile, lay_down
from tests.fixtures.mirror import PATIENT, SECONDS, Mirror, Written, copy_of, ids, mirror, send, write_batches

BEGUN_MS = int(time.time() * 1000) - 60_000
COPIED, ALL = 20, 30
GZIP = 1
PLACES = ("whole", "altered", "missing", "duplicated", "foreign", "swapped", "tail", "recompressed", "retention")


def record_of(partition: int, number: int) -> Written:
    return Written(b"key-%d" % number, b"value-%02d-%d" % (number, partition), (), partition, BEGUN_MS + number)


def records_of(first: int, end: int) -> list[Written]:
    return [record_of(partition, number) for partition in range(len(PLACES)) for number in range(first, end)]


def rewritten(batch: ReadBatch, change: Callable[[list[DecodedRecord]], list[DecodedRecord]], codec: int = 0) -> bytes:
    """The batch with other records, consistent in itself: a broker finds nothing wrong with it."""
    header = batch.header
    builder = DefaultRecordBatchBuilder(
        2, codec, 0, header.producer_id, header.producer_epoch, header.base_sequence, 1 << 20
    )
    for each in change(decode(batch.buffer, batch.start, batch.end)):
        builder.append(each.offset - header.base_offset, each.time_ms, each.key, each.value, [])
    data = bytearray(builder.build())
    built = Header(*HEADER.unpack_from(data))
    HEADER.pack_into(data, 0, *built._replace(base_offset=header.base_offset, leader_epoch=header.leader_epoch))
    return bytes(data)


def altered(records: list[DecodedRecord]) -> list[DecodedRecord]:
    return [each._replace(value=b"VALUE-12-1") if each.offset == 12 else each for each in records]


def missing(records: list[DecodedRecord]) -> list[DecodedRecord]:
    return [each for each in records if each.offset != 12]


def swapped(records: list[DecodedRecord]) -> list[DecodedRecord]:
    held = {each.offset: each for each in records}
    held[12], held[14] = held[14]._replace(offset=12), held[12]._replace(offset=14)
    return list(held.values())


def damaged(place: str, copies: list[ReadBatch]) -> LogFile | None:
    """The new content of the whole log; None: it stays."""
    starts = [each.header.base_offset for each in copies]
    assert starts[:2] == [0, 10], "damage is done to the second batch"
    stored = [bytes(memoryview(each.buffer)[each.start : each.end]) for each in copies]
    changes = {"altered": altered, "missing": missing, "swapped": swapped}
    match place:
        case "tail":
            return LogFile(b"".join(stored[:2]), COPIED)
        case "recompressed":
            stored[1] = rewritten(copies[1], list, GZIP)
        case "altered" | "missing" | "swapped":
            stored[1] = rewritten(copies[1], changes[place])
        case _:
            return None
    return LogFile(b"".join(stored), ALL)


async def damage(flow: Mirror, topic: str) -> None:
    """Copy, with foreign records in between, and then change the target's records."""
    await write_batches(flow.source, topic, records_of(0, 10))
    await write_batches(flow.source, topic, records_of(10, COPIED))
    replicator = await flow.copying()
    await flow.caught_up(replicator)
    producer = Producer({"bootstrap.servers": flow.target.bootstrap})
    send(producer, copy_of(topic), record_of(PLACES.index("duplicated"), 12))
    send(producer, copy_of(topic), Written(b"who", b"knows", (), PLACES.index("foreign")))
    assert producer.flush(SECONDS) == 0
    del producer  # it would go on looking for a stopped broker
    await write_batches(flow.source, topic, records_of(COPIED, ALL))
    await flow.caught_up(replicator)
    lanes = await flow.lanes()
    await flow.have_read_gaps(replicator, ids(lanes))
    assert await replicator.release(ids(lanes), SECONDS) == dict.fromkeys(ids(lanes), True)
    logs = {
        partition: log
        for partition, place in enumerate(PLACES)
        if (log := damaged(place, (await flow.batches(topic, partition))[1])) is not None
    }
    await lay_down(flow.target, copy_of(topic), logs)
    admin = AdminClient({"bootstrap.servers": flow.target.bootstrap})
    gone = admin.delete_records([TopicPartition(copy_of(topic), PLACES.index("retention"), COPIED)])
    await asyncio.to_thread(lambda: [future.result(SECONDS) for future in gone.values()])


def configuration(flow: Mirror, folder: Path, more: str = "") -> str:
    path = folder / "conf.toml"
    path.write_text(
        f'[clusters.eu]\nbootstrap = "{flow.source.bootstrap}"\n[clusters.us]\nbootstrap = "{flow.target.bootstrap}"\n'
        f'[[flows]]\nname = "{flow.setup.flow.name}"\nfrom = "eu"\nto = "us"\ntopics = {json.dumps(flow.topics)}\n'
        + more
    )
    return str(path)


@pytest.mark.usefixtures("own_ledgers")
async def test_each_kind_of_damage_at_its_offsets(
    spark: Any, lab_pair: LabPair, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ledger is signed, so audits and repairs check signatures and sign what they record."""

    async def audit(*options: str) -> tuple[int, Any]:
        code = await asyncio.to_thread(main, ["audit", conf, "--json", *options])
        # Around it are log lines of other parts of this process.
        captured = capsys.readouterr()
        assert code in {0, 3}, captured.err
        (document,) = (line for line in captured.out.splitlines() if line.startswith('{"level":"'))
        found = json.loads(document)
        assert found.pop("reader_cpu_s") >= 0
        return code, found

    table, keys = signing(tmp_path), LedgerConfig(Secret(f"file:{tmp_path / 'ledger-key'}"))
    async with mirror(lab_pair.source, lab_pair.target, keys=keys, **PATIENT) as flow:
        topic = flow.topic(partitions=len(PLACES))
        conf = configuration(flow, tmp_path, table)
        await damage(flow, topic)
        found = {level: await audit("--level", level) for level in ("ledger", "records")}
        found["digest"] = await audit("--again", "--out", str(tmp_path / "results"))
        resumed = await audit("--again", "--resume", str(tmp_path / "results"))
        repairs = [await repaired(capsys, tmp_path, conf, *options) for options in ((), ("--apply",), ("--apply",), ())]
        code, document = await audit()

    check_repairs(repairs)
    # What is proven is not read again.
    assert [(each["records"], each["equal"], each["proven_to"]) for each in document["partitions"][:2]] == [
        (0, 0, ALL),
        (ALL, ALL - 1, ALL),
    ]
    check_repaired(document)
    expected = [
        ("altered", "altered", 12, 12, 1),
        ("missing", "missing", 12, 12, 1),
        ("duplicated", "duplicated", 12, 20, 1),
        ("foreign", "foreign", None, 20, 1),
        ("swapped", "reordered", 14, 12, 1),
        ("swapped", "reordered", 12, 14, 1),
        ("tail", "missing", 20, 20, 10),
    ]
    for level in ("digest", "records"):
        code, document = found[level]
        assert code == 3
        assert places(document) == expected, level
        (retention,) = [each for each in document["partitions"] if each["partition"] == PLACES.index("retention")]
        assert retention["explained"] == {"target-retention": COPIED}
        whole = document["partitions"][0]
        assert (whole["equal"], whole["proven_to"], whole["proven_ms"]) == (30, 30, BEGUN_MS + 29)
        assert document["partitions"][1]["proven_to"] is None
    # Without reading a record: foreign records, and offsets beyond the target's end.
    code, document = found["ledger"]
    assert code == 3
    assert places(document) == [
        ("duplicated", "foreign", None, 20, 1),
        ("foreign", "foreign", None, 20, 1),
        ("tail", "missing", 20, 20, 10),
    ]
    assert resumed == found["digest"]


Repaired = tuple[int, list[tuple[str, str, int, int]]]
"""The exit code, and of each range its place, difference, first source offset, and number of records."""


async def repaired(capsys: pytest.CaptureFixture[str], folder: Path, conf: str, *options: str) -> Repaired:
    code = await asyncio.to_thread(main, ["repair", str(folder / "results"), conf, "--json", *options])
    captured = capsys.readouterr()
    (document,) = (line for line in captured.out.splitlines() if line.startswith('{"applied":'))
    rows = json.loads(document)["ranges"]
    return code, [(PLACES[each["partition"]], each["kind"], each["start"], each["records"]) for each in rows]


def check_repairs(repairs: list[Repaired]) -> None:
    """What is missing or altered is in a topic of its own, each record once."""
    damage_done = [("altered", "altered", 12), ("missing", "missing", 12), ("tail", "missing", 20)]
    assert repairs[0] == (3, [(*each, 0) for each in damage_done])
    assert repairs[1:] == [(0, [(*each, 10 if each[0] == "tail" else 1) for each in damage_done])] * 3


def check_repaired(document: Any) -> None:
    """What was repaired is explained by the next audit, with its place."""
    explained = {PLACES[each["partition"]]: each["explained"] for each in document["partitions"]}
    assert [explained[place].get("repaired") for place in ("altered", "missing", "tail")] == [1, 1, 10]
    assert {each["difference"]["kind"] for each in document["differences"]} == {"duplicated", "foreign", "reordered"}
    by_place = {PLACES[each["partition"]]: each for each in document["repaired"]}
    assert {place: (each["start"], each["end"]) for place, each in by_place.items()} == {
        "altered": (12, 13),
        "missing": (12, 13),
        "tail": (20, 30),
    }


def places(document: Any) -> list[tuple[Any, ...]]:
    return [
        (PLACES[each["partition"]], *(each["difference"][name] for name in ("kind", "source", "target", "length")))
        for each in document["differences"]
    ]
