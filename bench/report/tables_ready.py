"""How long `mirrord ready` takes."""

from collections.abc import Sequence
from statistics import median

from bench.questions import ready as bench_ready
from bench.report.table import Result, Table


def ready(results: Sequence[Result]) -> list[Table]:
    """Return the duration in each situation."""
    size = "".join(f"{each['partitions']:,} partitions, {each['groups']:,} groups" for each in results[:1])
    rows = [
        [
            each["situation"],
            f"{each['positions']:,}",
            f"{len(each['seconds'])}",
            f"{median(each['seconds']):.1f}",
            f"{max(each['seconds']):.1f}",
        ]
        for each in results
    ]
    title = f"seconds from the start of the process to its end; {size}. Limit: {bench_ready.LIMIT_S:g} s"
    return [Table(title, ["situation", "positions known", "times", "median s", "most s"], rows)]
