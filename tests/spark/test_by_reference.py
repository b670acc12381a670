"""The jobs against references in plain Python, on random logs and ledgers (the seed of the run).

`tests.fixtures.reference_log`, which knows only the format, reads the brokers' files; `tests.fixtures.naive_audit`
states what an audit has to find by its definitions, record by record.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mirrord.audit import plan
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.range_division import ranges
from mirrord.audit.rules.record_compare import together
from mirrord.audit.rules.results import Difference
from mirrord.cli.main import main
from mirrord.config.loader import load_file
from mirrord.config.schema import Config
from mirrord.lab.cluster import Cluster
from mirrord.ledger.codec import encode_entry, encode_state
from mirrord.ledger.facts.core import LeaseReleased, Progress
from mirrord.ledger.offset_map import CopiedPosition, LaneMap, Translation
from mirrord.ledger.prune import floor
from mirrord.ledger.state import LaneState
from mirrord.ledger.state_topic_records import state_key
from mirrord.ledger.store import cluster_access, spill_file
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.model.run_memory import PIECE_RUNS
from tests.fixtures.copied_log import damaged, own_rows
from tests.fixtures.lab import LabPair
from tests.fixtures.ledger import plain
from tests.fixtures.log_files import LogFile, lay_down
from tests.fixtures.mirror import PATIENT, SECONDS, Mirror, copy_of, ids, mirror
from tests.fixtures.naive_audit import expected, naive
from tests.fixtures.random_mirror import LANE, WHOLE, RandomMirror
from tests.fixtures.reference_log import APPEND_TIME, Batch, LogByChance, committed, contents, decode, encode
from tests.spark.test_audit import configuration
from tests.spark.test_kafka_batches import CODECS, read

PARTITIONS = 4
RECORDS = 150
A_RANGE = 40
"""Number of records, so that each partition has some ranges."""


def stored(cluster: Cluster, topic: str) -> list[list[Batch]]:
    """The content of the only broker's files, partition by partition."""
    data = Path(cluster.folder) / "node-1" / "data"
    return [
        [batch for path in sorted((data / f"{topic}-{number}").glob("*.log")) for batch in decode(path.read_bytes())]
        for number in range(PARTITIONS)
    ]


def batch_row(topic: str, partition: int, batch: Batch) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "base_offset": batch.base,
        "last_offset": batch.last,
        "record_count": len(batch.rows),
        "magic": 2,
        "attributes": batch.attributes,
        "codec": CODECS[batch.attributes & 7],
        "is_control": batch.is_control,
        "is_aborted": False,
        "leader_epoch": batch.leader_epoch,
        "base_timestamp_ms": batch.base_ms,
        "max_timestamp_ms": batch.newest_ms,
        "producer_id": batch.producer[0],
        "producer_epoch": batch.producer[1],
        "base_sequence": batch.sequence,
        "size_bytes": batch.size,
        "crc": batch.crc,
        "records_crc": batch.records_crc,
    }


def record_rows(topic: str, partition: int, batch: Batch) -> list[dict[str, Any]]:
    return [
        {
            "topic": topic,
            "partition": partition,
            "offset": row.offset,
            "timestamp_ms": row.time_ms,
            "has_append_time": bool(batch.attributes & APPEND_TIME),
            "key": row.key,
            "value": row.value,
            "headers": [{"key": name, "value": value} for name, value in row.headers],
            "producer_id": batch.producer[0],
            "sequence": batch.sequence + row.offset - batch.base if batch.sequence >= 0 else None,
        }
        for row in batch.rows
    ]


def by_place(rows: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: (row["partition"], row.get("offset", row.get("base_offset"))))


def check_batches(spark: Any, chance: random.Random, cluster: Cluster, topic: str, logs: list[list[Batch]]) -> None:
    """All batches as they are stored; and what committed readers get of random ranges, in random pieces."""
    everything = read(spark, cluster, topics=topic, isolation="read_uncommitted")
    assert by_place(everything) == [
        batch_row(topic, number, batch) for number, log in enumerate(logs) for batch in log
    ], "all batches"
    visible = [committed(log) for log in logs]
    wanted: dict[int, tuple[int, int]] = {}
    for number, log in enumerate(logs):
        start = chance.randrange(log[-1].last + 1)
        wanted[number] = (start, chance.randrange(start, log[-1].last + 2))
    options = {
        "ranges": json.dumps({topic: {str(number): each for number, each in wanted.items()}}),
        "split": f"{chance.choice((64, 100, 1 << 20))}KiB",
    }
    found = read(spark, cluster, **options)
    assert by_place(found) == [
        batch_row(topic, number, batch)
        for number, (start, end) in wanted.items()
        for batch in visible[number]
        if batch.last >= start and batch.base < end and start < end
    ], options
    found = read(spark, cluster, records="true", **options)
    assert by_place(found) == [
        row
        for number, (start, end) in wanted.items()
        for batch in visible[number]
        for row in record_rows(topic, number, batch)
        if start <= row["offset"] < end
    ], options


class RecordedLane(NamedTuple):
    """A lane according to the ledger."""

    lane: LaneState
    ordinal: int
    starts: tuple[int, int] = (0, 0)


class Expected(NamedTuple):
    """What an audit has to report of a partition."""

    equal: int
    differences: list[Difference]
    proven_to: int | None


def reference(level: str, recorded: RecordedLane, source: Sequence[Batch], target: Sequence[Batch]) -> Expected:
    known: dict[tuple[object, ...], int] = {}
    originals = contents((row for batch in committed(source) for row in batch.rows), known)
    found = list(own_rows(target, recorded.lane.producer_id))
    copies = contents((row for row, _ in found), known)
    foreign = {row.offset for row, is_own in found if not is_own}
    end = target[-1].last + 1
    equal, differences = 0, list[Difference]()
    proven_to: int | None = None
    for wanted in ranges(recorded.lane, floor(recorded.lane), recorded.ordinal, A_RANGE, recorded.lane.verdicts.recent):
        if level == "ledger":
            same, wrong = by_ledger(recorded, wanted, end)
        else:
            same, wrong = naive(recorded, originals, copies, wanted, foreign)
        equal += same
        if not wrong and not differences and level != "ledger":
            proven_to = wanted.source_end
        differences += together(wrong)
    return Expected(equal, differences, proven_to)


def by_ledger(recorded: RecordedLane, wanted: AuditRange, end: int) -> tuple[int, list[Difference]]:
    """Offset by offset: what is beyond the target's end, and what is between the copied records."""
    span = range(wanted.target_start, wanted.target_end)
    places = {there: here for there, (here, _) in expected(recorded).items() if there in span}
    lost = [Difference("missing", here, there) for there, here in places.items() if there >= end]
    foreign = [Difference("foreign", None, there) for there in span if there < end and there not in places]
    return len(places) - len(lost), [*lost, *foreign]


async def damage(flow: Mirror, chance: random.Random, topic: str) -> None:
    """Damage each target topic but one; some lose their ends, too."""
    logs: dict[int, LogFile] = {}
    for number, log in enumerate(stored(flow.target, copy_of(topic))):
        left = damaged(chance, log) if number else log
        if number and len(left) > 5 and chance.random() < 0.3:
            del left[-chance.randrange(1, 4) :]
        logs[number] = LogFile(b"".join(map(encode, left)), left[-1].last + 1)
    await lay_down(flow.target, copy_of(topic), logs)


async def test_batches_and_audits(
    spark: Any,
    lab_pair: LabPair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(plan, "RANGE_RECORDS", A_RANGE)

    async def audit(level: str) -> Any:
        code = await asyncio.to_thread(main, ["audit", conf, "--json", "--again", "--level", level])
        captured = capsys.readouterr()
        assert code in {0, 3}, captured.err
        (document,) = (line for line in captured.out.splitlines() if line.startswith('{"level":"'))
        return json.loads(document)

    async with mirror(lab_pair.source, lab_pair.target, **PATIENT) as flow:
        topic = flow.topic(partitions=PARTITIONS)
        conf = configuration(flow, tmp_path)
        made = [LogByChance(chance, RECORDS, variety=chance.choice((1 << 40, 6))) for _ in range(PARTITIONS)]
        await lay_down(flow.source, topic, {number: LogFile(log.data, log.end) for number, log in enumerate(made)})
        sources = stored(flow.source, topic)
        replicator = await flow.copying()
        lanes = [lane.lane for lane in await flow.caught_up(replicator)]
        assert await replicator.release(lanes, SECONDS) == dict.fromkeys(ids(await flow.lanes()), True)
        await damage(flow, chance, topic)
        targets = stored(flow.target, copy_of(topic))
        await asyncio.to_thread(check_batches, spark, chance, flow.source, topic, sources)
        await asyncio.to_thread(check_batches, spark, chance, flow.target, copy_of(topic), targets)
        await flow.store.read_to_end()
        recorded_lanes = [
            RecordedLane(lane := flow.lane(at), flow.state.progress[lane.key.id].ordinal) for at in range(PARTITIONS)
        ]
        found = {level: await audit(level) for level in ("ledger", "digest", "records")}

    for level, document in found.items():
        for number, lane in enumerate(recorded_lanes):
            (sums,) = [each for each in document["partitions"] if each["partition"] == number]
            reported = [each["difference"] for each in document["differences"] if each["partition"] == number]
            differences = [Difference(**each) for each in reported]
            wanted = reference(level, lane, sources[number], targets[number])
            assert (sums["equal"], differences) == wanted[:2], (level, number)
            if level != "ledger":
                assert sums["proven_to"] == wanted.proven_to, (level, number)
    whole = found["digest"]["partitions"][0]
    assert whole["equal"] == whole["records"] == recorded_lanes[0].ordinal > 0


def long_history(chance: random.Random) -> RandomMirror:
    """A lane with more runs on either side than the newest ones, which stay in the ledger."""
    made = RandomMirror(chance)
    kinds = [kind for kind in WHOLE if kind not in {"restart", "prune"}]
    while min(len(made.lane.source_runs), len(made.lane.target_runs)) < 3 * PIECE_RUNS:
        made.step(chance.choice((*kinds, "gap", "foreign", "foreign")))
    made.step("copy")
    made.append(LeaseReleased(1))
    return made


def test_compaction(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    made = long_history(random.Random(seed))
    ordinal, target_offset = made.ends[-1]
    end = len(made.source)
    mark = Progress(LANE, 1, made.grant, ordinal, target_offset, 0, end, end, 0, 0, protected=True, state="drained")
    ledger = MemoryLedger(
        entries=[encode_entry(each) for each in made.entries], rows=[StateRow(state_key(mark), encode_state(mark))]
    )
    monkeypatch.setattr(cluster_access, "KafkaLog", lambda *_, **__: MemoryLog(ledger))
    conf = tmp_path / "conf.toml"
    conf.write_text(
        '[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "127.0.0.1:1"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n[compact]\npath = "maps"\n'
    )

    def answers(lane: LaneState) -> list[Translation]:
        of = LaneMap(lane, CopiedPosition(ordinal, target_offset, end))
        return [of.to_target(at) for at in range(0, end, 97)] + [of.to_source(at) for at in range(0, target_offset, 97)]

    before = answers(made.lane)
    code = main(["compact", str(conf), "--least", "1", "--json"])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    (done,) = json.loads(captured.out.splitlines()[-1])["flows"]
    rows = [row.asDict() for row in spark.read.parquet(str(tmp_path / "maps/eu-us")).collect()]
    moved = 0
    for side in ("source", "target"):
        runs = plain(made.state)["lanes"][LANE][f"{side}_runs"]
        found = sorted([row["ordinal"], row["offset"]] for row in rows if row["side"] == side and row["ordinal"] >= 0)
        assert found == runs[: len(found)], side
        moved += len(found)
    assert done["runs"] == moved > 0
    spill_file._of_flows.clear()
    assert asyncio.run(reopened(load_file(str(conf))[0], answers)) == before


async def reopened(config: Config, answers: Callable[[LaneState], list[Translation]]) -> list[Translation]:
    """The answers of a reader that opens the ledger now."""
    store = ClusterAccess(config, SECONDS).ledger(config.flows[0])
    await store.open(read_only=True)
    try:
        return answers(store.state.lanes[LANE])
    finally:
        await store.close()
