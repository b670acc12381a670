"""The section of docs/measurements.md about the campaign's variant `storm`."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bench.faults.storm.kinds import KINDS, SEVERAL_AT_ONCE, TWO_AT_ONCE

Result = dict[str, Any]
_OVERLAPPING = (TWO_AT_ONCE, SEVERAL_AT_ONCE)

_WORDS = """## Faults of all kinds

`python -m bench.campaign --variant storm` plays chapters: clusters of two and three brokers, steady load, and one
random fault after the other, or with `--at-once` several at any time. {share:.0%} of the faults begin while another one
lasts. At the end of a chapter, a different client (librdkafka) compares both clusters with each other, with what the
source has acknowledged, and with what the ledger names. `unexplained` counts records that are missing, doubled,
altered, out of order or foreign, and records that the ledger names although the target holds them.
[bench/README.md](../bench/README.md#faults-of-all-kinds) describes the load, the faults, and what they do not model.
"""


def section(results: Sequence[Result]) -> str:
    """Return the section: the chapters, sums by code, and recovery times of the newest code."""
    newest = [each for each in results if each["code"] == results[-1]["code"]]
    parts = [_WORDS.format(share=_overlapping(newest)), _sums(results), _chapters(newest), _recoveries(newest)]
    missing = _unavailable(newest)
    return "\n".join([*parts, *([missing] if missing else [])])


def _overlapping(results: Iterable[Result]) -> float:
    recoveries = Counter[bool]()
    for each in results:
        for kind, times in each["recoveries"].items():
            recoveries[kind in _OVERLAPPING] += len(times)
    return recoveries[True] / max(1, recoveries.total())


def _sums(results: Sequence[Result]) -> str:
    rows: list[list[str]] = []
    codes = list(dict.fromkeys(each["code"] for each in results))
    for code in codes:
        mine = [each for each in results if each["code"] == code]
        rows.append([f"{mine[0]['at']} to {mine[-1]['at']}", mine[-1]["commit"], *_sum(mine)])
    if len(codes) > 1:
        rows.append(["in total", "", *_sum(results)])
    head = ["when", "commit", "chapters", "hours", "records", "faults", "unexplained", "failed chapters"]
    return "Chapters of the same code of mirrord, added up:\n\n" + _table(head, rows)


def _sum(results: Sequence[Result]) -> list[str]:
    return [
        str(len(results)),
        f"{sum(each['seconds'] for each in results) / 3600:.1f}",
        f"{sum(each['records'] for each in results):,}",
        f"{sum(sum(each['faults'].values()) for each in results):,}",
        _counts(results, "difference") or "none",
        str(sum(not each["passed"] for each in results)),
    ]


def _chapters(results: Sequence[Result]) -> str:
    rows = [
        [
            each["at"],
            str(each["seed"]),
            f"{each['flavor']}, {each['engine']}, {each['at_once']} at once",
            " and ".join(map(str, each["brokers"])),
            f"{each['records']:,}",
            str(sum(each["faults"].values())),
            _counts([each], "named") or "none",
            str(each["restarts"]),
            "yes" if each["passed"] else f"no: {'; '.join(each['failures'])[:200] or _counts([each], 'difference')}",
        ]
        for each in results
    ]
    head = [
        "when", "seed", "chapter", "brokers of source and target", "records", "faults", "named by the ledger",
        "unexpected ends of the daemon", "passed",
    ]  # fmt: skip
    return "The chapters of the newest code:\n\n" + _table(head, rows)


def _recoveries(results: Sequence[Result]) -> str:
    words = {kind.name: kind.what for kind in KINDS} | {each: each for each in _OVERLAPPING}
    rows: list[list[str]] = []
    for name, what in words.items():
        times = [each for result in results for each in result["recoveries"].get(name, ())]
        faults = len(times) if name in _OVERLAPPING else sum(result["faults"].get(name, 0) for result in results)
        if times:
            columns = zip(*times, strict=True)
            rows.append([what, str(faults), *(f"{statistics.median(each):.1f}, {max(each):.1f}" for each in columns)])
        elif faults:
            rows.append([what, str(faults), "-", "-", "-"])
    head = [
        "fault", "count", "source holds newer records after", "target holds newer records after",
        "after the fault has ended",
    ]  # fmt: skip
    return (
        "Recovery, median and worst, in seconds. A partition has recovered when it holds a record that was written\n"
        "after the fault began; the last partition counts. If the fault lasts for a while, the record must have been\n"
        "written a second after its beginning. The first figure is that of the source's own brokers and shows what no\n"
        "mirror could avoid. The last one begins when the fault has ended and what had ended runs again.\n\n"
        f"{_table(head, rows)}"
    )


def _unavailable(results: Sequence[Result]) -> str:
    reasons = {kind: reason for each in results for kind, reason in each["unavailable"].items()}
    played = {kind for each in results for kind in each["faults"]}
    lines = [f"- `{kind}`: {reason}" for kind, reason in reasons.items() if kind not in played]
    return "Not available in any of these chapters:\n\n" + "\n".join(lines) + "\n" if lines else ""


def _counts(results: Iterable[Result], what: str) -> str:
    total = Counter[str]()
    for each in results:
        total.update(each[what])
    return ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in total.items() if count)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
