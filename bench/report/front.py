"""The comparison table in README.md: one number per cell, filled from whole runs in bench/results; all else stays."""

import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from bench.questions import mm2_nodes

Results = Mapping[str, list[dict[str, Any]]]
"""The content of bench/results, by kind; a kind without results is missing."""

Figure = Callable[[Results], str | None]
"""Computes one cell. None: the question has no result from a whole run."""

PAGE = Path(__file__).parents[2] / "README.md"

_LATENCY_RECORDS_PER_S = 1_000
_LARGE_BATCHES = "lz4, 64 KiB, 4 partitions"
_SINGLE_RECORDS = "lz4, one record, 4 partitions"
_MM2 = frozenset({"MM2", "MM2 tuned"})
"""MirrorMaker 2 runs twice, with default and with tuned settings. The table shows the better figure."""


class Row(msgspec.Struct, frozen=True):
    """The two measured cells of one row."""

    mirrord: Figure
    mm2: Figure | None = None
    """None: no command here measures it, and the cell stays as it is."""


def write(results: Results) -> None:
    """Fill in the measured values. A cell whose question has no result yet keeps its content."""
    lines = PAGE.read_text().splitlines()
    PAGE.write_text("\n".join(_line(line, results) for line in lines) + "\n")


def _line(line: str, results: Results) -> str:
    cells = [cell.strip() for cell in line.split("|")]
    row = ROWS.get(cells[1]) if len(cells) == 6 else None
    if row is None:
        return line
    for at, figure in ((2, row.mirrord), (3, row.mm2)):
        found = figure(results) if figure else None
        if found is not None:
            cells[at] = found
    return " | ".join(cells).strip()


def _last(results: Results, question: str) -> list[dict[str, Any]]:
    whole = [each["results"] for each in results.get(question, ()) if each["share"] == 1]
    return whole[-1] if whole else []


def _doubled(results: Results) -> str | None:
    # Campaigns with moving consumers compare what was read, and have no such count.
    campaigns = [each["difference"] for each in results.get("campaign", ()) if each["difference"]]
    return f"{sum(each['doubled'] for each in campaigns):,}" if campaigns else None


def _crash(results: Results) -> str | None:
    seconds = [each_ms / 1000 for each in _last(results, "kills") for each_ms in each["killed_ms"]]
    return f"{statistics.median(seconds):.1f} s" if seconds else None


def _mm2_crash(results: Results) -> str | None:
    found = [each for each in _last(results, "mm2") if each["what"] == mm2_nodes.KILLED]
    return f"{statistics.median(found[0]['concerned_s']):.1f} s" if found else None


def _cpu(backlog: str, copiers: frozenset[str]) -> Figure:
    """Return CPU-seconds per stored GB of all processes, including those in addition to the replicator."""

    def figure(results: Results) -> str | None:
        found = [
            (each["cpu_s"] + each["beside_cpu_s"]) / each["stored_bytes"] * 1e9
            for each in _copied(results, backlog, copiers)
        ]
        return f"{min(found):.1f}" if found else None

    return figure


def _memory(copiers: frozenset[str]) -> Figure:
    def figure(results: Results) -> str | None:
        found = [each["peak_bytes"] / 1e6 for each in _copied(results, _LARGE_BATCHES, copiers)]
        return f"{min(found):,.0f} MB" if found else None

    return figure


def _copied(results: Results, backlog: str, copiers: frozenset[str]) -> list[dict[str, Any]]:
    named = [each for each in _last(results, "catch-up") if each["name"] == backlog]
    return [each for found in named for each in found["copied"] if each["copier"] in copiers]


def _latency(copiers: frozenset[str]) -> Figure:
    def figure(results: Results) -> str | None:
        found = [
            each["p99_ms"]
            for each in _last(results, "latency")
            if each["records_per_s"] == _LATENCY_RECORDS_PER_S
            and not each.get("transaction_records", 0)
            and each["engine"] in copiers
        ]
        return f"{min(found):.1f} ms" if found else None

    return figure


_OURS = frozenset({"mirrord"})

ROWS: dict[str, Row] = {
    "records duplicated by `kill -9`, per million copied": Row(_doubled),
    "`kill -9` of one worker: its partitions resume after": Row(_crash, _mm2_crash),
    "CPU-seconds per GB, 64 KiB batches": Row(_cpu(_LARGE_BATCHES, _OURS), _cpu(_LARGE_BATCHES, _MM2)),
    "CPU-seconds per GB, one record per batch": Row(_cpu(_SINGLE_RECORDS, _OURS), _cpu(_SINGLE_RECORDS, _MM2)),
    "peak memory of the copying process": Row(_memory(_OURS), _memory(_MM2)),
    "added latency, p99 at 1,000 records/s": Row(_latency(frozenset({"ray"})), _latency(_MM2)),
}
"""The rows of the table, by their first cell."""
