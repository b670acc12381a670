"""Plots of figures over sizes, as SVG that needs nothing else. Pure: results to text."""

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

from bench.report.table import Result

_WIDTH, _HEIGHT = 260, 180
_LEFT, _BELOW, _ABOVE = 48, 24, 26
_INK, _LINE, _COLOUR = "#667085", "#98a2b3", "#0d9488"


class Plot(NamedTuple):
    """One figure over sizes."""

    title: str
    points: Sequence[tuple[int, float]]
    """Of a size."""
    words: Callable[[float], str]


def growth(results: Sequence[Result]) -> dict[str, str]:
    """By file name: what CPU, memory and start time are over each of what grows."""
    kinds = list(dict.fromkeys(each["what"] for each in results))
    return {file_name(kind): svg([*_plots([each for each in results if each["what"] == kind])]) for kind in kinds}


def file_name(kind: str) -> str:
    """Of the plots for what grows."""
    return f"growth-{kind.partition(' ')[0]}.svg"


def _plots(results: Sequence[Result]) -> list[Plot]:
    kind = results[0]["what"]
    return [
        Plot(f"CPU-s per GB over {kind}", [(each["size"], each["cpu_s_per_gb"]) for each in results], "{:.1f}".format),
        Plot(f"peak memory, MB, over {kind}", [(each["size"], each["peak_bytes"] / 1e6) for each in results], _whole),
        Plot(f"start, s, over {kind}", [(each["size"], each["start_s"]) for each in results], "{:.1f}".format),
    ]


def svg(plots: Sequence[Plot]) -> str:
    """Side by side. Sizes stand on a logarithmic scale, figures on one from 0."""
    drawn = "".join(f'<g transform="translate({_WIDTH * at} 0)">{_draw(plot)}</g>' for at, plot in enumerate(plots))
    wide = _WIDTH * len(plots)
    style = f'font-family="system-ui, sans-serif" font-size="10" fill="{_INK}"'
    box = f'viewBox="0 0 {wide} {_HEIGHT}" width="{wide}" height="{_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box} role="img" {style}>\n{drawn}\n</svg>\n'


def _draw(plot: Plot) -> str:
    sizes = [math.log10(size + 1) for size, _ in plot.points]
    low, high = min(sizes), max(sizes)
    most = max(value for _, value in plot.points) or 1.0
    wide, tall = _WIDTH - _LEFT - 24, _HEIGHT - _BELOW - _ABOVE
    across = [_LEFT + (size - low) / ((high - low) or 1) * wide for size in sizes]
    up = [_ABOVE + (1 - value / most) * tall for _, value in plot.points]
    parts = [f'<text x="{_LEFT}" y="14" font-weight="600">{escape(plot.title)}</text>']
    for value in (0.0, most / 2, most):
        y = _ABOVE + (1 - value / most) * tall
        parts.append(
            f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + wide}" y2="{y:.1f}" stroke="{_LINE}" stroke-width="0.5" />'
            f'<text x="{_LEFT - 5}" y="{y + 3:.1f}" text-anchor="end">{plot.words(value)}</text>'
        )
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, up, strict=True))
    parts.append(f'<polyline points="{places}" fill="none" stroke="{_COLOUR}" stroke-width="1.8" />')
    for (size, _), x, y in zip(plot.points, across, up, strict=True):
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_COLOUR}" />'
            f'<text x="{x:.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{_short(size)}</text>'
        )
    return "".join(parts)


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _short(size: int) -> str:
    for least, unit in ((1_000_000, "M"), (1_000, "k")):
        if size >= least:
            return f"{size / least:.3g}{unit}"
    return str(size)
