"""Plots of figures over sizes, as SVG files. Pure: it turns results into text."""

import math
from collections.abc import Callable, Sequence

from bench.report.table import Result
from mirrord.audit.rules.svg_plot import Box, Line, Plot, Tick, draw, even_ticks

_BOX = Box(width=260, height=180, left=48, right=24, above=26, below=24)
_COLOUR = "#0d9488"


def growth(results: Sequence[Result]) -> dict[str, str]:
    """Return plots by file name: CPU, memory and start time over each cause of growth."""
    kinds = list(dict.fromkeys(each["what"] for each in results))
    return {
        file_name(kind): draw(_plots([each for each in results if each["what"] == kind]), standalone=True)
        for kind in kinds
    }


def file_name(kind: str) -> str:
    """Return the file name of a plot of growth."""
    return f"growth-{kind.partition(' ')[0]}.svg"


def _plots(results: Sequence[Result]) -> list[Plot]:
    kind = results[0]["what"]
    return [
        _plot(f"CPU-s per GB over {kind}", [(each["size"], each["cpu_s_per_gb"]) for each in results], "{:.1f}".format),
        _plot(f"peak memory, MB, over {kind}", [(each["size"], each["peak_bytes"] / 1e6) for each in results], _whole),
        _plot(f"start, s, over {kind}", [(each["size"], each["start_s"]) for each in results], "{:.1f}".format),
    ]


def _plot(title: str, points: Sequence[tuple[int, float]], words: Callable[[float], str]) -> Plot:
    """Return a plot of figures over sizes. Sizes are on a logarithmic scale, figures on one from 0."""
    most = max(value for _, value in points) or 1.0
    places = [(math.log10(size + 1), value) for size, value in points]
    low, high = min(places)[0], max(places)[0]
    return Plot(
        _BOX,
        [Line(title, places, _COLOUR, places)],
        (low, high if high > low else low + 1),
        (0.0, most),
        [Tick(x, _short(size)) for (x, _), (size, _) in zip(places, points, strict=True)],
        even_ticks(0.0, most, 3, words),
        title,
    )


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _short(size: int) -> str:
    for least, unit in ((1_000_000, "M"), (1_000, "k")):
        if size >= least:
            return f"{size / least:.3g}{unit}"
    return str(size)
