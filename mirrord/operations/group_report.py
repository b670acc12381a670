"""Reports the positions of consumer groups on request. The daemon is asked first. If no daemon answers, the positions
are determined from both clusters.

If neither a daemon nor the source answers, the report contains only the offsets that are committed on the target. The
report covers all groups that the flow would sync. Nothing is written.
"""

import asyncio
from collections.abc import Mapping

from mirrord.config.schema import Config, FlowConfig
from mirrord.control.command_sender import CommandRefused, NoAnswer
from mirrord.groups.commit_source import values_of
from mirrord.groups.group_position_translation import Atlas, Lanes
from mirrord.groups.lag import TargetLags, with_lags
from mirrord.groups.rules.commit_plan import GroupBook, GroupFilter
from mirrord.groups.sync_rounds import GroupRounds
from mirrord.kafka.client.cluster_metadata import ANSWER_S, ClusterView, view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.group_status import GroupsReport, GroupStatus
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.daemon_http_client import ask_groups

BOTH_WAYS = "no daemon answers, and only a daemon counts the records of both sides if topics are copied both ways"


def gather_groups(config: Config) -> list[GroupsReport]:
    """Return the positions of consumer groups, by flow. Raises EnvironmentFault if no flow's groups can be read."""
    return asyncio.run(_gather(config))


async def _gather(config: Config) -> list[GroupsReport]:
    access = ClusterAccess(config, PATIENCE_S)
    views = await read_ledgers(config, access)
    if all(isinstance(view, MirrordError) for view in views.values()):
        raise EnvironmentFault("\n".join(f"flow {name}: {view}" for name, view in views.items()))
    reports: dict[str, GroupsReport] = {}
    for http in sorted({view.http for view in views.values() if isinstance(view, LedgerView) and view.http}):
        try:
            reports |= {report.flow: report for report in await ask_groups(http, config)}
        except (NoAnswer, CommandRefused):
            continue
    return [reports.get(flow.name) or await _report(config, flow, views[flow.name]) for flow in config.flows]


async def _report(config: Config, flow: FlowConfig, view: LedgerView | MirrordError) -> GroupsReport:
    now_ms = SystemClock().wall_ms()
    if isinstance(view, MirrordError):
        return GroupsReport(flow=flow.name, at_ms=now_ms, source="starting", note=str(view))
    if not flow.follows_groups:
        return GroupsReport(flow=flow.name, at_ms=now_ms, source="starting", note='groups.mode is "off"')
    if flow.groups.both_ways:
        return GroupsReport(flow=flow.name, at_ms=now_ms, source="starting", note=BOTH_WAYS)
    state = view.state
    lanes = Lanes().of(state)
    async with view_of(flow.target, config.clusters[flow.target], state.target_cluster) as target:
        try:
            statuses, note = await _both(config, flow, view, lanes, target)
        except MirrordError as fault:
            return GroupsReport(flow=flow.name, at_ms=now_ms, source="starting", note=str(fault))
        lags = TargetLags(target, config.clusters[flow.target], flow.limits.rebuild_bytes)
        groups = await with_lags(statuses, lanes, lags, SystemClock())
    return GroupsReport(flow=flow.name, at_ms=now_ms, source="polling", note=note, groups=groups)


async def _both(
    config: Config,
    flow: FlowConfig,
    view: LedgerView,
    lanes: Mapping[TopicAndPartition, LaneState],
    target: ClusterView,
) -> tuple[list[GroupStatus], str]:
    """Return the positions of the groups according to both clusters, and a remark for operators."""
    chosen = GroupFilter(flow.groups)
    book = GroupBook(chosen.passes)
    try:
        async with view_of(flow.source, config.clusters[flow.source], view.state.source_cluster) as source:
            await _read(source, flow, book, chosen)
    except MirrordError as fault:
        note = f"neither a daemon nor the source answers: {fault}"
        return await _target_alone(GroupAdmin(target), flow, lanes), note

    async def chart(_: Mapping[TopicAndPartition, int]) -> Atlas:
        return Atlas(lanes, view.state.progress)

    rounds = GroupRounds(book, GroupAdmin(target), flow.groups.mode, chart, lambda: False)
    await rounds.read_members()
    rounds.want_all()
    await rounds.survey()
    note = "no daemon answers: determined from both clusters, and nothing is committed"
    return rounds.sorted_statuses(), "; ".join(filter(None, (note, chosen.remark)))


async def _read(source: ClusterView, flow: FlowConfig, book: GroupBook, chosen: GroupFilter) -> None:
    admin, passes = GroupAdmin(source), chosen.passes
    try:
        async with asyncio.timeout(ANSWER_S):
            listed = [name for name, each in (await admin.listed()).items() if each.kind != "Share" and passes(name)]
            for group, answer in (await admin.offsets(listed)).items():
                book.replace(group, values_of(answer))
    except TimeoutError:
        raise EnvironmentFault(f"{flow.source} did not answer within {ANSWER_S:g} s") from None


async def _target_alone(
    admin: GroupAdmin, flow: FlowConfig, lanes: Mapping[TopicAndPartition, LaneState]
) -> list[GroupStatus]:
    copies = {(lane.target_topic, lane.partition): place for place, lane in lanes.items()}
    passes = GroupFilter(flow.groups).passes
    listed = sorted(name for name in await admin.listed() if passes(name))
    committed = await admin.offsets(listed)
    return [
        _unknown(group, copies[place], place, commit)
        for group in listed
        for place, commit in sorted(committed[group].offsets.items(), key=lambda item: item[0])
        if place in copies
    ]


def _unknown(group: str, place: TopicAndPartition, copy: TopicAndPartition, commit: CommittedOffset) -> GroupStatus:
    return GroupStatus(
        group=group,
        topic=place[0],
        partition=place[1],
        target_topic=copy[0],
        source_offset=None,
        target_offset=commit.offset,
        state="unknown",
        why="the source does not answer",
    )
