"""`mirrord compact` with Spark, on a broker: the map is the same before and after, and read without Spark."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mirrord.cli.main import main
from mirrord.config.ledger import LedgerConfig
from mirrord.config.security import Secret
from mirrord.lab.cluster import Cluster
from mirrord.ledger.store import run_archive, spill_file
from mirrord.ledger.store.kafka_log import KafkaLog
from tests.fixtures.daemon import signing, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.long_ledger import long_ledger
from tests.fixtures.mirror import SECONDS, config_of

RUNS = 90_000


def log_of(cluster: Cluster, flow: str, folder: Path) -> KafkaLog:
    """The topics of the flow, which are signed."""
    keys = LedgerConfig(Secret(f"file:{folder / 'ledger-key'}"))
    return KafkaLog(flow, msgspec.structs.replace(config_of(cluster), ledger=keys), deadline_seconds=SECONDS)


async def fill(log: KafkaLog) -> None:
    """Write a ledger with a long map."""
    await log.open(create=True)
    made = long_ledger(RUNS, (await log.ends()).topic_id)
    await log.append([entry for entry in made.entries if entry])
    await log.save([row for row in made.rows if row])
    await log.close()


async def size_of_state(log: KafkaLog) -> int:
    """The size of the newest records of the state topic."""
    await log.open(create=False)
    newest = {row.key: len(row.value or b"") async for row in log.load_state()}
    await log.close()
    return sum(newest.values())


@pytest.mark.usefixtures("own_ledgers")
def test_a_map_is_moved_and_still_answers(
    spark: Any, lab_pair: LabPair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger is signed, so a compaction signs what it writes."""
    monkeypatch.setattr(run_archive, "READ_S", 60.0)
    conf, flow, cluster = tmp_path / "conf.toml", unique("long"), lab_pair.target
    conf.write_text(
        f'[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "{cluster.bootstrap}"\n'
        f'[[flows]]\nname = "{flow}"\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n[compact]\npath = "maps"\n'
        + signing(tmp_path)
    )
    asyncio.run(fill(log_of(cluster, flow, tmp_path)))

    def run(*words: str) -> Any:
        assert main([*words, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    def answers() -> list[Any]:
        asked = range(0, 8_000_000, 1_999_999)
        return [run("translate", str(conf), flow, "orders", "0", str(offset)) for offset in asked] + [
            run("translate", str(conf), flow, "eu.orders", "0", str(offset), "--reverse") for offset in asked
        ]

    before = answers()
    size = asyncio.run(size_of_state(log_of(cluster, flow, tmp_path)))
    (done,) = run("compact", str(conf))["flows"]
    assert (done["generation"], done["runs"], done["trimmed"]) == (1, 65_536, True)
    assert asyncio.run(size_of_state(log_of(cluster, flow, tmp_path))) < size / 3
    spill_file._of_flows.clear()
    assert answers() == before
    (again,) = run("compact", str(conf))["flows"]
    assert (again["generation"], again["trimmed"]) == (None, True)
    # Other programs can read it.
    rows = spark.read.parquet(str(tmp_path / f"maps/{flow}"))
    assert rows.filter("topic = 'orders' and side = 'source' and ordinal >= 0").count() == 65_536
