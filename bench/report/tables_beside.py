"""Figures of mirrord, MirrorMaker 2 and a bare relay side by side."""

import statistics
from collections.abc import Sequence

from bench.questions.catch_up import WARM_SHARE
from bench.report.table import Result, Table

_OF_MM2_GOALS = {"none": "8", "lz4": "10", "zstd": "20"}
"""Goal as a multiple of the stored bytes per CPU-second of tuned MirrorMaker 2, in batches of 64 KiB."""
_FAR_GOAL = "80"
_TRANSACTIONS_GOAL = "50 %"
_PLAIN = "the same without transactions"
"""The backlog that differs from the transactional one only in having no transactions."""
_P99_GOALS = {1_000: "10", 20_000: "25"}
"""Goal in milliseconds, by records a second."""


def catch_up(results: Sequence[Result]) -> list[Table]:
    """Return bytes, CPU and memory."""
    rows: list[list[str]] = []
    ratios: list[list[str]] = []
    for each in results:
        batch_bytes = each["stored_bytes"] / each["records"] * each["records_per_batch"]
        for found in each["copied"]:
            rate = found["stored_bytes"] / found["cpu_s"]
            rows.append(
                [
                    f"{each['name']}: {found['copier']}",
                    f"{batch_bytes:,.0f}",
                    f"{found['stored_bytes'] / found['seconds'] / 1e6:,.0f}",
                    f"{found['records'] / found['seconds']:,.0f}",
                    f"{1e9 / rate:.2f}",
                    f"{found['beside_cpu_s'] / found['stored_bytes'] * 1e9:.2f}",
                    f"{found['peak_bytes'] / 1e6:,.0f} MB",
                    f"{found['first_s']:.1f}",
                ]
            )
        ratios.append(_ratios(each))
    return [
        Table(
            f"Copying a backlog; the first {WARM_SHARE:.0%} of its records are excluded from the measurement",
            [
                "backlog: copier",
                "bytes per batch",
                "stored MB/s",
                "records/s",
                "CPU-s per stored GB",
                "CPU-s of other processes",
                "peak memory",
                "start to first record, s",
            ],
            rows,
        ),
        Table(
            "Stored bytes that mirrord copies per CPU-second, compared with a relay that only forwards "
            "bytes, and with MirrorMaker 2",
            ["backlog", "of the relay", "multiple of MM2", "multiple of MM2 tuned", "goal", "records per CPU-second"],
            ratios,
        ),
        *_transactions(results),
    ]


def _transactions(results: Sequence[Result]) -> list[Table]:
    """Return transactional batches compared with the same batches without transactions."""
    transactional = next((each for each in results if each["transactional"]), None)
    plain = next((each for each in results if each["name"].endswith(_PLAIN)), None)
    if transactional is None or plain is None:
        return []
    rows: list[list[str]] = []
    for one, other in zip(transactional["copied"], plain["copied"], strict=True):
        rates = [each["records"] / each["seconds"] for each in (one, other)]
        efforts = [each["records"] / each["cpu_s"] for each in (one, other)]
        rows.append(
            [
                one["copier"],
                *(f"{rate:,.0f}" for rate in rates),
                f"{rates[0] / rates[1]:.0%}",
                _TRANSACTIONS_GOAL if one["copier"] == "mirrord" else "-",
                f"{efforts[0] / efforts[1]:.0%}",
            ]
        )
    head = [
        "copier",
        "records/s with transactions",
        "records/s without transactions",
        "ratio",
        "goal at least",
        "ratio of records per CPU-s",
    ]
    return [
        Table(
            f"Copying a backlog ({transactional['name']}), compared with the same batches without transactions",
            head,
            rows,
        )
    ]


def far(results: Sequence[Result]) -> list[Table]:
    """Return the bytes copied over a long distance."""
    rows = [
        [
            f"the {each['far']} is far, {each['name']}: {found['copier']}",
            f"{found['stored_bytes'] / found['seconds'] / 1e6:,.0f}",
            _FAR_GOAL if found["copier"] == "mirrord" else "-",
            f"{found['peak_bytes'] / 1e6:,.0f} MB",
            f"{found['cpu_s'] / found['stored_bytes'] * 1e9:.2f}",
        ]
        for each in results
        for found in each["copied"]
    ]
    title = "".join(
        f"Copying a backlog from or to a cluster with a round-trip time of {each['round_trip_ms']:.0f} ms"
        for each in results[:1]
    )
    return [Table(title, ["backlog: copier", "stored MB/s", "goal", "peak memory", "CPU-s per stored GB"], rows)]


def latency(results: Sequence[Result]) -> list[Table]:
    """Return the latency that a mirror adds."""
    return [
        Table(
            "Added latency, in milliseconds",
            ["copier", "records", "per second", "p50", "p99", "goal at most", "p99.9", "most", "source alone, p50"],
            [
                [
                    each["engine"],
                    f"{each['records']:,}",
                    f"{each['records_per_s']:,}{_in_transactions(each)}",
                    *(f"{each[name]:.1f}" for name in ("p50_ms", "p99_ms")),
                    "-" if each["engine"].startswith("MM2") else _p99_goal(each),
                    *(f"{each[name]:.1f}" for name in ("p999_ms", "max_ms", "source_p50_ms")),
                ]
                for each in results
            ],
        )
    ]


def _in_transactions(result: Result) -> str:
    records = result.get("transaction_records", 0)
    return f" in transactions of {records}" if records else ""


def _p99_goal(result: Result) -> str:
    return "25" if result.get("transaction_records", 0) else _P99_GOALS.get(result["records_per_s"], "-")


def mm2_nodes(results: Sequence[Result]) -> list[Table]:
    """Return how long MirrorMaker 2's partitions make no progress."""
    rows = [
        [
            f"{each['what']}: {whose}",
            str(len(each[seconds])),
            *(f"{pick(each[seconds]):.1f}" for pick in (min, statistics.median, max)),
        ]
        for each in results
        for whose, seconds in (("affected partitions", "concerned_s"), ("the other partitions", "others_s"))
        if each[seconds]
    ]
    title = "Longest time during which a partition that MirrorMaker 2 copies delivers no records, in seconds"
    return [Table(title, ["event: partitions", "count", "least", "median", "most"], rows)]


def _ratios(result: Result) -> list[str]:
    rates = {each["copier"]: each["stored_bytes"] / each["cpu_s"] for each in result["copied"]}
    ours = rates["mirrord"]
    records = next(each["records"] / each["cpu_s"] for each in result["copied"] if each["copier"] == "mirrord")
    is_base = "64 KiB, 4 partitions" in result["name"]
    return [
        result["name"],
        f"{ours / result['relay_bytes_per_cpu_s']:.1%}",
        f"{ours / rates['MM2']:.1f}",
        f"{ours / rates['MM2 tuned']:.1f}",
        _OF_MM2_GOALS[result["codec"]] if is_base else "-",
        f"{records:,.0f}",
    ]
