"""The HTML report of an audit: one self-contained file with plots, which `mirrord.audit.rules.svg_plot` draws. This
module only turns results into text; it does no I/O.

All text from clusters and files is escaped. The page contains no script.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from html import escape

import msgspec

from mirrord.audit.rules.results import LaneDifference, LaneSummary
from mirrord.audit.rules.summary import lane_result, whole_result
from mirrord.audit.rules.svg_plot import Bar, Box, Line, Plot, PlotPoint, Tick, draw, draw_bars, even_ticks, span

MOST_SERIES = 8
"""Maximum number of lines in one plot. More lines would make the plot unreadable."""
MOST_DIFFERENCES = 1_000
MOST_RUNS = 50
_BOX = Box(width=720, height=220, left=130, right=8, above=8, below=24)
_COLOURS = ("#0d9488", "#3b5bdb", "#9a6700", "#c0262d", "#7c3aed", "#12805c", "#b45309", "#475569")


class ProvenPoint(msgspec.Struct, frozen=True):
    """The source offset up to which a partition had been proven at the time of an audit."""

    flow: str
    partition: str
    at_ms: int
    source_offset: int
    newest_ms: int
    """The highest timestamp of the records below `source_offset`; -1 if unknown."""


class FoundThen(msgspec.Struct, frozen=True):
    """The totals of all comparisons that audits of one flow made within the same minute."""

    at_ms: int
    flow: str
    equal: int
    differences: dict[str, int]


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the HTML report about an audit."""

    at_ms: int
    program: str
    level: str
    lanes: Sequence[LaneSummary]
    differences: Sequence[LaneDifference]
    proven: Sequence[ProvenPoint] = ()
    """The proven positions that the ledgers still record, including those of earlier audits, in any order."""
    found: Sequence[FoundThen] = ()
    """The totals of all audits that stored results in the same folder, in any order."""


def page(report: AuditPage) -> str:
    """Return the complete HTML document."""
    kinds: Counter[str] = Counter()
    for lane in report.lanes:
        kinds.update(lane.differences)
    result = whole_result(report.lanes)
    found = "differences" if kinds else "losses" if result.is_bad else result.words
    verdict = ("bad" if result.is_bad else "open" if result.is_partial else "good", found)
    records = sum(lane.records for lane in report.lanes)
    body = "".join(
        (
            f"<h1>Audit <span class='pill {verdict[0]}'>{verdict[1]}</span></h1>",
            f"<p class=soft>{moment(report.at_ms)}, level {escape(report.level)}, {len(report.lanes):,} partitions, "
            f"{records:,} records, by mirrord {escape(report.program)}</p>",
            _card("Differences by kind", _bars(kinds) if kinds else "<p class=soft>There is none.</p>"),
            *_proven(report.proven),
            _card("Partitions", _lanes(report.lanes)),
            _card("Differences", _differences(report.differences)) if report.differences else "",
            _card("Earlier results", _found(report.found)) if report.found else "",
        )
    )
    head = f"<meta charset=utf-8><title>mirrord audit, {moment(report.at_ms)}</title><style>{_STYLE}</style>"
    return f"<!doctype html>\n<html lang=en><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n"


def moment(at_ms: float) -> str:
    """Format a timestamp in milliseconds since 1970 as a date and a time of day in UTC."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms:.0f} ms"  # a producer may write any timestamp into a record


def _card(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>\n"


def _proven(points: Sequence[ProvenPoint]) -> Iterator[str]:
    """Yield plots of the proven positions and of their lag. Each audit that is recorded in the ledgers adds one point
    to the line of each partition that it has audited."""
    known = [point for point in points if point.newest_ms >= 0]
    proven_up_to = _series((f"{each.flow} {each.partition}", each.at_ms, each.newest_ms) for each in known)
    lags = _series(
        ((f"{each.flow} {each.partition}", each.at_ms, (each.at_ms - each.newest_ms) / 1000) for each in known),
        highest=True,
    )
    offsets = _series((f"{each.flow} {each.partition}", each.at_ms, each.source_offset) for each in points)
    plots: tuple[tuple[str, dict[str, list[PlotPoint]], Callable[[float], str]], ...] = (
        ("Proven up to: the highest record time", proven_up_to, moment),
        ("Proven up to: source offset", offsets, _count),
        ("Lag: from that record time to the audit", lags, _seconds),
    )
    for title, series, words in plots:
        if series:
            yield _card(title, _plot(series, words))


def _series(found: Iterable[tuple[str, float, float]], *, highest: bool = False) -> dict[str, list[PlotPoint]]:
    """Return the points of each series by name, for at most `MOST_SERIES` series.

    If there are more series, those whose last points are the oldest are kept. Among series whose last points have the
    same time, the ones with the lowest last values are kept or, with `highest`, the ones with the highest last values.
    """
    series: dict[str, list[PlotPoint]] = {}
    for name, at_ms, value in found:
        series.setdefault(name, []).append((at_ms, value))
    for points in series.values():
        points.sort()
    sign = -1 if highest else 1
    worst = sorted(series, key=lambda name: (series[name][-1][0], sign * series[name][-1][1], name))
    return {name: series[name] for name in sorted(worst[:MOST_SERIES])}


def _plot(series: Mapping[str, Sequence[PlotPoint]], words: Callable[[float], str]) -> str:
    """Return the SVG of a plot with one line per series over time, and a legend."""
    every = [point for points in series.values() for point in points]
    left, right = span(at for at, _ in every)
    low, high = span(value for _, value in every)
    lines = [
        Line(name, points, colour, points[-1:])
        for (name, points), colour in zip(series.items(), _COLOURS, strict=False)
    ]
    times = (Tick(left, moment(left), "start"), Tick(right, moment(right), "end"))
    drawn = draw([Plot(_BOX, lines, (left, right), (low, high), times, even_ticks(low, high, 4, words))])
    names = (f"<span><i style='background:{line.colour}'></i>{escape(line.name)}</span>" for line in lines)
    return f"{drawn}<p class=names>{''.join(names)}</p>"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if abs(value) < 10_000 else f"{value / 3600:,.1f} h"


def _bars(kinds: Mapping[str, int]) -> str:
    bars = [Bar(kind, records, f"{records:,}") for kind, records in sorted(kinds.items())]
    return draw_bars(bars, _BOX.width, _BOX.left, 120)


def _lanes(lanes: Sequence[LaneSummary]) -> str:
    rows: list[tuple[str, ...]] = []
    for each in lanes:
        found = lane_result(each)
        result = f"<b class=bad>{escape(found.words)}</b>" if found.is_bad else escape(found.words)
        proven = "-" if each.proven_to is None else f"{each.proven_to:,}"
        if each.proven_ms is not None:
            proven += f" ({moment(each.proven_ms)})"
        name = escape(f"{each.topic}-{each.partition}")
        numbers = [f"{number:,}" for number in (each.records, each.equal, each.read_bytes)]
        explained = _counts(each.explained) or "-"
        rows.append((escape(each.flow), name, result, explained, proven, *numbers, escape(each.skipped)))
    heads = ("flow", "partition", "result", "explained", "proven up to", "records", "equal", "bytes read", "remark")
    return _table(heads, rows)


def _differences(differences: Sequence[LaneDifference]) -> str:
    rows = [
        (
            escape(each.flow),
            escape(f"{each.topic}-{each.partition}"),
            escape(each.target_topic),
            escape(each.difference.kind),
            f"{each.difference.length:,}",
            *(_offsets(start, each.difference.length) for start in (each.difference.source, each.difference.target)),
        )
        for each in differences[:MOST_DIFFERENCES]
    ]
    heads = ("flow", "partition", "target topic", "difference", "records", "source offset", "target offset")
    left = len(differences) - MOST_DIFFERENCES
    return _table(heads, rows) + (f"<p class=soft>and {left:,} more</p>" if left > 0 else "")


def _found(found: Sequence[FoundThen]) -> str:
    newest = sorted(found, key=lambda each: (each.at_ms, each.flow), reverse=True)[:MOST_RUNS]
    rows = [
        (moment(each.at_ms), escape(each.flow), f"{each.equal:,}", _counts(each.differences) or "none")
        for each in newest
    ]
    return _table(("when", "flow", "records equal", "differences"), rows)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {escape(name)}" for name, number in counts.items())


def _offsets(start: int | None, length: int) -> str:
    if start is None:
        return "-"
    return str(start) if length == 1 else f"{start} to {start + length - 1}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return an HTML table. The cells must already be HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>\n" for row in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table></div>"


_STYLE = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #fff; --line: #e3e6eb; --ink: #1b2330; --soft: #667085;
  --good: #12805c; --good-ground: #e3f5ee; --bad: #c0262d; --bad-ground: #fdecec; }
@media (prefers-color-scheme: dark) { :root { --ground: #0f141b; --card: #171e27; --line: #28323f; --ink: #e6eaf0;
  --soft: #94a1b3; --good: #4ade9f; --good-ground: #12352a; --bad: #ff7b7f; --bad-ground: #43191c; } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 24px; }
h1 { font-size: 22px; margin: 0; } h2 { font-size: 16px; margin: 0 0 10px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; margin: 20px 0;
  padding: 14px 18px; }
.soft { color: var(--soft); } .bad { color: var(--bad); }
.pill { border-radius: 999px; padding: 1px 9px; font-size: 13px; font-weight: 600; }
.pill.good { background: var(--good-ground); color: var(--good); }
.pill.open { background: var(--line); }
.pill.bad { background: var(--bad-ground); color: var(--bad); }
svg { display: block; width: 100%; max-width: 900px; } svg text { font-size: 11px; fill: var(--soft); }
svg line { stroke: var(--line); stroke-width: 1; } svg rect { fill: var(--bad); }
.names span { margin-right: 16px; } .names i { display: inline-block; width: 10px; height: 10px; margin-right: 6px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
"""
