"""Audits while records, transactions and aborted ones flow: no false alarm at any level; filtered topics, too."""

import asyncio
import json
import random
import threading
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyarrow import parquet

from mirrord.cli.main import main
from mirrord.config.flow_features import RecordsConfig
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import SECONDS, Mirror, copy_of, create_topic, mirror
from tests.spark.test_audit import configuration

PARTITIONS = 2
AUDITS = 4
"""Number of audits at each reading level that found something new."""


class Traffic:
    """Writes until it is ended: plain records with tombstones among them, and transactions, every third aborted."""

    def __init__(self, flow: Mirror, topics: list[str], seed: int) -> None:
        self._servers = {"bootstrap.servers": flow.source.bootstrap, "linger.ms": 5}
        self._topics = topics
        self._chance = random.Random(seed)
        self._ending = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._write()
        except BaseException as fault:  # noqa: BLE001 - it is raised in the test
            self._fault = fault

    def _write(self) -> None:
        plain = Producer({**self._servers, "compression.type": "lz4"})
        within = Producer({**self._servers, "compression.type": "zstd", "transactional.id": self._topics[0]})
        within.init_transactions(SECONDS)
        number = 0
        while not self._ending.wait(0.02):
            within.begin_transaction()
            for producer in (plain, within):
                for _ in range(self._chance.randrange(1, 30)):
                    number += 1
                    value = None if number % 7 == 0 else self._chance.randbytes(100)
                    topic = self._chance.choice(self._topics)
                    producer.produce(topic, value, str(number), partition=self._chance.randrange(PARTITIONS))
            assert within.flush(SECONDS) == 0, "what is aborted has to be in the log"
            if self._chance.randrange(3):
                within.commit_transaction(SECONDS)
            else:
                within.abort_transaction(SECONDS)
            plain.poll(0)
        assert plain.flush(SECONDS) == 0

    def end(self) -> None:
        """End after everything is acknowledged."""
        self._ending.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault


@pytest.mark.usefixtures("spark")
async def test_no_false_alarm_while_traffic_flows(
    lab_pair: LabPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    async def audit(*options: str) -> Any:
        code = await asyncio.to_thread(main, ["audit", conf, "--json", *options])
        captured = capsys.readouterr()
        (document,) = (line for line in captured.out.splitlines() if line.startswith('{"level":"'))
        assert code == 0, document
        return json.loads(document)["partitions"]

    async with mirror(
        lab_pair.source, lab_pair.target, records=RecordsConfig(topics=("f-.*",), filter="tombstones")
    ) as flow:
        whole = flow.topic(partitions=PARTITIONS)
        filtered = f"f-{whole}"
        create_topic(flow.source, filtered, PARTITIONS)
        create_topic(flow.target, copy_of(filtered), PARTITIONS)
        flow.topics.append(filtered)
        conf = configuration(flow, tmp_path)
        replicator = await flow.copying()
        traffic = Traffic(flow, [whole, filtered], seed)
        try:
            proven: list[int] = []
            for level in cycle(("digest", "ledger", "records")):
                found = await audit("--level", level, "--out", str(tmp_path / level))
                if level == "ledger":
                    continue
                now = sum(each["proven_to"] or 0 for each in found)
                proven += [now] if now > max(proven, default=0) else []
                if len(proven) == AUDITS:
                    break
        finally:
            await asyncio.to_thread(traffic.end)
        await flow.caught_up(replicator)
        left_out = {reason for lane in flow.state.lanes.values() for reason in lane.verdicts.counts}
        assert left_out == {"control", "aborted", "filtered"}
        assert await replicator.release([lane.lane for lane in await flow.lanes()], SECONDS)
        last = await audit("--again", "--level", "digest", "--out", str(tmp_path / "last"))
    assert all(each["records"] == each["equal"] > 0 for each in last), last
    # No reader of the source is given markers or aborted records.
    assert {kind for each in last for kind in each["explained"]} == {"filtered"}
    # What is re-encoded record by record is compared so.
    rows = parquet.read_table(tmp_path / "last").to_pylist()
    assert {row["by"] for row in rows if row["topic"] == filtered} == {"records"}
    assert {row["by"] for row in rows if row["topic"] == whole} == {"batches"}
