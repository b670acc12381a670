"""What drills of a healthy flow find, and whether they slow down copying."""

from collections.abc import Sequence
from statistics import median

from bench.harness.committer import GROUPS
from bench.questions import drill as bench_drill
from bench.report.table import Result, Table


def drill(results: Sequence[Result]) -> list[Table]:
    """Return one row for the drills and one for the windows without a drill."""
    rows: list[list[str]] = []
    for each in results:
        took = each["took_ms"]
        counts = [f"{each['positions']:,}", f"{each['compared']:,}", f"{len(each['findings']):,}"]
        times = f"{median(took) / 1000:.1f} / {max(took) / 1000:.1f}"
        rows.append([f"{each['drills']} drills", times, *counts, *_gaps(each["drill_ms"])])
        rows.append(["as many windows without one", "", "", "", "", *_gaps(each["quiet_ms"])])
    size = f"{bench_drill.RECORDS_PER_S:,} records/s, {GROUPS} groups"
    columns = ["", "s, median / most", "positions", "compared", "findings", "largest gap ms, median", "p90", "most"]
    limits = "Limits: no finding, and gaps like those of the windows without a drill"
    return [Table(f"drills of a healthy flow at {size}. {limits}", columns, rows)]


def _gaps(gaps_ms: Sequence[float]) -> list[str]:
    p90 = sorted(gaps_ms)[min(len(gaps_ms) - 1, round(len(gaps_ms) * 0.9))]
    return [f"{median(gaps_ms):.0f}", f"{p90:.0f}", f"{max(gaps_ms):.0f}"]
