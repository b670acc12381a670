"""What a soak has shown: a table, and plots over time."""

from collections.abc import Callable, Sequence

from bench.report.table import Result, Table
from mirrord.audit.rules.svg_plot import Box, Line, Plot, Tick, draw, even_ticks

_BOX = Box(width=300, height=180, left=48, right=24, above=26, below=24)
_COLOURS = (
    "#0d9488",
    "#7c3aed",
    "#c2410c",
    "#2563eb",
    "#be185d",
    "#4d7c0f",
    "#475569",
    "#a16207",
    "#0891b2",
    "#991b1b",
)
_UNITS: dict[str, tuple[str, float, int]] = {
    "resident_bytes": ("memory, MiB", 2.0**20, 0),
    "files": ("open files", 1.0, 0),
    "threads": ("threads", 1.0, 0),
    "cpu": ("CPU, cores", 1.0, 3),
    "log_bytes": ("log files, MiB", 2.0**20, 1),
}
"""The title of each value, what it is divided by, and its decimal places."""


def soak(results: Sequence[Result]) -> list[Table]:
    """Return how fast each value of each kind of process grows."""
    rows = [
        [
            f"{each['engine']}: {each['process']}",
            _UNITS[value["name"]][0],
            *(_text(value["name"], value[when]) for when in ("begin", "end", "per_day", "after_30_days")),
        ]
        for each in results
        for value in each["values"]
    ]
    first = results[0]
    title = (
        f"{first['minutes']:g} minutes of mixed load, {first['rounds']} rounds of new and deleted topics and groups. "
        f"Growth counts after the first quarter; with Ray, {max(each['kills'] for each in results)} replicators were "
        "killed"
    )
    head = ["largest process of its kind", "value", "after the warm-up", "at the end", "growth per day", "in 30 days"]
    return [Table(title, head, rows)]


def soak_plots(results: Sequence[Result]) -> dict[str, str]:
    """Return plots by file name: memory, open files, threads and CPU of every kind of process over time."""
    return {
        file_name(engine): draw(_plots([each for each in results if each["engine"] == engine]), standalone=True)
        for engine in engines(results)
    }


def engines(results: Sequence[Result]) -> list[str]:
    return list(dict.fromkeys(each["engine"] for each in results))


def file_name(engine: str) -> str:
    """Return the file name of the plots of an engine."""
    return f"soak-{engine}.svg"


def _plots(results: Sequence[Result]) -> list[Plot]:
    names = [name for name in _UNITS if any(value["name"] == name for each in results for value in each["values"])]
    return [_plot(name, results) for name in names]


def _plot(name: str, results: Sequence[Result]) -> Plot:
    title, unit, digits = _UNITS[name]
    lines = [
        Line(each["process"], [(minute, size / unit) for minute, size in value["points"]], colour)
        for each, colour in zip(results, _COLOURS * len(results), strict=False)
        for value in each["values"]
        if value["name"] == name
    ]
    most = max(size for line in lines for _, size in line.points) or 1.0
    end = max(minute for line in lines for minute, _ in line.points) or 1.0
    ticks = [Tick(0.0, "0"), Tick(end, f"{end:.0f} min")]
    return Plot(_BOX, lines, (0.0, end), (0.0, most), ticks, even_ticks(0.0, most, 3, _words(digits)), title)


def _words(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:,.{max(digits, 1)}f}" if digits else f"{value:,.0f}"


def _text(name: str, value: float) -> str:
    _, unit, digits = _UNITS[name]
    return f"{value / unit:,.{digits}f}"
