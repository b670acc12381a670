"""Commits the final positions of consumer groups on the target."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.groups.refusal_reasons import kept
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import LATER, GroupAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.ledger.last_seen.group_positions import seen_groups
from mirrord.ledger.offset_map import LaneMap
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.rules.final_positions import CopiedPlace, SourceCommit, final_plan, summary
from mirrord.supervision.rules.unrecorded_copies import copied_position, is_all
from mirrord.supervision.settled_lanes import SettledLanes


class FinalTarget(NamedTuple):
    """Where final positions are committed."""

    flow: FlowConfig
    cluster: ClusterConfig
    may_write: Callable[[], bool]
    """Whether this process holds the lease now."""


async def commit_final(
    target: FinalTarget,
    state: FlowState,
    lanes: Sequence[LaneState],
    settled: SettledLanes,
    positions: Collection[SourceCommit],
    in_step: int,
) -> str:
    """Commit what the final offset maps of the lanes give for these positions. Return one line for operators. `in_step`
    is the number of further positions that matched on both sides.

    Raises EnvironmentFault if the target does not answer for one of the groups, or after an error that may be
    temporary.
    """
    places = {(lane.source_topic, lane.partition): _place(state, lane, settled) for lane in lanes}
    flow = target.flow
    groups = sorted({each.group for each in positions if (each.topic, each.partition) in places})
    lines: list[str] = []
    async with view_of(flow.target, target.cluster, state.target_cluster) as view:
        admin = GroupAdmin(view)
        busy = kept(await admin.listed())
        answers = await admin.offsets(groups) if groups else {}
        for group, answer in answers.items():
            if answer.error in LATER:
                raise EnvironmentFault(
                    f"the positions of group {group} cannot be read: {ErrorCode.name_of(answer.error)}"
                )
            if answer.error:
                lines.append(f"{group}: {ErrorCode.name_of(answer.error)}")
        known = {
            group: {place: each.offset for place, each in answer.offsets.items()}
            for group, answer in answers.items()
            if not answer.error
        }
        positions = [each for each in positions if each.group in known]
        plan = final_plan(positions, places, known, busy, flow.groups)
        if plan.commits:
            if not target.may_write():
                raise EnvironmentFault("the lease of the flow is currently uncertain")
            wanted = {
                group: {place: CommittedOffset(offset, -1, "") for place, offset in each.items()}
                for group, each in plan.commits.items()
            }
            refused = _refused(await admin.commit(wanted))
            lines += refused
            return summary(plan.exact - len(refused) + in_step, plan.active, (*plan.open, *lines))
    return summary(plan.exact + in_step, plan.active, (*plan.open, *lines))


def _place(state: FlowState, lane: LaneState, settled: SettledLanes) -> CopiedPlace:
    written = settled.written(lane.key.id)
    copied = copied_position(lane, state.progress.get(lane.key.id), written)
    return CopiedPlace(lane.target_topic, lane.partition, LaneMap(lane, copied), is_all(copied, written))


def _refused(errors: dict[str, dict[tuple[str, int], int]]) -> list[str]:
    """Return one line for each refused commit. Raises EnvironmentFault if one of them may succeed later."""
    lines: list[str] = []
    for group, places in sorted(errors.items()):
        for (topic, partition), error in sorted(places.items()):
            if error in LATER:
                raise EnvironmentFault(f"group {group} cannot be committed: {ErrorCode.name_of(error)}")
            if error:
                lines.append(f"{group} in {topic}-{partition}: {ErrorCode.name_of(error)}")
    return lines


def recorded_positions(state: FlowState, lanes: Iterable[LaneState]) -> tuple[list[SourceCommit], int, int]:
    """Return the positions that did not match when they were last recorded, how many others matched in the topics of
    these lanes, and about how many nothing is recorded."""
    seen, topics = seen_groups(state), {lane.source_topic for lane in lanes}
    positions = [
        SourceCommit(each.group, each.topic, each.partition, each.offset, each.state, each.why)
        for each in seen.positions
    ]
    return positions, sum(count for (_, topic), count in seen.in_step.items() if topic in topics), seen.omitted
