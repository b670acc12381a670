"""Figures as tables, the same for the terminal and for docs/measurements.md."""

import math
import statistics
from collections.abc import Callable, Sequence

from bench.harness.sampler import PARTS
from bench.questions import discovery as bench_discovery
from bench.questions import groups as bench_groups
from bench.questions import kills as bench_kills
from bench.questions import moves as bench_moves
from bench.questions import recovery as bench_recovery
from bench.questions import topics as bench_topics
from bench.questions.move_phases import PHASES
from bench.report.table import Result, Table, least_median_most
from bench.report.tables_beside import catch_up, far, latency, mm2_nodes
from bench.report.tables_drill import drill
from bench.report.tables_failover import failover
from bench.report.tables_growth import growth
from bench.report.tables_hostile import hostile
from bench.report.tables_ready import ready
from bench.report.tables_soak import soak

_SPEED_GOALS = {
    "64 KiB batches": "at least 45 % of the relay",
    "64 KiB batches, none": "at least 45 % of the relay",
    "64 KiB batches, zstd": "at least 45 % of the relay",
    "16 KiB batches": "at least 25 % of the relay",
    "one-record batches": "at least 60,000 batches per CPU-s",
}
_WAIT_GOALS = {
    ("process", bench_recovery.START): "3",
    ("ray", bench_recovery.START): "10",
    ("ray", bench_recovery.DAEMON_FIRST): "10",
    ("ray", bench_recovery.REPLICATOR_ALL): "5",
    ("ray", bench_recovery.STANDBY_FIRST): "10",
    ("process", bench_recovery.STANDBY_FIRST): "10",
    ("process", bench_recovery.NEW_TOPIC): "6",
    ("ray", bench_recovery.NEW_TOPIC): "6",
}
_COST_GOALS = {bench_discovery.AT_REST: "1", bench_discovery.CHANGED: "1"}
_SLOWEST = 5
_RIGHT_GOAL = "at most 1,000"
_FOLLOW_GOAL = "25 % of a core"
_REST_GOALS = {bench_discovery.STEADY: "5 %"}
_NEW_GOAL = f"{bench_topics.REFRESH_S + 1:g}"
_MEMORY_GOAL = "1.50"
_IDLE_GOALS = {5_000: "15 %"}
_STEP_GOAL = "at most 25 %"


def throughput(results: Sequence[Result]) -> list[Table]:
    """Return the speed compared with the relay, and where the time goes."""
    speed = Table(
        "Stored bytes that a replicator copies per CPU-second, compared with a relay that only forwards bytes",
        [
            "batches",
            "bytes each",
            "MB per CPU-s",
            "relay, MB per CPU-s",
            "of the relay",
            "goal",
            "by repetition: least, median, most",
            "batches per CPU-s",
            "MB/s",
            "measured in total",
        ],
        [
            [
                each["name"],
                f"{each['batch_bytes']:,}",
                f"{each['bytes_per_cpu_s'] / 1e6:,.0f}",
                f"{each['relay_bytes_per_cpu_s'] / 1e6:,.0f}",
                f"{each['of_relay']:.1%}",
                _SPEED_GOALS.get(each["name"], "-"),
                least_median_most([100 * turn for turn in each["of_relay_turns"]], " %"),
                f"{each['batches_per_cpu_s']:,.0f}",
                f"{each['bytes_per_s'] / 1e6:,.0f}",
                f"{each['copied_bytes'] / 1e9:.1f} GB, {each['cpu_s']:.1f} CPU-s",
            ]
            for each in results
        ],
    )
    return [speed, profile(results)]


def profile(results: Sequence[Result]) -> Table:
    """Return the CPU-microseconds per batch, by part."""
    rows = [[part, *(_part(each, part) for each in results)] for part in PARTS]
    rows.append(["all", *(f"{each['profiled_us']:.1f}" for each in results)])
    rows.append([f"of which the pure state machine ({_STEP_GOAL})", *(f"{each['step_share']:.0%}" for each in results)])
    rows.append(["samples", *(f"{each['ticks']:,}" for each in results)])
    return Table(
        "CPU-microseconds per batch in each part of the code", ["part", *(each["name"] for each in results)], rows
    )


def _part(result: Result, part: str) -> str:
    us = result["parts_us"].get(part, 0.0)
    return f"{us:.2f} ({us / result['profiled_us']:.0%})"


def memory(results: Sequence[Result]) -> list[Table]:
    """Return the peak memory of a catch-up."""
    mib = 2**20
    return [
        Table(
            "Memory of a replicator during a catch-up",
            [
                "batches",
                "in flight at most",
                "idle",
                "peak",
                "peak above idle",
                "ratio to the limit",
                "goal at most",
                "copied",
            ],
            [
                [
                    each["name"],
                    f"{each['in_flight_bytes'] / mib:.0f} MiB",
                    f"{each['idle_bytes'] / mib:.0f} MiB",
                    f"{each['peak_bytes'] / mib:.0f} MiB",
                    f"{(each['peak_bytes'] - each['idle_bytes']) / mib:.0f} MiB",
                    f"{(each['peak_bytes'] - each['idle_bytes']) / each['in_flight_bytes']:.2f}",
                    _MEMORY_GOAL,
                    f"{each['copied_bytes'] / 1e6:,.0f} MB",
                ]
                for each in results
            ],
        )
    ]


def recovery(results: Sequence[Result]) -> list[Table]:
    """Return the waits until records arrive."""
    return [
        Table(
            "Seconds until records arrive",
            ["engine: interval", "least", "median", "most", "goal at most", "repetitions"],
            [
                [
                    f"{each['engine']}: {each['what']}",
                    f"{min(each['seconds']):.2f}",
                    f"{statistics.median(each['seconds']):.2f}",
                    f"{max(each['seconds']):.2f}",
                    _WAIT_GOALS.get((each["engine"], each["what"]), "-"),
                    str(len(each["seconds"])),
                ]
                for each in results
            ],
        )
    ]


def idle(results: Sequence[Result]) -> list[Table]:
    """Return the cost of idle partitions."""
    return [
        Table(
            "CPU and memory while all partitions are idle",
            ["copier", "partitions", "of a core", "goal at most", "memory", "seconds"],
            [
                [
                    each["engine"],
                    f"{each['partitions']:,}",
                    f"{each['core_share']:.1%}",
                    _IDLE_GOALS.get(each["partitions"], "-") if each["engine"] in {"ray", "process"} else "-",
                    f"{each['rss_bytes'] / 1e6:,.0f} MB",
                    f"{each['seconds']:.0f}",
                ]
                for each in results
            ],
        )
    ]


def offset_map(results: Sequence[Result]) -> list[Table]:
    """Return the cost of the map."""
    return [
        Table(
            "Size of the offset map, and the time taken by a start and by a translation",
            [
                "map",
                "partitions",
                "runs",
                "bytes per run in snapshots",
                "`limits.map_bytes`",
                "start",
                "memory of a reader",
                "bytes per run",
                "temporary file",
                "translation, newest runs",
                "translation, any run",
            ],
            [
                [
                    each["what"],
                    f"{each['partitions']:,}",
                    f"{each['runs']:,}",
                    f"{each['snapshot_bytes'] / each['runs']:.2f}",
                    f"{opened['map_bytes'] / 1048576:.0f} MiB",
                    f"{opened['open_s']:.1f} s",
                    f"{opened['rss_bytes'] / 1e6:.0f} MB",
                    f"{opened['rss_bytes'] / each['runs']:.1f}",
                    f"{opened['file_bytes'] / 1e6:.0f} MB",
                    f"{opened['newest_us']:.0f} us",
                    f"{opened['any_us']:.0f} us",
                ]
                for each in results
                for opened in each["opened"]
            ],
        )
    ]


def compaction(results: Sequence[Result]) -> list[Table]:
    """Return how long it takes to move a map into files, and what that saves."""
    rows = [
        [
            when,
            f"{each['runs']:,}",
            f"{each['moved']:,} in {each['seconds']:.0f} s" if at else "",
            f"{each['dataset_bytes'] / 1e6:.1f} MB" if at else "",
            f"{each['snapshot_bytes'][at] / 1e6:.2f} MB",
            f"{opened['open_s']:.2f} s",
            f"{opened['first_ms']:.1f} ms",
            f"{opened['any_us']:.0f} us",
        ]
        for each in results
        for at, (when, opened) in enumerate(zip(("before", "after"), each["opened"], strict=True))
    ]
    head = ["", "runs", "moved", "files", "snapshots", "start", "first old translation", "each later translation"]
    return [Table("An offset map before and after `mirrord compact`", head, rows)]


def topics(results: Sequence[Result]) -> list[Table]:
    """Return how long a busy topic makes no progress, and how soon new topics begin."""
    gaps = [
        [
            f"{each['engine']}: {gap['what']}",
            str(len(gap["target_ms"])),
            least_median_most(gap["target_ms"], ""),
            f"{statistics.median(gap['target_ms']) / statistics.median(each['gaps'][0]['target_ms']):.2f}",
            least_median_most(gap["source_ms"], ""),
        ]
        for each in results
        for gap in each["gaps"]
    ]
    waits = [
        [
            f"{each['engine']}: {what}",
            *(f"{pick(each[seconds]):.2f}" for pick in (min, statistics.median, max)),
            goal,
            str(len(each[seconds])),
        ]
        for each in results
        for what, seconds, goal in (
            ("one new topic", "new_topic_s", _NEW_GOAL),
            (f"the last of {bench_topics.CREATED_AT_ONCE} new topics", "all_new_s", "-"),
        )
    ]
    stands = (
        f"Longest time during which a partition of a busy topic delivers no records, in milliseconds "
        f"({bench_topics.PARTITIONS} partitions, {bench_topics.RECORDS_PER_S:,} records per second, "
        f"measured in windows of {bench_topics.WINDOW_S:g} s each)"
    )
    head = ["engine: event", "windows", "on the target: least, median, most", "of quiet", "on the source"]
    return [
        Table(stands, head, gaps),
        Table(
            "Seconds from the creation of a topic to its first record on the target, while a busy topic is copied",
            ["engine: interval", "least", "median", "most", "goal at most", "repetitions"],
            waits,
        ),
    ]


def moves(results: Sequence[Result]) -> list[Table]:
    """Return how long a lane makes no progress when it moves, and whether the copy is correct."""
    rows = [
        _gaps(f"{each['engine']}: {what}", each[gaps], goal)
        for each in results
        for what, gaps, goal in (
            ("the moved partition", "moved_ms", "250"),
            ("the slowest of the other partitions during the move", "others_ms", "-"),
            ("any partition, without a move", "quiet_ms", "-"),
            ("any partition on the source during the move", "source_ms", "-"),
        )
    ]
    phases = [row for each in results for row in _phases(each["engine"], each.get("phases", ()))]
    stands = (
        f"Longest time during which a partition delivers no records while a busy partition is being moved to another "
        f"replicator, in milliseconds ({bench_moves.RECORDS_PER_S:,} records per second in {bench_moves.PARTITIONS} "
        "partitions)"
    )
    return [
        Table(stands, ["engine, partition", "windows", "median", "p99", "most", "goal at most, p99"], rows),
        Table(
            "Milliseconds that a move spends in each step: p50, p99, and the moves that delay records the longest",
            ["engine, move", "gap", *PHASES],
            phases,
        ),
        _copies("Record-by-record comparison of source and target after all moves", results),
    ]


def kills(results: Sequence[Result]) -> list[Table]:
    """Return the silence of a killed replicator's lanes, the effect on others, and whether the copy is correct."""
    rows: list[list[str]] = []
    for each in results:
        bound_ms = max(250.0, 2 * max(each["quiet_ms"]))
        rows += [
            _gaps(f"{each['engine']}: {what}", each[gaps], goal)
            for what, gaps, goal in (
                ("until all partitions of the killed replicator deliver records again", "killed_ms", "5,000"),
                ("the slowest of the other partitions after the kill", "others_ms", f"{bound_ms:.0f}"),
                ("partitions that are not moved while a replicator joins or leaves", "resized_ms", f"{bound_ms:.0f}"),
                ("any partition, without a kill", "quiet_ms", "-"),
                ("any partition on the source after the kill", "source_ms", "-"),
            )
        ]
    title = (
        f"Longest time during which a partition delivers no records after kill -9 of a replicator, in milliseconds "
        f"({bench_kills.PARTITIONS} partitions, {bench_kills.RECORDS_PER_S:,} records per second, measured in "
        f"windows of {bench_kills.WINDOW_S:g} s each). The goal for other partitions is 250 ms, or twice the longest "
        "time without a kill, whichever is longer"
    )
    return [
        Table(title, ["engine, partition", "windows", "median", "p99", "most", "goal at most"], rows),
        _copies("Record-by-record comparison of source and target after all kills", results),
    ]


def _gaps(name: str, values: Sequence[float], goal: str) -> list[str]:
    """Return a row of gaps; `values` ascend."""
    p99 = values[max(0, math.ceil(len(values) * 0.99) - 1)]
    return [name, str(len(values)), f"{statistics.median(values):.0f}", f"{p99:.0f}", f"{max(values):.0f}", goal]


def _copies(title: str, results: Sequence[Result]) -> Table:
    rows = [[each["engine"], f"{each['records']:,}", each["difference"] or "none"] for each in results]
    return Table(title, ["engine", "records", "lost, duplicated or altered"], rows)


def _phases(engine: str, results: Sequence[Result]) -> list[list[str]]:
    moves = [each for each in results if each["phases"]]
    if not moves:
        return []
    rows: list[list[str]] = []
    for what, share in (("p50", 0.5), ("p99", 0.99)):
        values = [sorted(each["phases"][phase] for each in moves) for phase in PHASES]
        at = max(0, math.ceil(len(moves) * share) - 1)
        rows.append([f"{engine}: {what}", f"{sorted(each['gap_ms'] for each in moves)[at]:.0f}"])
        rows[-1] += [f"{each[at]:.1f}" for each in values]
    return rows + [
        [f"{engine}: slow", f"{each['gap_ms']:.0f}", *(f"{each['phases'][phase]:.1f}" for phase in PHASES)]
        for each in moves[:_SLOWEST]
    ]


def discovery(results: Sequence[Result]) -> list[Table]:
    """Return the cost of single rounds, and of an idle flow."""
    size = "".join(f"{each['topics']:,} topics of {each['partitions']} partitions each" for each in results[:1])
    costs = [
        [
            cost["what"],
            str(cost["rounds"]),
            f"{cost['median_s']:.3f}",
            f"{cost['greatest_s']:.3f}",
            _COST_GOALS.get(cost["what"], "-"),
        ]
        for each in results
        for cost in each["costs"]
    ]
    rests = [
        [rest["what"], f"{rest['core_share']:.1%}", _REST_GOALS.get(rest["what"], "-"), f"{rest['seconds']:.0f}"]
        for each in results
        for rest in each["rests"]
    ]
    return [
        Table(f"CPU-seconds to check {size} for changes", ["round", "rounds", "median", "most", "goal at most"], costs),
        Table(f"CPU time while nothing changes, for {size}", ["what", "of a core", "goal at most", "seconds"], rests),
    ]


def groups(results: Sequence[Result]) -> list[Table]:
    """Return the delay of groups on the target, and its cost."""
    size = "".join(f"{each['groups']:,} groups of {each['partitions']} partitions each" for each in results[:1])
    rows = [
        [
            each["engine"],
            f"{each['commits']:,}",
            *(f"{each[name]:.0f}" for name in ("p50_ms", "p99_ms", "most_ms")),
            f"{each['core_share']:.1%}",
            f"{each['rest_share']:.1%}",
            f"{each['seconds']:.0f}",
        ]
        for each in results
    ]
    heading = (
        f"Milliseconds until a commit on the source has reached the target (goal: {_RIGHT_GOAL}), and CPU time used "
        f"(goal: {_FOLLOW_GOAL}). There are {size}; each group commits every {bench_groups.EVERY_S:g} s"
    )
    head = ["engine", "commits", "p50", "p99", "most", "of a core", "at rest", "seconds"]
    return [Table(heading, head, rows)]


def fairness(results: Sequence[Result]) -> list[Table]:
    """Return how evenly many partitions progress."""
    rows = [
        [
            f"{each['engine']}: {each['what']}",
            f"{each['partitions']:,}",
            f"{each['jain']:.3f}",
            "0.9",
            f"{each['least_share']:.0%}",
            f"{each['lag_s']:.1f}",
            f"{each['backlog_bytes_per_s'] / 1e6:,.0f}",
            f"{each['seconds']:.0f}",
        ]
        for each in results
    ]
    head = [
        "",
        "partitions",
        "Jain's index",
        "goal",
        "smallest share",
        "largest lag, s",
        "backlog, MB/s",
        "seconds",
    ]
    return [Table("How evenly partitions with traffic are copied", head, rows)]


def audits(results: Sequence[Result]) -> list[Table]:
    """Return the bytes that an audit reads per CPU-second."""
    rows = [
        [
            f"{each['partitions']}",
            f"{each['batch_bytes']:,}",
            f"{each['read_bytes'] / 1e9:.2f} GB",
            *(_spread([f"{cpu_s:.2f} s" for cpu_s in sorted(each[who])]) for who in _AUDITORS),
            _spread([f"{ratio:.0%}" for ratio in each["of_relay"]]),
        ]
        for each in results
    ]
    head = ["partitions", "bytes per batch", "bytes read", "CPU, readers", "CPU, Java", "CPU, driver", "of the relay"]
    return [Table("Bytes that `mirrord audit --level digest` reads, and the CPU time that it uses", head, rows)]


_AUDITORS = ("reader_cpu_s", "java_cpu_s", "driver_cpu_s")


def _spread(ascending: Sequence[str]) -> str:
    return f"{ascending[len(ascending) // 2]} ({ascending[0]} to {ascending[-1]})"


TABLES: dict[str, Callable[[Sequence[Result]], list[Table]]] = {
    "catch-up": catch_up,
    "far": far,
    "mm2": mm2_nodes,
    "throughput": throughput,
    "memory": memory,
    "latency": latency,
    "recovery": recovery,
    "idle": idle,
    "map": offset_map,
    "compact": compaction,
    "audit": audits,
    "topics": topics,
    "moves": moves,
    "kills": kills,
    "discovery": discovery,
    "groups": groups,
    "growth": growth,
    "fairness": fairness,
    "soak": soak,
    "hostile": hostile,
    "ready": ready,
    "failover": failover,
    "drill": drill,
}
"""The tables of each question."""
