"""Draws plots as SVG. This module is pure: it only turns numbers into text.

The result is well-formed XML without references to other files. It can be stored as a separate file or embedded in an
HTML page. All text is escaped. Colors and fonts are attributes, so that the style sheet of a page can override them.
"""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Literal, NamedTuple

PlotPoint = tuple[float, float]

MARK_RADIUS = 3
_INK, _GRID, _BAR = "#667085", "#98a2b3", "#c0262d"
_BAR_STEP, _BAR_HEIGHT = 26, 18
_ABOVE_BARS = 6


class Box(NamedTuple):
    """The size of a plot with its margins, in pixels. The margins hold the labels and the title."""

    width: int
    height: int
    left: int
    right: int
    above: int
    below: int


class Tick(NamedTuple):
    """A label at one value of an axis."""

    at: float
    text: str
    anchor: Literal["start", "middle", "end"] = "middle"
    """Whether the text starts at the value, is centered on it, or ends at it. This applies only to the horizontal
    axis."""


class Line(NamedTuple):
    """A line through points in the given order."""

    name: str
    """The text of the tooltip that appears while the pointer is over the line."""
    points: Sequence[PlotPoint]
    colour: str
    marked: Sequence[PlotPoint] = ()
    """The points that are drawn as dots, in addition to the line."""


class Plot(NamedTuple):
    """A plot of lines, with two linear axes. The lowest and the highest value of an axis must differ."""

    box: Box
    lines: Sequence[Line]
    x: tuple[float, float]
    """The lowest and the highest value of the horizontal axis."""
    y: tuple[float, float]
    x_ticks: Sequence[Tick] = ()
    y_ticks: Sequence[Tick] = ()
    """The labels of the vertical axis. A grid line is drawn at each of their values."""
    title: str = ""


class Bar(NamedTuple):
    """A horizontal bar of a bar chart."""

    name: str
    value: float
    text: str
    """The label at the right end of the bar."""


def span(values: Iterable[float]) -> tuple[float, float]:
    """Return the lowest and the highest value. If all values are equal, widen the result by 1 in both directions.
    Raises ValueError if there is no value."""
    found = list(values)
    low, high = min(found), max(found)
    return (low, high) if high > low else (low - 1, high + 1)


def even_ticks(low: float, high: float, count: int, label: Callable[[float], str]) -> list[Tick]:
    """Return `count` evenly spaced ticks from `low` to `high`."""
    values = (low + (high - low) * number / (count - 1) for number in range(count))
    return [Tick(value, label(value)) for value in values]


def draw(plots: Sequence[Plot], *, standalone: bool = False) -> str:
    """Return one SVG image with the plots side by side.

    With `standalone`, the image has a fixed size and ends with a newline. Otherwise, the page that embeds the image
    determines its width.
    """
    parts: list[str] = []
    left = 0
    for plot in plots:
        parts.append(f'<g transform="translate({left} 0)">{_plot(plot)}</g>')
        left += plot.box.width
    return _svg(left, max(plot.box.height for plot in plots), "".join(parts), standalone=standalone)


def draw_bars(bars: Sequence[Bar], width: int, left: int, right: int) -> str:
    """Return one SVG image with the bars below one another. `left` and `right` are the margins for names and labels, in
    pixels.

    The longest bar fills the space between the margins. Every bar is at least two pixels long.
    """
    most = max((bar.value for bar in bars), default=0) or 1
    parts: list[str] = []
    for number, bar in enumerate(bars):
        y = _ABOVE_BARS + _BAR_STEP * number
        wide = max(2.0, bar.value / most * (width - left - right))
        parts += (
            _text(left - 6, y + 14, bar.name, "end"),
            f'<rect x="{left}" y="{y}" width="{_number(wide)}" height="{_BAR_HEIGHT}" fill="{_BAR}" />',
            _text(left + wide + 6, y + 14, bar.text, "start"),
        )
    return _svg(width, 2 * _ABOVE_BARS + _BAR_STEP * len(bars), "".join(parts), standalone=False)


def _plot(plot: Plot) -> str:
    box = plot.box
    wide, tall = box.width - box.left - box.right, box.height - box.above - box.below

    def across(value: float) -> float:
        return box.left + (value - plot.x[0]) / (plot.x[1] - plot.x[0]) * wide

    def down(value: float) -> float:
        return box.above + (plot.y[1] - value) / (plot.y[1] - plot.y[0]) * tall

    parts = [_text(box.left, 14, plot.title, "start", ' font-weight="600"')] if plot.title else []
    for tick in plot.y_ticks:
        y = _number(down(tick.at))
        ends = f'x1="{box.left}" y1="{y}" x2="{box.left + wide}" y2="{y}"'
        parts.append(f'<line {ends} stroke="{_GRID}" stroke-width="0.5" />')
        parts.append(_text(box.left - 6, down(tick.at) + 4, tick.text, "end"))
    parts += (_text(across(tick.at), box.height - 6, tick.text, tick.anchor) for tick in plot.x_ticks)
    for line in plot.lines:
        places = " ".join(f"{_number(across(x))},{_number(down(y))}" for x, y in line.points)
        stroke = f'fill="none" stroke="{escape(line.colour)}" stroke-width="1.8"'
        parts.append(f'<polyline points="{places}" {stroke}><title>{escape(line.name)}</title></polyline>')
        for x, y in line.marked:
            place = f'cx="{_number(across(x))}" cy="{_number(down(y))}"'
            parts.append(f'<circle {place} r="{MARK_RADIUS}" fill="{escape(line.colour)}" />')
    return "".join(parts)


def _svg(width: int, height: int, content: str, *, standalone: bool) -> str:
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
    style = f'role="img" font-family="system-ui, sans-serif" font-size="10" fill="{_INK}"'
    if standalone:
        return f'<svg {box} width="{width}" height="{height}" {style}>\n{content}\n</svg>\n'
    return f"<svg {box} {style}>{content}</svg>"


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{_number(x)}" y="{_number(y)}" text-anchor="{anchor}"{more}>{escape(text)}</text>'


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
