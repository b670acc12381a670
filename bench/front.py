"""The table in README.md: its columns come from bench/results, from whole runs only; all else stays."""

import math
import statistics
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

from bench import mm2_nodes, recovery, topics

Results = Mapping[str, list[dict[str, Any]]]
"""By kind, what bench/results holds; a kind without results is missing."""

_LATENCY_RECORDS_PER_S = 1_000
_IDLE_PARTITIONS = 1_000

PAGE = Path(__file__).parents[1] / "README.md"


def write(results: Results) -> None:
    """Fill in what was measured. A row whose question has no result yet is left as it is."""
    lines = PAGE.read_text().splitlines()
    PAGE.write_text("\n".join(_line(line, results) for line in lines) + "\n")


def _line(line: str, results: Results) -> str:
    cells = [cell.strip() for cell in line.split("|")]
    if len(cells) < 5 or cells[1] not in ROWS:
        return line
    for at, tell in ((2, ROWS[cells[1]]), (4, BESIDE.get(cells[1]))):
        told = tell(results) if tell else None
        if told is not None:
            cells[at] = told
    return " | ".join(cells).strip()


def _last(results: Results, question: str) -> list[dict[str, Any]]:
    whole = [each["results"] for each in results.get(question, ()) if each["share"] == 1]
    return whole[-1] if whole else []


def _doubled(results: Results) -> str | None:
    # Those of consumers that move compare what was read.
    campaigns = [each for each in results.get("campaign", ()) if each["difference"]]
    if not campaigns:
        return None
    doubled = sum(each["difference"]["doubled"] for each in campaigns)
    records = sum(each["records"] for each in campaigns)
    kills = sum(sum(each["kills"].values()) for each in campaigns)
    return f"{doubled:,} of {records / 1e6:,.1f}M, {kills:,} kills"


def _wait(what: str) -> Callable[[Results], str | None]:
    def told(results: Results) -> str | None:
        waits = [each for each in _last(results, "recovery") if each["what"] == what]
        return ", ".join(f"{_seconds(each['seconds'])} {_engine(each)}" for each in _ray_first(waits)) or None

    return told


def _seconds(seconds: list[float]) -> str:
    middle, least, most = statistics.median(seconds), min(seconds), max(seconds)
    return f"{middle:.1f} s ({least:.1f} to {most:.1f})"


def _cpu(results: Results) -> str | None:
    found = _copied(results, "mirrord")
    if not found:
        return None
    beside = [each["beside_cpu_s"] / each["stored_bytes"] * 1e9 for each in found.values()]
    return f"{_cpu_by_codec(found)}; {min(beside):.1f} to {max(beside):.1f} more beside it"


def _mm2_cpu(results: Results) -> str | None:
    return ", ".join(f"{_cpu_by_codec(found)} tuned" for found in [_copied(results, "MM2 tuned")] if found) or None


def _cpu_by_codec(found: Mapping[str, dict[str, Any]]) -> str:
    return ", ".join(f"{each['cpu_s'] / each['stored_bytes'] * 1e9:.1f} {codec}" for codec, each in found.items())


def _copied(results: Results, copier: str) -> dict[str, dict[str, Any]]:
    """Of the backlogs that differ in their codec alone, by codec."""
    return {
        backlog["codec"]: each
        for backlog in _last(results, "catch-up")
        if "64 KiB, 4 partitions" in backlog["name"]
        for each in backlog["copied"]
        if each["copier"] == copier
    }


def _latency(results: Results) -> str | None:
    told = [f"{each['p99_ms']:.1f} ms {_engine(each)}" for each in _latencies(results, {"ray", "process"})]
    return ", ".join(told) or None


def _mm2_latency(results: Results) -> str | None:
    told = [f"{each['p99_ms']:.1f} ms{_tuned(each['engine'])}" for each in _latencies(results, {"MM2", "MM2 tuned"})]
    return ", ".join(told) or None


def _latencies(results: Results, copiers: Container[str]) -> list[dict[str, Any]]:
    latencies = [each for each in _last(results, "latency") if not each.get("transaction_records", 0)]
    found = [each for each in latencies if each["records_per_s"] == _LATENCY_RECORDS_PER_S]
    return _ray_first([each for each in found if each["engine"] in copiers])


def _memory(results: Results) -> str | None:
    return _peaks(results, "mirrord")


def _mm2_memory(results: Results) -> str | None:
    told = [f"{peaks}{_tuned(name)}" for name in ("MM2", "MM2 tuned") if (peaks := _peaks(results, name))]
    return ", ".join(told) or None


def _peaks(results: Results, copier: str) -> str | None:
    peaks = sorted(each["peak_bytes"] / 1e6 for each in _copied(results, copier).values())
    return f"{peaks[0]:,.0f} to {peaks[-1]:,.0f} MB" if peaks else None


def _mm2_start(results: Results) -> str | None:
    waits = [each["first_s"] for backlog in _last(results, "catch-up") for each in _mm2(backlog["copied"], "MM2")]
    return _seconds(waits) if waits else None


def _mm2_waits(what: str) -> Callable[[Results], str | None]:
    def told(results: Results) -> str | None:
        for each in _last(results, "mm2"):
            if each["what"] == what:
                others = f"; the others for {max(each['others_s']):.1f} s" if each["others_s"] else ""
                return f"{_seconds(each['concerned_s'])}{others}"
        return None

    return told


def _mm2(copied: list[dict[str, Any]], *copiers: str) -> list[dict[str, Any]]:
    return [each for each in copied if each["copier"] in copiers]


def _tuned(copier: str) -> str:
    return " tuned" if copier == "MM2 tuned" else ""


def _idle(results: Results) -> str | None:
    told = [
        f"{each['core_share']:.1%} of a core, {each['rss_bytes'] / 1e6:.0f} MB {_engine(each)}"
        for each in _idles(results, {"ray", "process"})
    ]
    return ", ".join(told) or None


def _mm2_idle(results: Results) -> str | None:
    found = _idles(results, {"MM2"})
    return ", ".join(f"{each['core_share']:.1%} of a core, {each['rss_bytes'] / 1e6:.0f} MB" for each in found) or None


def _idles(results: Results, copiers: Container[str]) -> list[dict[str, Any]]:
    found = [each for each in _last(results, "idle") if each["partitions"] == _IDLE_PARTITIONS]
    return _ray_first([each for each in found if each["engine"] in copiers])


def _stands(results: Results) -> str | None:
    told: list[str] = []
    for each in _ray_first(_last(results, "topics")):
        ms = {gap["what"]: statistics.median(gap["target_ms"]) for gap in each["gaps"]}
        told.append(f"{ms[topics.CREATED]:.0f} ms {_engine(each)}, {ms[topics.QUIET]:.0f} when nothing happens")
    return "; ".join(told) or None


def _moved(results: Results) -> str | None:
    told: list[str] = []
    for each in _ray_first(_last(results, "moves")):
        gaps_ms = each["moved_ms"]
        p99_ms = gaps_ms[max(0, math.ceil(len(gaps_ms) * 0.99) - 1)]
        told.append(f"{statistics.median(gaps_ms):.0f} ms (p99 {p99_ms:.0f}) {_engine(each)}")
    return ", ".join(told) or None


def _crashed(results: Results) -> str | None:
    told = [
        f"{_seconds([each_ms / 1000 for each_ms in each['killed_ms']])} {_engine(each)}; the others are silent for "
        f"{statistics.median(each['others_ms']):.0f} ms at most, {statistics.median(each['quiet_ms']):.0f} without it"
        for each in _last(results, "kills")
    ]
    return ", ".join(told) or None


def _ray_first(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda each: each["engine"] != "ray")


def _engine(found: dict[str, Any]) -> str:
    return "with Ray" if found["engine"] == "ray" else "without"


ROWS: dict[str, Callable[[Results], str | None]] = {
    "records doubled by kill -9": _doubled,
    "kill -9 and restart: silence until the first new record": _wait(recovery.DAEMON_FIRST),
    "a host crashes: its partitions move again after": _crashed,
    "a host leaves as planned: its partitions stand for": _moved,
    "CPU-seconds per stored GB of a catch-up, 64 KiB batches": _cpu,
    "added latency, p99 at 1,000 records/s": _latency,
    "memory during a catch-up": _memory,
    "new topic: first record after": _wait(recovery.NEW_TOPIC),
    "a busy topic stands at most, while 100 topics are created": _stands,
    "1,000 idle partitions": _idle,
    "start to the first record": _wait(recovery.START),
}
"""mirrord's, by the first cell of the row."""

BESIDE: dict[str, Callable[[Results], str | None]] = {
    "CPU-seconds per stored GB of a catch-up, 64 KiB batches": _mm2_cpu,
    "added latency, p99 at 1,000 records/s": _mm2_latency,
    "memory during a catch-up": _mm2_memory,
    "1,000 idle partitions": _mm2_idle,
    "kill -9 and restart: silence until the first new record": _mm2_waits(mm2_nodes.RESTARTED),
    "a host crashes: its partitions move again after": _mm2_waits(mm2_nodes.KILLED),
    "a host leaves as planned: its partitions stand for": _mm2_waits(mm2_nodes.LEFT),
    "new topic: first record after": _mm2_waits(mm2_nodes.NEW),
    "start to the first record": _mm2_start,
}
"""MirrorMaker 2's, of the rows that are measured here."""
