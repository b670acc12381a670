"""What failovers lose, and how long they take."""

from collections.abc import Sequence
from statistics import median

from bench.harness.committer import GROUPS
from bench.questions import failover as bench_failover
from bench.report.table import Result, Table


def failover(results: Sequence[Result]) -> list[Table]:
    """Return one row for each kind of failover."""
    rows: list[list[str]] = []
    for mode in dict.fromkeys(each["mode"] for each in results):
        rounds = [each for each in results if each["mode"] == mode]
        first = [each["first_record_s"] for each in rounds]
        command = [each["command_s"] for each in rounds]
        rows.append(
            [
                f"--{mode}",
                f"{len(rounds)}",
                f"{median(command):.1f} / {max(command):.1f}",
                f"{median(first):.1f} / {max(first):.1f}",
                f"{sum(each['positions'] for each in rounds):,}",
                f"{sum(each['read_again'] for each in rounds):,}",
                f"{sum(each['skipped'] for each in rounds):,}",
                f"{sum(each['lost_records'] for each in rounds):,}",
                f"{sum(each['inexact_starts'] + each['unnamed'] for each in rounds):,}",
                f"{median(each['seen_age_ms'] for each in rounds):.0f} / {max(each['seen_age_ms'] for each in rounds)}",
            ]
        )
    limits = (
        f"Limits: {bench_failover.FIRST_RECORD_S:g} s to the first record, no record read again or skipped, every lost "
        f"range exact, and no source end older than {bench_failover.SEEN_MS:,} ms"
    )
    size = f"{bench_failover.RECORDS_PER_S:,.0f} records/s, {GROUPS} groups"
    columns = [
        "command",
        "times",
        "command s, median / most",
        "first record s, median / most",
        "positions",
        "read again",
        "skipped",
        "lost",
        "wrong ranges",
        "age of the source ends ms, median / most",
    ]
    return [Table(f"failovers at {size}. {limits}", columns, rows)]
