"""`mirrord compact` with Spark, without brokers: the map is the same before and after, and read without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest

from mirrord.cli.main import main
from mirrord.ledger.store import cluster_access, run_archive, spill_file
from mirrord.ledger.store.memory_log import MemoryLog
from tests.fixtures.long_ledger import long_ledger

RUNS = 90_000


def test_a_map_is_moved_and_still_answers(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = long_ledger(RUNS)
    monkeypatch.setattr(cluster_access, "KafkaLog", lambda *_, **__: MemoryLog(ledger))
    monkeypatch.setattr(run_archive, "READ_S", 60.0)
    conf = tmp_path / "conf.toml"
    conf.write_text(
        '[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "127.0.0.1:1"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n[compact]\npath = "maps"\n'
    )

    def run(*words: str) -> Any:
        assert main([*words, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out.splitlines()[-1])

    def answers() -> list[Any]:
        asked = range(0, 8_000_000, 1_999_999)
        return [run("translate", str(conf), "eu-us", "orders", "0", str(offset)) for offset in asked] + [
            run("translate", str(conf), "eu-us", "eu.orders", "0", str(offset), "--reverse") for offset in asked
        ]

    before = answers()
    ledger.compact()
    size = sum(len(row.value or b"") for row in ledger.rows if row)
    (done,) = run("compact", str(conf))["flows"]
    assert (done["generation"], done["runs"], done["trimmed"]) == (1, 65_536, True)
    ledger.compact()
    assert sum(len(row.value or b"") for row in ledger.rows if row) < size / 3
    spill_file._of_flows.clear()
    assert answers() == before
    (again,) = run("compact", str(conf))["flows"]
    assert (again["generation"], again["trimmed"]) == (None, True)
    # Other programs can read it.
    rows = spark.read.parquet(str(tmp_path / "maps/eu-us"))
    assert rows.filter("topic = 'orders' and side = 'source' and ordinal >= 0").count() == 65_536
