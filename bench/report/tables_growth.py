"""Figures over growing sizes."""

from collections.abc import Sequence

from bench.report.table import Result, Table


def growth(results: Sequence[Result]) -> list[Table]:
    """Return CPU, memory and start time, each with its ratio to the first size."""
    first = {each["what"]: each for each in reversed(results)}
    rows: list[list[str]] = []
    for each in results:
        least = first[each["what"]]
        row = [f"{each['size']:,} {each['what']}"]
        for name, unit, digits in (
            ("first_s", 1, 1),
            ("start_s", 1, 1),
            ("start_cpu_s", 1, 2),
            ("cpu_s_per_gb", 1, 2),
            ("peak_bytes", 1e6, 0),
        ):
            row += [f"{each[name] / unit:,.{digits}f}", f"{each[name] / least[name]:.1f}"]
        rows.append([*row, f"{each['bytes_per_s'] / 1e6:,.0f}"])
    head = [
        "what",
        "first start, s",
        "times",
        "start, s",
        "times",
        "CPU-s of the start",
        "times",
        "CPU-s per copied GB",
        "times",
        "memory, MB",
        "times",
    ]
    return [
        Table(
            "Start time, CPU time and memory of a daemon in one process. Each column `times` shows the "
            "value to its left as a multiple of the value in the first row of the same kind",
            [*head, "MB/s"],
            rows,
        )
    ]
