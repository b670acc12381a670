"""The pages that `make bench` writes, and the profiles of CPU time."""

import re
import time
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench.harness.sampler import PARTS, PATCH, Sampler
from bench.questions import groups, mm2_nodes
from bench.questions.growth import Grown
from bench.questions.idle import Idle
from bench.report import front, pages, plots, tables
from mirrord.kafka.protocol.record_batch import HEADER, patch

TABLE = """| | mirrord | MM2 | measured by |
|---|---|---|---|
| `kill -9` of one worker: its partitions resume after | none yet | none yet | `bench.run --question kills` |
| records duplicated by `kill -9`, per million copied | none yet | 450,000 | `make campaign` |
| retention overtakes the mirror | halts | 3,000 records lost | `make test` |
"""
DEADLINE_S = 30.0


def crash(*killed_ms: float) -> dict[str, Any]:
    return {"engine": "ray", "killed_ms": list(killed_ms)}


def test_the_front_page_gets_what_was_measured_and_keeps_the_rest(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "README.md"
    page.write_text(TABLE)
    monkeypatch.setattr(front, "PAGE", page)
    whole = {"share": 1.0, "results": [crash(5_000.0, 240.0, 260.0)]}
    short = {"share": 0.1, "results": [crash(1.0)]}
    node = {"share": 1.0, "results": [{"what": mm2_nodes.KILLED, "concerned_s": [310.44, 309.0, 311.0]}]}
    campaigns = [{"difference": {"doubled": 0}}, {"difference": {}}]
    front.write({"kills": [whole, short], "mm2": [node], "campaign": campaigns})
    before, after = TABLE.splitlines(), page.read_text().splitlines()
    assert after[2:4] == [
        "| `kill -9` of one worker: its partitions resume after | 0.3 s | 310.4 s | `bench.run --question kills` |",
        "| records duplicated by `kill -9`, per million copied | 0 | 450,000 | `make campaign` |",
    ]
    assert [after[at] for at in (0, 1, 4)] == [before[at] for at in (0, 1, 4)]
    written = page.read_text()
    front.write({})
    assert page.read_text() == written


def test_a_catch_up_shows_the_better_figure_of_mm2_and_counts_all_processes() -> None:
    def copied(copier: str, cpu_s: float, beside_cpu_s: float, peak_bytes: float) -> dict[str, Any]:
        return {
            "copier": copier, "stored_bytes": 2e9, "cpu_s": cpu_s, "beside_cpu_s": beside_cpu_s,
            "peak_bytes": peak_bytes,
        }  # fmt: skip

    backlogs = [
        {"name": name, "copied": [
            copied("mirrord", cpu_s, 1.0, 2e8), copied("MM2", 50.0, 0.0, 7e8), copied("MM2 tuned", 40.0, 0.0, 1.5e9)
        ]}
        for name, cpu_s in (("lz4, 64 KiB, 4 partitions", 2.0), ("lz4, one record, 4 partitions", 99.0))
    ]  # fmt: skip
    results = {"catch-up": [{"share": 1.0, "results": backlogs}]}
    large, single, memory = (
        front.ROWS[name]
        for name in (
            "CPU-seconds per GB, 64 KiB batches",
            "CPU-seconds per GB, one record per batch",
            "peak memory of the copying process",
        )
    )
    found = [(row.mirrord(results), row.mm2 and row.mm2(results)) for row in (large, single, memory)]
    assert found == [("1.5", "20.0"), ("50.0", "20.0"), ("200 MB", "700 MB")]


def test_the_latency_is_that_of_the_default_engine_and_of_the_faster_mm2() -> None:
    measured = [
        {"engine": engine, "records_per_s": rate, "transaction_records": 0, "p99_ms": p99_ms}
        for engine, rate, p99_ms in (
            ("process", 1_000, 5.8), ("ray", 1_000, 8.0), ("MM2", 1_000, 7.5), ("MM2 tuned", 1_000, 51.5),
            ("ray", 10, 1.0),
        )
    ]  # fmt: skip
    results = {"latency": [{"share": 1.0, "results": measured}]}
    row = front.ROWS["added latency, p99 at 1,000 records/s"]
    assert (row.mirrord(results), row.mm2 and row.mm2(results)) == ("8.0 ms", "7.5 ms")


def test_the_front_page_has_all_rows_and_one_number_in_each_cell() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in front.PAGE.read_text().splitlines()
        if line.count("|") == 5 and not line.startswith(("| |", "|---"))
    ]
    assert [cells[0] for cells in rows] == list(front.ROWS)
    for _, mirrord, mm2, _ in rows:
        assert re.fullmatch(r"[\d,.]+( \w+)?", mirrord)
        assert re.fullmatch(r"[\d,.]+( \w+)?", mm2)


def test_a_table_is_the_same_for_people_and_for_the_page() -> None:
    idle = Idle(engine="ray", partitions=1_000, seconds=60.0, core_share=0.021, rss_bytes=150_000_000)
    (table,) = tables.TABLES["idle"]([{name: getattr(idle, name) for name in idle.__struct_fields__}])
    assert table.rows == [["ray", "1,000", "2.1%", "-", "150 MB", "60"]]
    assert "| ray | 1,000 | 2.1% | - | 150 MB | 60 |" in table.for_page()
    assert len(table.for_terminal().columns) == len(table.head)


def test_looks_find_the_function_that_takes_the_time() -> None:
    buffer = bytearray(4096)
    header = (0, 4096 - 12, 0, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
    HEADER.pack_into(buffer, 0, *header)
    sampler = Sampler()
    sampler.start()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while sampler.looks < 20 and time.monotonic() < deadline:
            for sequence in range(1_000):
                patch(buffer, 0, header, 7, 0, sequence)
    finally:
        profile = sampler.stop()
    assert set(profile.ticks) <= set(PARTS)
    assert max(profile.ticks, key=lambda part: profile.ticks[part]) == PATCH
    assert profile.step == 0


def test_a_commit_counts_from_the_source_until_the_target_has_it_or_a_later_one() -> None:
    seen = groups.Seen("eu.orders")
    for offset, at_s in ((10, 1.0), (20, 2.0), (30, 3.0)):
        seen.committed("billing", (0,), offset, at_s)
    key = bytes.fromhex("0001 0007") + b"billing" + bytes.fromhex("0009") + b"eu.orders" + bytes(4)
    assert len(seen.delays_s) == 0
    value = bytes.fromhex("0003") + (20).to_bytes(8) + b"\xff" * 4 + bytes.fromhex("0000") + bytes(8)
    seen.arrived(key, value, 2.5)
    assert (seen.delays_s, seen.pending) == ([1.5, 0.5], 1)
    assert seen.reached == {("billing", 0): 20}


def test_the_table_of_groups() -> None:
    found = groups.Following(
        engine="ray",
        groups=1_000,
        partitions=10,
        seconds=60.0,
        commits=120_000,
        p50_ms=120.4,
        p99_ms=180.0,
        most_ms=300.0,
        core_share=0.12,
        rest_share=0.011,
    )
    (table,) = tables.TABLES["groups"](msgspec.to_builtins([found]))
    assert table.rows == [["ray", "120,000", "120", "180", "300", "12.0%", "1.1%", "60"]]


def grown(what: str, size: int, start_s: float) -> dict[str, Any]:
    found = Grown(
        what=what,
        size=size,
        first_s=3.0,
        start_s=start_s,
        start_cpu_s=2 * start_s,
        cpu_s_per_gb=1.5,
        bytes_per_s=50e6,
        peak_bytes=120_000_000,
    )
    return msgspec.to_builtins(found)


def test_growth_is_shown_next_to_the_first_of_its_kind_and_drawn() -> None:
    results = [grown("partitions", 4, 2.0), grown("partitions", 2_048, 6.0), grown("groups", 0, 4.0)]
    (table,) = tables.TABLES["growth"](results)
    same = ["1.50", "1.0", "120", "1.0", "50"]
    assert table.rows == [
        ["4 partitions", "3.0", "1.0", "2.0", "1.0", "4.00", "1.0", *same],
        ["2,048 partitions", "3.0", "1.0", "6.0", "3.0", "12.00", "3.0", *same],
        ["0 groups", "3.0", "1.0", "4.0", "1.0", "8.00", "1.0", *same],
    ]
    drawn = plots.growth(results)
    assert list(drawn) == ["growth-partitions.svg", "growth-groups.svg"]
    for svg in drawn.values():
        texts = [each.text or "" for each in ET.fromstring(svg).iter() if each.tag.endswith("text")]
        assert sum("over" in text for text in texts) == 3


def test_transactions_are_shown_next_to_the_same_batches_without_them() -> None:
    def copied(name: str, records: int, *, transactional: bool) -> dict[str, Any]:
        each = {"stored_bytes": 1e9, "cpu_s": 2.0, "beside_cpu_s": 0.0, "seconds": 1.0, "peak_bytes": 1, "first_s": 1.0}
        copiers = [each | {"copier": copier, "records": records} for copier in ("mirrord", "MM2", "MM2 tuned")]
        result = {"name": name, "codec": "lz4", "stored_bytes": 1e9, "records": records, "records_per_batch": 25}
        return result | {"transactional": transactional, "relay_bytes_per_cpu_s": 1e9, "copied": copiers}

    transactional_result = copied("lz4, transactions of 100 records", 600, transactional=True)
    plain = copied("lz4, the same without transactions", 1_000, transactional=False)
    (_, _, table) = tables.TABLES["catch-up"]([transactional_result, plain])
    assert table.rows[0] == ["mirrord", "600", "1,000", "60%", "50 %", "60%"]
    assert len(tables.TABLES["catch-up"]([transactional_result])) == 2


def test_the_page_of_the_profile_keeps_what_was_written_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, kept = pages.PROFILE.read_text(), tmp_path / "profile.md"
    kept.write_text(page)
    monkeypatch.setattr(pages, "PROFILE", kept)
    cell = {"name": "64 KiB batches", "parts_us": {PATCH: 2.0}, "profiled_us": 8.0, "step_share": 0.2, "ticks": 1_000}
    last = {"at": "2026-11-22", "commit": "0123456", "machine": "2 cores", "versions": {"kafka": "4.3.0"}}
    for _ in range(2):
        pages.write_profile(last | {"results": [cell]})
    written = kept.read_text()
    assert "| patch and checksum | 2.00 (25%) |" in written
    begin, end = pages.FIGURES
    assert written.partition(begin)[0] == page.partition(begin)[0]
    assert written.partition(end)[2] == page.partition(end)[2]


def test_runs_of_the_simulator_on_the_same_code_are_added_up() -> None:
    run = {
        "at": "2026-11-28 00:00 UTC", "commit": "c", "code": "x", "seed": 1, "stories": 1_000, "steps": 250,
        "seconds": 30.0, "violations": 0, "machine": "m", "versions": {"kafka": "4"},
    }  # fmt: skip
    page = pages._simulator([run | {"code": "w", "violations": 1}, run, run | {"seed": 2, "violations": 2}])
    assert "| the last code, in total |  |  | 2,000 |  | 60 | 2 |  |" in page
    assert "in total" not in pages._simulator([run])
