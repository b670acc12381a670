"""Renders the answer of `mirrord ready` for a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.cli.number_formats import count, duration
from mirrord.ledger.standing_orders import moment
from mirrord.model.readiness import (
    Comparison,
    FlowReadiness,
    PartitionReadiness,
    ReadinessReport,
    SourceHeadroom,
    TargetHeadroom,
)

_MOST_ROWS = 50
"""Maximum number of rows of a table, unless everything is to be listed."""


def readiness(report: ReadinessReport, *, whole: bool) -> Group:
    """Return the answer as text. With `whole`, all partitions and positions are listed."""
    return Group(*(part for flow in report.flows for part in _flow(flow, whole=whole)))


def _flow(flow: FlowReadiness, *, whole: bool) -> Iterator[RenderableType]:
    verdict = "[bold green]ready[/]" if flow.ready else "[bold red]not ready[/]"
    yield f"[bold]{escape(flow.flow)}[/]: {verdict}"
    for line in flow.blockers:
        yield f"  [red]✗[/] {escape(line)}"
    for line in flow.remarks:
        yield f"  [yellow]![/] {escape(line)}"
    yield from (f"  {line}" for line in _summary(flow))
    rows = flow.partitions if whole else tuple(each for each in flow.partitions if _needs_attention(each))
    if rows:
        yield _partitions(rows if whole else rows[:_MOST_ROWS], flow.at_ms)
    if len(rows) > _MOST_ROWS and not whole:
        yield f"  {len(rows) - _MOST_ROWS} more partitions: --all lists them"
    positions = flow.groups.positions if whole else tuple(each for each in flow.groups.positions if not each.is_known)
    for each in positions if whole else positions[:_MOST_ROWS]:
        why = f": {each.why}" if each.why else ""
        yield escape(f"  group {each.group} in {each.topic}-{each.partition} is {each.state}{why}")
    for what, comparison in (("config", flow.configs), ("ACL", flow.acls), ("quota", flow.quotas)):
        yield from (escape(f"  {what}: {line}") for line in _shown(comparison, whole=whole))
    yield ""


def _summary(flow: FlowReadiness) -> Iterator[str]:
    if flow.partitions:
        lost = "an unknown number of" if flow.lag_records is None else count(flow.lag_records)
        late = "" if flow.lag_s is None else f", at most {duration(flow.lag_s)} old"
        yield f"would be lost: {lost} records in {len(flow.partitions)} partitions{late}"
        yield f"the source was last seen {_age(flow.seen_ms, flow.at_ms)}"
    yield from _retention(flow)
    groups = flow.groups
    if groups.groups:
        yield (
            f"consumer groups: {groups.groups}, {groups.exact} positions known exactly, {groups.inexact} not; "
            f"commits were last seen {_age(groups.seen_ms, flow.at_ms)}"
        )
    if flow.proof.oldest_ms is not None:
        oldest = _age(flow.proof.oldest_ms, flow.at_ms)
        yield (
            f"proven by audits: {flow.proof.partitions} partitions, the oldest {oldest}; "
            f"{count(flow.proof.unproven_records)} copied records are not proven"
        )


def _retention(flow: FlowReadiness) -> Iterator[str]:
    """Yield one line for each cluster about how long it keeps the records that are still needed."""
    sources = [each.source_headroom for each in flow.partitions if each.source_headroom is not None]
    unread = [(room, each) for each in flow.partitions if (room := each.target_headroom) is not None]
    known = flow.retention
    if sources:
        kept = _kept(sources, known.source_left_s, known.source_unknown)
        seen = "" if known.seen_ms is None else f" (configs as seen {_age(known.seen_ms, flow.at_ms)})"
        pace = "" if known.forecast_s is None else f"; at the pace of the last hour, for {duration(known.forecast_s)}"
        yield f"retention on {escape(flow.source)} keeps what has not been copied {kept}{pace}{seen}"
    if unread:
        kept = _kept([room for room, _ in unread], known.target_left_s, known.target_unknown)
        room, nearest = min(unread, key=lambda each: each[0].offsets)
        where = f"group {room.group} in {nearest.topic}-{nearest.partition}"
        yield (
            f"retention on {escape(flow.target)} keeps what groups have not read {kept}; {escape(where)} is the "
            f"closest to the log start, {count(room.offsets)} offsets after it"
        )


def _kept(rooms: Sequence[SourceHeadroom | TargetHeadroom], left_s: float | None, unknown: int) -> str:
    by_size = any(each.by_size for each in rooms)
    if left_s is not None:
        kept = f"for at least {duration(left_s)}" if left_s else "for no certain time"
    elif unknown == len(rooms):
        kept = "for an unknown time"
    else:
        kept = "whatever its age" if by_size else "without a limit"
    if by_size:
        kept += ", unless retention.bytes deletes it earlier"
    if not unknown:
        return kept
    why = next((f": {escape(each.note)}" for each in rooms if not each.is_known and each.note), "")
    return f"{kept}, not known for {unknown} of {len(rooms)} partitions{why}"


def _needs_attention(partition: PartitionReadiness) -> bool:
    return partition.lag_records != 0 or bool(partition.note)


def _partitions(partitions: tuple[PartitionReadiness, ...], now_ms: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    table.add_column("partition", overflow="fold")
    for title in (
        "copied up to",
        "source end",
        "last seen",
        "would be lost",
        "seconds",
        "source keeps",
        "target keeps",
    ):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("newest safe record", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("note", overflow="fold")
    for each in partitions:
        table.add_row(
            f"{escape(each.topic)}-{each.partition}",
            count(each.source_offset),
            count(each.source_end),
            _age(each.seen_ms, now_ms),
            count(each.lag_records),
            duration(each.lag_s),
            _left(each.source_headroom),
            _left(each.target_headroom),
            "-" if each.safe_ms is None else moment(each.safe_ms),
            each.state,
            escape(each.note),
        )
    return table


def _left(headroom: SourceHeadroom | TargetHeadroom | None) -> str:
    if headroom is None or not headroom.is_known:
        return duration(None)
    return "no limit" if headroom.left_s is None else duration(headroom.left_s)


def _shown(comparison: Comparison, *, whole: bool) -> tuple[str, ...]:
    lines = comparison.differences
    if whole or len(lines) <= _MOST_ROWS:
        return lines
    return (*lines[:_MOST_ROWS], f"{len(lines) - _MOST_ROWS} more")


def _age(at_ms: int | None, now_ms: int) -> str:
    return "never" if at_ms is None else f"{duration(max(0, now_ms - at_ms) / 1000)} ago"
