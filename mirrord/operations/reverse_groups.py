"""Shows where consumer groups on the target would resume on the source. On request, it also commits these positions on
the source.

The module implements `mirrord groups --reverse`, which is used to return to the source after a failover. If nothing has
to be committed, a daemon that syncs groups from the target to the source (`groups.reverse`) is asked for the positions.
Otherwise, or if no such daemon answers, the positions are determined from both clusters.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mirrord.config.cross_checks import goes_back
from mirrord.config.schema import Config, FlowConfig
from mirrord.control.command_sender import CommandRefused, NoAnswer
from mirrord.groups.checkpoint_memory import remember
from mirrord.groups.group_position_translation import Atlas, Lanes
from mirrord.groups.lane_bounds import LaneEnds
from mirrord.groups.reverse_sync import GroupBack
from mirrord.groups.rules.commit_plan import GroupBook, GroupFilter
from mirrord.groups.rules.reverse_plan import Asked, PositionPairs
from mirrord.groups.sync_rounds import GroupRounds
from mirrord.kafka.client.cluster_metadata import ANSWER_S, ClusterView, view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault, MirrordError
from mirrord.model.group_status import GroupsReport, GroupStatus
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.daemon_http_client import ask_groups

ROUNDS_S = 10.0
"""Time limit in seconds for examining all groups. Finding the coordinators of the groups can take several attempts."""
AGAIN_S = 0.2
LOOKED = "determined from both clusters; nothing was committed"
BOTH_WAYS = (
    "the same topics are copied both ways: positions count the records of both sides, which only a daemon does "
    "(groups.both_ways and groups.reverse in one of the two flows)"
)
WRITTEN = "determined from both clusters; committed on the source where possible"


class ReverseOptions(NamedTuple):
    """The options of `mirrord groups --reverse`."""

    write: bool = False
    """Whether to commit the positions on the source."""
    force: bool = False
    """Whether to use the position on the target even if the position on the source is higher, or if it is unknown which
    of the two positions changed last."""


def gather_reverse(config: Config, order: ReverseOptions) -> list[GroupsReport]:
    """Return the source positions that correspond to the positions of consumer groups on the target, by flow.

    Raises EnvironmentFault if no flow's groups can be read.
    """
    return asyncio.run(_gather(config, order))


async def _gather(config: Config, order: ReverseOptions) -> list[GroupsReport]:
    views = await read_ledgers(config, ClusterAccess(config, PATIENCE_S))
    if all(isinstance(view, MirrordError) for view in views.values()):
        raise EnvironmentFault("\n".join(f"flow {name}: {view}" for name, view in views.items()))
    reports: dict[str, GroupsReport] = {}
    if order == ReverseOptions():
        for http in sorted({view.http for view in views.values() if isinstance(view, LedgerView) and view.http}):
            try:
                found = await ask_groups(http, config, reverse=True)
                reports |= {report.flow: report for report in found if report.reverse}
            except (NoAnswer, CommandRefused):
                continue
    return [reports.get(flow.name) or await _report(config, flow, views[flow.name], order) for flow in config.flows]


async def _report(
    config: Config, flow: FlowConfig, view: LedgerView | MirrordError, order: ReverseOptions
) -> GroupsReport:
    note, statuses = "", list[GroupStatus]()
    if isinstance(view, MirrordError):
        note = str(view)
    elif any(goes_back(flow, other) for other in config.all_flows):
        note = BOTH_WAYS
    else:
        try:
            chosen = GroupFilter(flow.groups)
            statuses = await _both(config, flow, view, order, chosen)
            note = "; ".join(filter(None, (WRITTEN if order.write else LOOKED, chosen.remark)))
        except MirrordError as fault:
            note = str(fault)
    now_ms = SystemClock().wall_ms()
    kind = "polling" if statuses else "starting"
    return GroupsReport(flow=flow.name, at_ms=now_ms, reverse=True, source=kind, note=note, groups=tuple(statuses))


async def _both(
    config: Config, flow: FlowConfig, view: LedgerView, order: ReverseOptions, chosen: GroupFilter
) -> list[GroupStatus]:
    atlas, pairs = Atlas(Lanes().of(view.state), view.state.progress), PositionPairs()
    target_config = config.clusters[flow.target]
    await remember(flow, target_config, ANSWER_S, atlas.copies, pairs)
    async with (
        view_of(flow.source, config.clusters[flow.source], view.state.source_cluster) as source,
        view_of(flow.target, target_config, view.state.target_cluster) as target,
    ):
        bounds = LaneEnds(source, "source", ANSWER_S)
        back = GroupBack(GroupAdmin(source), bounds, pairs, Asked(once=True, force=order.force))
        try:
            return await _rounds(flow, target, atlas, back, order, chosen.passes)
        finally:
            bounds.close()


async def _rounds(
    flow: FlowConfig,
    target: ClusterView,
    atlas: Atlas,
    back: GroupBack,
    order: ReverseOptions,
    passes: Callable[[str], bool],
) -> list[GroupStatus]:
    """Examine the groups repeatedly until there is an answer for each of them. If requested, commit their positions on
    the source."""

    async def chart(_: Mapping[TopicAndPartition, int]) -> Atlas:
        return atlas

    admin = GroupAdmin(target)
    # `GroupRounds` itself requests the commits on the source. With the mode "off", no group is synced to the target.
    rounds = GroupRounds(GroupBook(passes), admin, "off", chart, lambda: True, back=back)
    try:
        async with asyncio.timeout(ROUNDS_S):
            await rounds.read_members()
            rounds.want(
                [name for name, each in (await admin.listed()).items() if each.kind != "Share" and passes(name)]
            )
            while rounds.due:
                await (rounds.round() if order.write else rounds.survey())
                if rounds.due:
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        if not any(back.statuses.values()):
            raise EnvironmentFault(f"{flow.source} or {flow.target} did not answer within {ROUNDS_S:g} s") from None
    return back.sorted_statuses()
