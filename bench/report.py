"""Keeps results: one JSON file per kind in bench/results, and docs/measurements.md made from all of them."""

import platform
import subprocess
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
import msgspec
import psutil

from bench import front, plots, tables
from mirrord.lab.jars import KAFKA_VERSION

_ROOT = Path(__file__).parents[1]
RESULTS = _ROOT / "bench" / "results"
PAGE = _ROOT / "docs" / "measurements.md"
PROFILE = _ROOT / "docs" / "profile.md"
FIGURES = ("<!-- figures: bench/report.py writes what stands here -->", "<!-- end of figures -->")

Result = dict[str, Any]

_KEPT = 5

_HEAD = """# Measurements

Made by `make campaign` and `make bench-whole`: bench/report.py writes this page from bench/results, again with
`python -m bench.report`. How each figure is measured stands in [bench/README.md](../bench/README.md). Absolute figures
depend on the machine and on what else it does: compare ratios within one run.
"""

_WORDS = {
    "catch-up": "Beside MirrorMaker 2",
    "far": "Over a long way",
    "mm2": "MirrorMaker 2 when a node goes",
    "throughput": "Speed",
    "memory": "Memory",
    "latency": "Latency",
    "recovery": "Start and recovery",
    "idle": "Idle",
    "topics": "New topics beside a busy one",
    "moves": "Moving a busy partition",
    "kills": "Killing a busy replicator",
    "discovery": "A thousand topics",
    "groups": "A thousand groups",
    "growth": "Growth",
    "map": "The offset map",
    "compact": "The offset map in files",
    "audit": "An audit",
    "fairness": "Fairness",
    "soak": "Half an hour",
}
"""The headings of the questions of `bench.run`."""


def keep(kind: str, result: Result) -> None:
    """Appends a result, with when, where and of which versions, and writes the pages anew.

    Of runs that a later one replaces only the last few stay in the file.
    """
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"{kind}.json"
    results = [*_read(file), _circumstances() | result]
    if kind in tables.TABLES:
        results = results[-_KEPT:]
    file.write_bytes(msgspec.json.format(msgspec.json.encode(results)) + b"\n")
    write_page()


def write_page() -> None:
    """docs/measurements.md, and the table in README.md."""
    kept = {kind: results for kind in _SECTIONS if (results := _read(RESULTS / f"{kind}.json"))}
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text("\n".join([_HEAD, *(_SECTIONS[kind](results) for kind, results in kept.items())]))
    front.write(kept)
    if "throughput" in kept:
        write_profile(kept["throughput"][-1])
    for name, drawn in plots.growth(kept["growth"][-1]["results"]).items() if "growth" in kept else ():
        (PAGE.parent / name).write_text(drawn)


def write_profile(last: Result) -> None:
    """The figures of docs/profile.md; all else on that page is written by hand."""
    begin, end = FIGURES
    head, _, rest = PROFILE.read_text().partition(begin)
    told = f"{last['at']}, commit {last['commit']}.\n\n{tables.profile(last['results']).for_page()}"
    PROFILE.write_text(f"{head}{begin}\n\n{told}\n{_where(last)}\n{end}{rest.partition(end)[2]}")


def _read(file: Path) -> list[Result]:
    return msgspec.json.decode(file.read_bytes(), type=list[Result]) if file.exists() else []


def _circumstances() -> Result:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "commit": commit.stdout.strip(),
        "machine": f"{psutil.cpu_count()} cores ({_processor()}), {psutil.virtual_memory().total >> 30} GB",
        "versions": {
            "kafka": KAFKA_VERSION,
            "python": platform.python_version(),
            "ray": version("ray"),
            "uvloop": version("uvloop"),
            "librdkafka": confluent_kafka.libversion()[0],
        },
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _campaign(results: list[Result]) -> str:
    rows = [
        [
            each["at"],
            each["commit"],
            f"{each['variant']}, {each['engine']}",
            str(each["seed"]),
            f"{each['records']:,}",
            _counts(each["kills"]),
            _counts(each["while_copying"]),
            _counts(each["difference"]) or "none",
        ]
        for each in results
    ]
    head = ["when", "commit", "variant, engine", "seed", "records", "kill -9", "of them while copying", "differences"]
    return (
        "## Exactly once under kill -9\n\n"
        "Everything is killed at random moments while records flow; then another client (librdkafka) compares both\n"
        "clusters record by record, the target as read_uncommitted.\n\n"
        f"{_table(head, rows)}\n{_where(results[-1])}"
    )


def _simulator(results: list[Result]) -> str:
    rows = [
        [
            each["at"],
            each["commit"],
            f"{each.get('seed', each.get('first_seed'))}",
            f"{each.get('stories', each.get('seeds')):,}",
            str(each["steps"]),
            f"{each['seconds']:,.0f}",
            str(each["violations"]),
        ]
        for each in results
    ]
    head = ["when", "commit", "seed", "stories", "steps with faults, each", "seconds", "violations"]
    return f"## Simulator\n\n{_table(head, rows)}\n{_where(results[-1])}"


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counts.items() if count)


def _where(result: Result) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in result["versions"].items())
    return f"On {result['machine']}; {versions}.\n"


def _question(question: str, results: list[Result]) -> str:
    """The last run alone; those before it stay in the file."""
    last = results[-1]
    parts = "\n".join(table.for_page() for table in tables.TABLES[question](last["results"]))
    if question == "growth":
        kinds = dict.fromkeys(each["what"] for each in last["results"])
        parts += "".join(f"\n![over {kind}]({plots.file_name(kind)})\n" for kind in kinds)
    share = "" if last["share"] == 1 else f" A short run: {last['share']:g} of what a whole one counts."
    return (
        f"## {_WORDS[question]}\n\n`python -m bench.run --question {question}`, {last['at']}, commit {last['commit']}, "
        f"seed {last['seed']}, load average of the machine before {last['load']:.1f}.{share}\n\n{parts}\n{_where(last)}"
    )


_SECTIONS: dict[str, Callable[[list[Result]], str]] = {
    "campaign": _campaign,
    "simulator": _simulator,
    **{question: partial(_question, question) for question in tables.TABLES},
}


if __name__ == "__main__":
    write_page()
