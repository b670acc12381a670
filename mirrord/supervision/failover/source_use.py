"""Finds out whether a source cluster is still used, before a planned failover ends the copying."""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.config.schema import FlowConfig
from mirrord.groups.refusal_reasons import SHARE, WITHOUT_MEMBERS
from mirrord.groups.rules.commit_plan import GroupFilter
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import GroupOffsets
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.folding.failovers import concerns
from mirrord.ledger.source_ends import SourcePartition
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneKey
from mirrord.replication.lane.assignment import FlowSetup, ReplicatorReport
from mirrord.supervision.rules.final_positions import Offsets
from mirrord.topics.discovery import Discovered


class SourceGroups(NamedTuple):
    """The consumer groups on the source that are synced and have committed offsets in topics of the failover."""

    commits: Offsets
    active: tuple[str, ...]
    """Those that have members, and groups with members that have not committed anything yet, sorted."""


def partitions_to_copy(recovery: Recovery, found: Discovered) -> set[SourcePartition]:
    """Return the source partitions of the failover that should be copied."""
    return {
        SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.key.partition)
        for lane in found.lanes
        if concerns(recovery, lane.source_topic)
    }


def lacking(
    recovery: Recovery,
    found: Discovered,
    reports: Mapping[str, ReplicatorReport],
    ends: Mapping[SourcePartition, int],
) -> str:
    """Return which records are still to be copied, as one line, or an empty string. `ends` holds the high watermarks of
    the source."""
    faults = {topic: line for topic, line in found.faults.items() if concerns(recovery, topic)}
    if faults:
        topic, line = min(faults.items())
        return f"{topic}: {line}{f' (and {len(faults) - 1} more topics)' if len(faults) > 1 else ''}"
    positions = {
        (LaneKey.parse(lane.lane).source_topic_id, lane.partition): lane.source_offset
        for report in reports.values()
        for lane in report.lanes
    }
    wanted = sorted(partitions_to_copy(recovery, found))
    if missing := [where for where in wanted if where[1:] not in positions]:
        more = f" and {len(missing) - 1} more partitions" if len(missing) > 1 else ""
        return f"{missing[0].topic}-{missing[0].partition}{more}: not copied at the moment"
    if silent := [where for where in wanted if where not in ends]:
        return f"{silent[0].topic}-{silent[0].partition}: its leader on the source does not answer"
    rest = {where: ends[where] - positions[where[1:]] for where in wanted if ends[where] > positions[where[1:]]}
    if not rest:
        return ""
    most = max(rest, key=lambda where: rest[where])
    return f"{sum(rest.values())} offsets are still to be copied, most of them of {most.topic}-{most.partition}"


async def source_groups(flow: FlowConfig, setup: FlowSetup, recovery: Recovery, topics: frozenset[str]) -> SourceGroups:
    """Ask the source for the groups that have committed offsets in these topics. Raises EnvironmentFault if it does not
    answer for one of the groups."""
    if not flow.follows_groups:
        return SourceGroups({}, ())
    passes = GroupFilter(flow.groups).passes
    async with view_of(flow.source, setup.source, setup.source_cluster_id) as view:
        admin = GroupAdmin(view)
        listed = {name: each for name, each in (await admin.listed()).items() if each.kind != SHARE and passes(name)}
        answers = await admin.offsets(list(listed)) if listed else {}
    if refused := sorted(name for name, answer in answers.items() if answer.error):
        error = ErrorCode.name_of(answers[refused[0]].error)
        raise EnvironmentFault(f"{flow.source} does not return the positions of group {refused[0]}: {error}")
    commits = {name: _in_topics(answer, recovery, topics) for name, answer in answers.items()}
    commits = {name: places for name, places in commits.items() if places}
    # A group that has not committed anything yet may read any topic.
    readers = commits.keys() | {name for name, answer in answers.items() if not answer.offsets}
    return SourceGroups(commits, tuple(sorted(name for name in readers if listed[name].state not in WITHOUT_MEMBERS)))


def _in_topics(answer: GroupOffsets, recovery: Recovery, topics: frozenset[str]) -> dict[tuple[str, int], int]:
    return {
        place: each.offset
        for place, each in answer.offsets.items()
        if each.offset >= 0 and place[0] in topics and concerns(recovery, place[0])
    }
