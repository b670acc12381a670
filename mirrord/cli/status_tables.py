"""Formats a status document as tables for a terminal."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from mirrord.cli.job_lines import job_lines
from mirrord.cli.number_formats import UNKNOWN, count, duration, milliseconds, share, size
from mirrord.ledger.facts.core import LOSSES
from mirrord.ledger.standing_orders import moment
from mirrord.model.status import (
    WAITING,
    ClusterStatus,
    FlowStatus,
    LaneStatus,
    LatencyStatus,
    LossStatus,
    ReplicatorStatus,
    RpoStatus,
    Status,
)

_STATE_STYLES = {
    "running": "green",
    "copying": "green",
    "halted": "bold red",
    "down": "bold red",
    "starting": "yellow",
    "standby": "cyan",
    "waiting": "yellow",
    "resuming": "yellow",
    "rebuilding": "bold red",
    "settling": "yellow",
    "opening": "yellow",
    "paused": "cyan",
    "ended": "cyan",
}


def status_table(status: Status) -> RenderableType:
    """Return a table with one line for each flow, followed by one line for each issue that needs attention."""
    table = _table(
        "flow", "state", "from → to", "lanes", numbers=("records/s", "bytes/s", "lag", "time lag", "in flight", "raw")
    )
    for flow in status.flows:
        totals = flow.totals
        table.add_row(
            escape(flow.name),
            styled(flow.state),
            f"{escape(flow.source.alias)} → {escape(flow.target.alias)}",
            ", ".join(f"{count} {styled(state)}" for state, count in totals.lanes.items()) or "none yet",
            count(totals.records_per_s),
            size(totals.bytes_per_s),
            count(totals.lag_records),
            duration(totals.lag_s),
            size(totals.in_flight_bytes),
            share(totals.raw_share),
        )
    return Group(_origin(status), table, *_remarks(status))


def lag_table(status: Status) -> RenderableType:
    """Return a table of all lanes. Halted lanes come first, followed by the other lanes in order of descending lag."""
    table = _table(
        "flow", "partition", "target", "state", "replicator",
        numbers=("copied up to", "source end", "lag", "time lag", "records/s", "proven up to"),
    )  # fmt: skip
    lanes = [(flow, lane) for flow in status.flows for lane in flow.lanes]
    for flow, lane in sorted(lanes, key=lambda pair: _behind(pair[1]), reverse=True):
        table.add_row(
            escape(flow.name),
            f"{escape(lane.topic)}-{lane.partition}",
            escape(lane.target_topic),
            styled(lane.state),
            escape(lane.host) or UNKNOWN,
            count(lane.source_offset),
            count(lane.source_end),
            count(lane.lag_records),
            duration(lane.lag_s),
            count(lane.records_per_s),
            count(lane.proof.source_offset if lane.proof else None),
        )
    return Group(_origin(status), table, *_remarks(status))


def styled(state: str) -> str:
    """Return a state with markup for the color in which it is shown."""
    style = _STATE_STYLES.get(state)
    return f"[{style}]{state}[/]" if style else state


def _table(*texts: str, numbers: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for title in texts:
        table.add_column(title, overflow="fold")
    for title in numbers:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _behind(lane: LaneStatus) -> tuple[bool, int, float]:
    return lane.state == "halted", lane.lag_records or 0, lane.lag_s or 0.0


def _origin(status: Status) -> str:
    if status.gathered == "target":
        return f"[yellow]no daemon answers[/]; read from the target alone ({escape(status.instance)})"
    programs = {flow.lease.program for flow in status.flows if flow.lease is not None and flow.lease.program}
    here = f"{status.version}+{status.commit}" if status.commit else status.version
    program = ", ".join(sorted(programs)) or here
    return f"mirrord {escape(program)}, instance {escape(status.instance)}"


def _remarks(status: Status) -> Iterator[str]:
    """Yield one line for each issue that needs attention, at most ten for each flow."""
    for flow in status.flows:
        lines = list(_flow_remarks(flow))
        yield from (f"{escape(flow.name)}: {line}" for line in lines[:10])
        if len(lines) > 10:
            yield f"{escape(flow.name)}: and {len(lines) - 10} more"


def _flow_remarks(flow: FlowStatus) -> Iterator[str]:
    if flow.guarantee == "at-least-once":
        yield f"[bold red]AT LEAST ONCE[/], records may be duplicated: {escape(flow.guarantee_note)}"
    elif flow.guarantee_note:
        yield escape(flow.guarantee_note)
    if flow.note:
        yield escape(flow.note)
    yield from map(escape, flow.remarks)
    yield from _node_lines(flow.replicators)
    yield from _rpo_lines(flow.rpo)
    yield from job_lines(flow.jobs)
    if flow.latency is not None:
        yield _latency_line(flow, flow.latency)
    if flow.lease is not None and flow.state in {"standby", "down"}:
        lease = flow.lease
        age = duration(lease.age_ms / 1000)
        yield f"the lease is held by {escape(lease.host)} pid {lease.pid} ({escape(lease.http)}), renewed {age} ago"
    for cluster in (flow.source, flow.target):
        if not cluster.reachable:
            yield _unreachable(cluster)
    for reason, offsets in flow.totals.verdict_offsets.items():
        line = f"{count(offsets)} source offsets not copied: {reason}"
        yield f"[bold red]{line}[/]" if reason in LOSSES else line
    yield from _former_losses(flow.losses, flow.forgotten_losses)
    yield from _foreign_lines(flow.totals.foreign_offsets)
    unprotected = sum(lane.protected is False for lane in flow.lanes)
    if unprotected and flow.guarantee != "at-least-once":
        yield (
            f"{unprotected} lanes are unprotected: the target broker does not remember their producers (old record "
            "times); only the lease protects them"
        )
    yield from (
        f"the configs of {escape(topic.target_topic)} differ: {escape(', '.join(topic.drift))}"
        for topic in flow.topics
        if topic.drift
    )
    yield from _lane_lines(flow.lanes)


def _former_losses(losses: Sequence[LossStatus], forgotten: Mapping[str, int]) -> Iterator[str]:
    """Yield the losses of deleted lanes, with one line for each topic and reason. A lane is deleted when its source
    topic or its target topic no longer exists. Then yield one line for each reason with the losses in topics whose
    names are no longer known."""
    topics: Counter[tuple[str, str]] = Counter()
    for loss in losses:
        topics[loss.topic, loss.reason] += loss.offsets
    for (topic, reason), offsets in sorted(topics.items()):
        line = f"{count(offsets)} source offsets of {escape(topic)} not copied by lanes that have ended: {reason}"
        yield f"[bold red]{line}[/]"
    for reason, offsets in sorted(forgotten.items()):
        line = f"{count(offsets)} source offsets not copied from topics that were deleted long ago: {reason}"
        yield f"[bold red]{line}[/]"


def _lane_lines(lanes: Sequence[LaneStatus]) -> Iterator[str]:
    """Yield one line for each halted lane and for each lane that is delayed by an open transaction. Then yield the
    waiting lanes, grouped by what they are waiting for."""
    waiting: dict[str, list[str]] = {}
    for lane in lanes:
        where = f"{escape(lane.topic)}-{lane.partition}"
        if lane.state == "halted":
            yield f"[bold red]halted[/] {where}: {escape(lane.note)}"
        elif lane.note and (lane.state in WAITING or (lane.state == "copying" and lane.lag_records)):
            waiting.setdefault(lane.note, []).append(where)
        if (held_by := lane.open_transaction) is not None:
            yield f"[bold red]{where} has been waiting[/] since {moment(held_by.since_ms)} for {escape(held_by.line)}"
    for note, names in waiting.items():
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        yield f"[yellow]waiting[/] {', '.join(names[:3])}{more}: {escape(note)}"


def _foreign_lines(offsets: int) -> Iterator[str]:
    if offsets:
        yield (
            f"{count(offsets)} target offsets between the copies were written by other clients: mirrord gaps --foreign"
        )


def _node_lines(replicators: Sequence[ReplicatorStatus]) -> Iterator[str]:
    """If there is more than one node, yield the nodes on which the replicators run. Then yield the replicators that
    cannot be reached."""
    at_work = [each for each in replicators if each.state != "unknown"]
    nodes = Counter((each.node[:8], each.host) for each in at_work)
    if len(nodes) > 1:
        yield "replicators by node: " + ", ".join(
            f"{number} on {escape(node)} ({escape(host)})" for (node, host), number in sorted(nodes.items())
        )
    for each in replicators:
        if each.state == "unknown":
            yield (
                f"{escape(each.name)} cannot be reached; it may continue to copy until others have taken its partitions"
            )


def _rpo_lines(rpo: RpoStatus | None) -> Iterator[str]:
    if rpo is None or rpo.within is None:
        return
    goal = f"its RPO of {duration(rpo.rpo_s)}"
    yield f"within {goal}" if rpo.within else f"[bold red]NOT within[/] {goal}: {escape(rpo.why)}"


def _latency_line(flow: FlowStatus, measured: LatencyStatus) -> str:
    if measured.latency_ms is None:
        latency = "latency unknown"
    else:
        error = f" ± {milliseconds(measured.latency_error_ms)}" if measured.latency_error_ms else ""
        latency = f"latency {milliseconds(measured.latency_ms)}{error}"
    if measured.clock_offset_ms is None:
        clocks = f"clocks not compared{f': {escape(measured.note)}' if measured.note else ''}"
    else:
        ahead = (
            f"{milliseconds(abs(measured.clock_offset_ms))} {'ahead' if measured.clock_offset_ms >= 0 else 'behind'}"
        )
        clocks = f"the clock of {escape(flow.source.alias)} is {ahead} ± {milliseconds(measured.clock_error_ms)}"
    return f"{latency}; {clocks}"


def _unreachable(cluster: ClusterStatus) -> str:
    reason = f": {escape(cluster.error)}" if cluster.error else ""
    return f"[red]{escape(cluster.alias)} is unreachable[/]{reason}"
