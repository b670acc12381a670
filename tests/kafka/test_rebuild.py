"""A ledger that is deleted and rebuilt, on real brokers: every answer is as before, and nothing is copied twice."""

import asyncio
import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from mirrord.audit import ledger_rebuild
from mirrord.config.loader import load
from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import free_ports
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.offset_map import CopiedPosition, LaneMap, Translation
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.model.errors import MirrordError
from mirrord.operations.status_report import LedgerView, read_ledgers
from tests.fixtures.daemon import (
    SECONDS,
    Daemon,
    all_ends,
    assert_same,
    conf,
    fill,
    lose_ledger,
    mirrord,
    signing,
    status,
    unique,
)
from tests.fixtures.lab import LabPair, client_settings
from tests.fixtures.mirror import Written, create_topic, send, write, write_batches

parquet: Any = importlib.import_module("pyarrow.parquet")
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
NOW_MS = int(time.time() * 1000)


def write_transactions(cluster: Cluster, topic: str, first: int) -> None:
    """Twelve of them; each third one is aborted."""
    producer = Producer({**client_settings(cluster), "transactional.id": topic, "compression.type": "lz4"})
    producer.init_transactions(SECONDS)
    for number in range(first, first + 12):
        producer.begin_transaction()
        for at in range(3):
            send(producer, topic, Written(b"key", b"%d-%d" % (number, at)))
        producer.flush(SECONDS)
        if number % 3:
            producer.commit_transaction(SECONDS)
        else:
            producer.abort_transaction(SECONDS)


def fill_all(cluster: Cluster, mixed: str, transactions: str, appended: str, first: int) -> None:
    for number, codec in enumerate(CODECS):
        batches = [
            Written(b"key", b"value-%d-%d" % (first, each), (), 0, NOW_MS + number)
            for each in range(20 * number, 20 * number + 20)
        ]
        asyncio.run(write_batches(cluster, mixed, batches, codec))
    write_transactions(cluster, transactions, first)
    write(cluster, appended, [Written(b"key", b"%d" % each) for each in range(first, first + 50)])


def view(path: Path) -> LedgerView | MirrordError:
    config = load(path)
    (found,) = asyncio.run(read_ledgers(config, ClusterAccess(config))).values()
    return found


def answers(path: Path) -> dict[str, list[tuple[str, int | None, int | None, str]]]:
    """Where every offset of every lane is, on the other side."""
    found = view(path)
    assert isinstance(found, LedgerView), found
    rows: dict[str, list[tuple[str, int | None, int | None, str]]] = {}
    for name, lane in found.state.lanes.items():
        progress = found.state.progress[name]
        lane_map = LaneMap(lane, CopiedPosition.by(progress))
        rows[f"{name} to target"] = [row(lane_map.to_target(each)) for each in range(progress.source_offset)]
        rows[f"{name} to source"] = [row(lane_map.to_source(each)) for each in range(progress.target_offset)]
        rows[f"{name} verdicts"] = [
            (each.reason, each.start, each.end, "")
            for each in sorted(lane.newest_verdicts, key=lambda each: each.start)
        ]
    return rows


def row(answer: Translation) -> tuple[str, int | None, int | None, str]:
    return answer.kind, answer.offset, answer.record, answer.reason


@pytest.mark.usefixtures("own_ledgers")
def test_a_lost_ledger_is_rebuilt(lab_pair: LabPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger is signed, and so is the rebuilt one."""
    source, target = lab_pair.source, lab_pair.target
    mixed, transactions = create_topic(source, unique("mixed")), create_topic(source, unique("transactions"))
    appended = create_topic(source, unique("appended"), message_timestamp_type="LogAppendTime")
    empty = create_topic(source, unique("empty"), 2)
    topics = (mixed, transactions, appended, empty)
    flow = unique("lost")
    path = conf(tmp_path, source, target, "|".join(topics), flow=flow, more=signing(tmp_path))
    fill_all(source, mixed, transactions, appended, 0)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, *topics))
        # Another client writes between the copied records.
        write(target, f"eu.{mixed}", [Written(b"foreign", b"foreign")])
        fill(source, mixed, 1, 100)
        daemon.until_copied(all_ends(source, *topics))
        assert daemon.stop() == 0
    before = answers(path)
    assert mirrord("rebuild", path).returncode == 2
    lose_ledger(target, flow)

    shown = mirrord("rebuild", path, "--json")
    assert shown.returncode == 0, shown.stderr
    lines = {f"{each['topic']}-{each['partition']}": each for each in json.loads(shown.stdout)["partitions"]}
    assert [lines[f"{topic}-0"]["outcome"] for topic in topics] == ["rebuilt", "rebuilt", "rebuilt", "new"]
    assert all(each["left_out"] == 0 for each in lines.values())
    assert not isinstance(view(path), LedgerView)

    begins_nothing(path, target, [f"eu.{topic}" for topic in topics[:-1]])
    shown = mirrord("rebuild", path)
    assert shown.returncode == 0, shown.stderr
    assert "the ledger does not know the records in eu." in shown.stdout
    broken_off(path, monkeypatch)
    done = mirrord("rebuild", path, "--apply")
    assert done.returncode == 0, done.stderr
    after = answers(path)
    # Markers after the last record are skipped once more.
    assert {name: before[name][: len(answer)] for name, answer in after.items()} == after
    assert sum(map(len, before.values())) - sum(map(len, after.values())) <= 2

    fill_all(source, mixed, transactions, appended, 100)
    distinguished(path, tmp_path / "apart", mixed, transactions, appended)
    fill(source, empty, 2, 10)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, *topics))
        assert daemon.stop() == 0
    assert_same(source, target, [transactions, appended, empty], 2 * 24 + 100 + 10)
    assert dict(all_ends(target, f"eu.{mixed}"))[f"eu.{mixed}", 0] == 2 * 100 + 100 + 1


def test_a_ledger_that_is_deleted_while_the_daemon_runs(lab_pair: LabPair, tmp_path: Path) -> None:
    """Nothing more is copied, everything says why, and after `rebuild` the daemon continues by itself."""
    source, target = lab_pair.source, lab_pair.target
    topic, flow = create_topic(source, unique("orders")), unique("deleted")
    address = f'[http]\nlisten = "127.0.0.1:{free_ports(1)[0]}"'
    path = conf(tmp_path, source, target, topic, flow=flow, more=address, lease_ttl="15s")
    fill(source, topic, 1, 100)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        admin = AdminClient(client_settings(target))
        admin.delete_topics([f"mirrord.{flow}.ledger"])[f"mirrord.{flow}.ledger"].result(SECONDS)
        line = f"the ledger topic mirrord.{flow}.ledger was deleted: facts have been lost; `mirrord rebuild`"
        daemon.until(lambda: daemon.flow().note.startswith(line))
        fill(source, topic, 1, 50, first=100)
        document = status(path)
        assert (document.gathered, document.flows[0].note[: len(line)]) == ("daemon", line)
        shown = mirrord("rebuild", path)
        assert shown.returncode == 0, shown.stderr
        assert f"the ledger topic mirrord.{flow}.ledger was deleted" in shown.stdout
        # It was deleted once, and nothing has created it again.
        assert f"mirrord.{flow}.ledger" not in admin.list_topics(timeout=SECONDS).topics
        assert all_ends(target, f"eu.{topic}")[f"eu.{topic}", 0] == 100
        done = mirrord("rebuild", path, "--apply")
        assert done.returncode == 0, done.stderr
        daemon.until(lambda: daemon.flow().state == "running")
        daemon.until_copied(all_ends(source, topic))
        admin.delete_topics([f"mirrord.{flow}.ledger"])[f"mirrord.{flow}.ledger"].result(SECONDS)
        daemon.until(lambda: daemon.flow().note.startswith(line))
        daemon.kill()
    assert_same(source, target, [topic], 150)
    document = status(path)
    (found,) = document.flows
    assert (document.gathered, found.state, found.note[: len(line)]) == ("target", "down", line)
    assert found.source.reachable
    assert found.target.reachable


def begins_nothing(path: Path, target: Cluster, copies: list[str]) -> None:
    """A daemon that finds no ledger does not copy again what is on the target."""
    before = all_ends(target, *copies)
    with Daemon(path) as daemon:

        def waiting() -> set[str]:
            lanes = [lane for lane in daemon.flow().lanes if "the ledger does not know" in lane.note]
            return {lane.target_topic for lane in lanes if lane.state == "opening"}

        daemon.until(lambda: waiting() == set(copies))
        assert daemon.stop() == 0
    assert all_ends(target, *copies) == before
    ended = mirrord("start", path, "--dry-run", "--json")
    assert ended.returncode == 3, ended.stderr
    assert {each["target_topic"] for each in json.loads(ended.stdout) if each["by"] == "unknown"} == set(copies)
    ended = mirrord("check", path, "--json")
    assert ended.returncode == 1, ended.stderr
    wrong = [each for each in json.loads(ended.stdout)["findings"] if each["severity"] == "error"]
    assert {each["where"] for each in wrong} == {f"us: topic {topic}" for topic in copies}


def broken_off(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a ledger counts as no ledger."""
    config = load(path)
    (flow,) = config.flows
    calls = iter(range(100))
    append = KafkaLog.append

    async def fails(self: KafkaLog, values: list[bytes]) -> None:
        if next(calls) == 1:
            raise LedgerUnavailable("broken off")
        await append(self, values)

    async def run() -> None:
        found = await ledger_rebuild.find_positions(config, flow, "lost")
        await ledger_rebuild.apply(config, flow, found)

    with monkeypatch.context() as patched:
        patched.setattr(KafkaLog, "append", fails)
        with pytest.raises(LedgerUnavailable):
            asyncio.run(run())
    assert "facts have been lost" in str(view(path))
    shown = mirrord("status", path)
    assert shown.returncode == 0, shown.stderr
    assert "facts have been lost" in shown.stdout


def distinguished(path: Path, folder: Path, mixed: str, transactions: str, appended: str) -> None:
    """Records on one side only: those not copied yet, and foreign ones."""
    answer = mirrord("divergence", path, "--json", "--out", folder)
    assert answer.returncode == 3, answer.stderr
    found = {
        (each["side"], each["topic"], each["why"]): each["records"] for each in json.loads(answer.stdout)["divergence"]
    }
    assert found == {
        ("source", mixed, "pending"): 100,
        ("source", transactions, "pending"): 24,
        ("source", appended, "pending"): 50,
        ("target", f"eu.{mixed}", "foreign"): 1,
    }
    table = parquet.read_table(folder / "divergence.parquet").to_pylist()
    assert len(table) == 175
    assert [each["value"] for each in table if each["side"] == "target"] == [b"foreign"]
    assert not list(folder.glob(".*"))
    assert mirrord("divergence", path, "--out", folder).returncode == 2


def test_a_filtered_partition_is_rebuilt(lab_pair: LabPair, tmp_path: Path) -> None:
    """Most of its batches are shorter than those of the source, so all records are compared one by one."""
    source, target = lab_pair.source, lab_pair.target
    topic, flow = create_topic(source, unique("filtered")), unique("filtered")
    rules = 'records = { filter = "tests.fixtures.sample_policies:Odd" }'
    path = conf(tmp_path, source, target, topic, flow=flow, flow_more=rules)
    fill(source, topic, 1, 12_000)
    with Daemon(path) as daemon:
        daemon.until_copied(all_ends(source, topic))
        assert daemon.stop() == 0
    assert all_ends(target, f"eu.{topic}") == {(f"eu.{topic}", 0): 6_000}
    before = answers(path)
    lose_ledger(target, flow)
    done = mirrord("rebuild", path, "--apply", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (partition,) = json.loads(done.stdout)["partitions"]
    assert (partition["outcome"], partition["records"], partition["left_out"]) == ("rebuilt", 6_000, 0)
    after = answers(path)
    # A verdict on the first record is not needed: the lane begins after it.
    assert {name: rows for name, rows in after.items() if "verdicts" not in name} == {
        name: rows for name, rows in before.items() if "verdicts" not in name
    }
