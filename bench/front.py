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
    cells = _last(results, "throughput")
    told = [f"{1e9 / each['bytes_per_cpu_s']:.1f} in {each['name']}" for each in cells if each["batch_bytes"] > 1_000]
    return ", ".join(told) or None


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


def _mm2_cpu(results: Results) -> str | None:
    return _mm2_of_backlogs(results, lambda found: f"{found['cpu_s'] / found['stored_bytes'] * 1e9:.0f}", "MM2 tuned")


def _mm2_memory(results: Results) -> str | None:
    return _mm2_of_backlogs(results, lambda found: f"{found['peak_bytes'] / 1e9:.1f} GB")


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


def _mm2_of_backlogs(results: Results, tell: Callable[[dict[str, Any]], str], *copiers: str) -> str | None:
    told = [
        f"{tell(each)}{_tuned(each['copier'])}, {backlog['name']}"
        for backlog in _last(results, "catch-up")
        if "64 KiB, 4 partitions" in backlog["name"]
        for each in _mm2(backlog["copied"], *(copiers or ("MM2", "MM2 tuned")))
    ]
    return "; ".join(told) or None


def _mm2(copied: list[dict[str, Any]], *copiers: str) -> list[dict[str, Any]]:
    return [each for each in copied if each["copier"] in copiers]


def _tuned(copier: str) -> str:
    return " tuned" if copier == "MM2 tuned" else ""


def _memory(results: Results) -> str | None:
    peaks = _last(results, "memory")
    if not peaks:
        return None
    limit = max(each["in_flight_bytes"] for each in peaks)
    found = sorted(each["peak_bytes"] / 1e6 for each in peaks if each["in_flight_bytes"] == limit)
    return f"{found[0]:.0f} to {found[-1]:.0f} MB a replicator"


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
    "CPU-seconds per stored GB, tuned for throughput": _cpu,
    "added latency, p99 at 1,000 records/s": _latency,
    "memory during a catch-up": _memory,
    "new topic: first record after": _wait(recovery.NEW_TOPIC),
    "a busy topic stands at most, while 100 topics are created": _stands,
    "1,000 idle partitions": _idle,
    "start to the first record": _wait(recovery.START),
}
"""mirrord's, by the first cell of the row."""

BESIDE: dict[str, Callable[[Results], str | None]] = {
    "CPU-seconds per stored GB, tuned for throughput": _mm2_cpu,
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
