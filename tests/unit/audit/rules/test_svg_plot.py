"""Plots as SVG: what is where, and that no text is taken for markup."""

from xml.etree import ElementTree as ET

import pytest

from mirrord.audit.rules.svg_plot import Bar, Box, Line, Plot, Tick, draw, draw_bars, even_ticks, span

EVIL = "</svg><script>alert('&\"')</script>"
BOX = Box(width=200, height=100, left=40, right=10, above=20, below=30)
NAMESPACE = "{http://www.w3.org/2000/svg}"


def plot(*lines: Line, title: str = "") -> Plot:
    ticks = [Tick(0, "begin", "start"), Tick(10, "end", "end")]
    return Plot(BOX, lines, (0, 10), (0, 50), ticks, even_ticks(0, 50, 3, "{:.0f}".format), title)


def elements(svg: str, name: str) -> list[ET.Element]:
    return list(ET.fromstring(svg).iter(NAMESPACE + name))


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in elements(svg, "text")]


def test_values_are_placed_between_the_margins() -> None:
    svg = draw([plot(Line("lag", [(0, 0), (5, 25), (10, 50)], "#0d9488", [(10, 50)]), title="Lag")])
    (line,) = elements(svg, "polyline")
    assert line.get("points") == "40,70 115,45 190,20"
    (mark,) = elements(svg, "circle")
    assert (mark.get("cx"), mark.get("cy")) == ("190", "20")
    assert texts(svg) == ["Lag", "0", "25", "50", "begin", "end"]
    assert [each.get("y1") for each in elements(svg, "line")] == ["70", "45", "20"]


def test_plots_are_side_by_side() -> None:
    svg = draw([plot(), plot(), plot()], standalone=True)
    assert [each.get("transform") for each in elements(svg, "g")] == [
        "translate(0 0)",
        "translate(200 0)",
        "translate(400 0)",
    ]
    root = ET.fromstring(svg)
    assert (root.get("viewBox"), root.get("width"), root.get("height")) == ("0 0 600 100", "600", "100")
    assert ET.fromstring(draw([plot()])).get("width") is None, "the page decides"


def test_bars_share_a_scale_and_none_is_invisible() -> None:
    svg = draw_bars([Bar("missing", 1_000, "1,000"), Bar("altered", 1, "1")], 720, 130, 120)
    assert [each.get("width") for each in elements(svg, "rect")] == ["470", "2"]
    assert texts(svg) == ["missing", "1,000", "altered", "1"]
    assert ET.fromstring(draw_bars([Bar("nothing", 0, "0")], 720, 130, 120)) is not None


def test_no_text_is_markup() -> None:
    ticks = [Tick(0, EVIL)]
    evil = Plot(BOX, [Line(EVIL, [(0, 0)], EVIL, [(0, 0)])], (0, 1), (0, 1), ticks, ticks, EVIL)
    for svg in (draw([evil]), draw_bars([Bar(EVIL, 1, EVIL)], 720, 130, 120)):
        assert "<script" not in svg
        assert set(texts(svg)) == {EVIL}
    assert [each.text for each in elements(draw([evil]), "title")] == [EVIL]


@pytest.mark.parametrize(("values", "expected"), [([3.0, 1.0, 2.0], (1, 3)), ([7.0, 7.0], (6, 8))])
def test_a_span_is_never_empty(values: list[float], expected: tuple[float, float]) -> None:
    assert span(values) == expected
