"""Determines when a migration has caught up (`mirrord start --until-caught-up`). After all lanes have been drained,
uses the ledger to check that every source offset was copied or has a verdict.

The end offsets of the source partitions are requested twice. Copying up to the first end offsets can take a long time,
and clients may write more records during that time. When the lanes have reached these offsets, mirrord requests the end
offsets again. The lanes have caught up when they reach the second end offsets. If clients no longer write to the
source, the second end offsets are final.
"""

import asyncio
from collections.abc import Iterable, Mapping

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.client.log_offsets import log_offsets
from mirrord.ledger.completeness import Account, account, uncopied
from mirrord.ledger.facts.core import LOSSES, Reason
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.model.status import FlowStatus, LaneStatus, Status
from mirrord.operations.cluster_survey import FlowSurvey, survey_flows
from mirrord.operations.hazard_survey import read_state

UNCOVERED_S = 30.0
"""Time limit in seconds for a running flow to begin copying all selected partitions. After this time, the migration
fails if a partition has no lane, for example because its target topic cannot be created. It also fails if a lane has
not begun to copy and reports a reason."""

HALTED_S = 10.0
"""A lane that has been halted for this many seconds counts as permanently halted."""

EndOffsets = Mapping[TopicPartition, int]


class FlowProof(msgspec.Struct, frozen=True):
    """The result of the final check of a flow that has caught up and has been drained. It says how many records were
    copied, which offsets were not copied, and where the ledger does not agree with the logs."""

    flow: str
    partitions: int
    records: int
    """Number of records that have been copied since the lanes were opened."""
    uncopied: Mapping[Reason, int]
    """Number of source offsets that were not copied, for each reason in the verdicts."""
    counted: int
    """Number of partitions for which the numbers in the ledger could be checked: the copied records and the verdicts
    must add up to all offsets since the beginning of the lane."""
    newer: int
    """Number of source offsets beyond the positions of the lanes. It is higher than 0 only if a client is still writing
    to the source."""
    differences: tuple[str, ...]

    @property
    def losses(self) -> dict[Reason, int]:
        """The uncopied offsets that are losses, that is, offsets whose records the target lacks."""
        return {reason: count for reason, count in self.uncopied.items() if reason in LOSSES}


class CatchUp:
    """Determines, from the status of the flows, when a migration has caught up."""

    def __init__(self, config: Config, access: ClusterAccess) -> None:
        self._config = config
        self._access = access
        self._ends: dict[str, EndOffsets] = {}
        self._final = False
        self._since: dict[str, float] = {}
        self._halted: dict[tuple[str, str, int], float] = {}
        """For each currently halted lane, the time at which it was first observed to be halted."""

    async def reached(self, status: Status) -> bool:
        """Return whether every selected partition has been copied up to the final end offsets: those that are requested
        after the lanes have reached the end offsets from the first request.

        Raises EnvironmentFault if that cannot happen, because a lane is halted or paused, or a topic is not copied.
        """
        if not self._ends and not await self._read_ends():
            return False
        flows = {flow.name: flow for flow in status.flows}
        if not all(self.reached_by(flows.get(flow.name), self._ends[flow.name]) for flow in self._config.flows):
            return False
        if self._final:
            return True
        self._final = await self._read_ends()
        return False

    async def prove(self) -> list[FlowProof]:
        """Compare the ledger of each flow with the final end offsets of the source and the end offsets of the target.
        Return the result for each flow. Raises EnvironmentFault if a cluster does not answer or a ledger cannot be
        read."""
        return [await self._prove(flow, self._ends[flow.name]) for flow in self._config.flows]

    async def _read_ends(self) -> bool:
        """Request the end offset of every selected source partition. Return whether all requests were answered.

        Raises EnvironmentFault if a selected topic cannot be copied.
        """
        surveys = await survey_flows(self._config, self._access)
        ends: dict[str, EndOffsets] = {}
        for flow in self._config.flows:
            survey = surveys[flow.name]
            if not isinstance(survey, FlowSurvey):
                return False
            faults = {**survey.preview.plan.faults, **survey.preview.plan.unanswered}
            if faults:
                raise EnvironmentFault("\n".join(f"flow {flow.name}: {line}" for line in faults.values()))
            source = survey.preview.source.topics
            asked = {
                TopicPartition(name, partition)
                for name in survey.preview.plan.targets.values()
                for partition in range(source[name].partitions)
            }
            try:
                ends[flow.name] = await log_offsets(self._config.clusters[flow.source], asked, "end")
            except EnvironmentFault:
                return False
        self._ends = ends
        return True

    def reached_by(self, flow: FlowStatus | None, ends: EndOffsets) -> bool:
        """Return whether a flow has copied its selected partitions up to these end offsets. Raises EnvironmentFault if
        a lane is halted or paused, or if a partition is not copied."""
        if flow is None or flow.state != "running":
            return False
        uncovered = [str(each) for each in missing(flow.lanes, ends)]
        uncovered += [lane.note for lane in flow.lanes if lane.state == "opening" and lane.note]
        if not uncovered:
            self._since.pop(flow.name, None)
        elif self._now() - self._since.setdefault(flow.name, self._now()) > UNCOVERED_S:
            names = ", ".join(uncovered[:3])
            raise EnvironmentFault(f"flow {flow.name}: not copied: {names}{f': {flow.note}' if flow.note else ''}")
        still = [lane for lane in flow.lanes if lane.state == "paused" or self._stays_halted(flow.name, lane)]
        if still:
            lines = (f"flow {flow.name}: {lane.topic}-{lane.partition} is {lane.state}: {lane.note}" for lane in still)
            raise EnvironmentFault("\n".join(lines))
        return not uncovered and not behind(flow.lanes, ends)

    def _stays_halted(self, flow: str, lane: LaneStatus) -> bool:
        """Return whether a lane has been halted for longer than `HALTED_S`.

        A lane that has been halted for a shorter time may still continue on its own. For example, a lane that was
        already halted before the daemon started makes another attempt. A lane also continues if a setting such as
        `on_reject` specifies that a record is skipped.
        """
        where = (flow, lane.topic, lane.partition)
        if lane.state != "halted":
            self._halted.pop(where, None)
            return False
        return self._now() - self._halted.setdefault(where, self._now()) > HALTED_S

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _prove(self, flow: FlowConfig, ends: EndOffsets) -> FlowProof:
        state = await read_state(flow, self._access.ledger)
        survey = (await survey_flows(self._config, self._access))[flow.name]
        if not isinstance(survey, FlowSurvey):
            raise survey
        source, target = (self._config.clusters[alias] for alias in (flow.source, flow.target))
        lanes = {lane.lane: lane for lane in survey.preview.plan.lanes}
        copies = {TopicPartition(lane.target_topic, lane.key.partition) for lane in lanes.values()}
        target_ends, now_ends = await asyncio.gather(
            log_offsets(target, copies, "end"), log_offsets(source, set(ends), "end")
        )
        accounts: dict[TopicPartition, Account] = {}
        for key, planned in lanes.items():
            partition = TopicPartition(planned.source_topic, planned.key.partition)
            if key in state.lanes and partition in ends:
                copy = TopicPartition(planned.target_topic, planned.key.partition)
                progress = state.progress.get(key)
                accounts[partition] = account(state.lanes[key], progress, ends[partition], target_ends.get(copy))
        differences = [f"{partition}: nothing is known about it" for partition in sorted(ends.keys() - accounts.keys())]
        differences += [f"{where}: {line}" for where, each in sorted(accounts.items()) for line in each.differences]
        return FlowProof(
            flow=flow.name,
            partitions=len(ends),
            records=sum(each.copied for each in accounts.values()),
            uncopied=uncopied(state, {partition.topic for partition in ends}),
            counted=sum(each.counted for each in accounts.values()),
            newer=sum(max(0, now_ends.get(where, 0) - each.position) for where, each in accounts.items()),
            differences=tuple(differences),
        )


def missing(lanes: Iterable[LaneStatus], ends: EndOffsets) -> list[TopicPartition]:
    """Return the partitions in `ends` that none of these lanes copies."""
    return sorted(ends.keys() - {TopicPartition(lane.topic, lane.partition) for lane in lanes})


def behind(lanes: Iterable[LaneStatus], ends: EndOffsets) -> list[TopicPartition]:
    """Return the partitions of these lanes that are not known to have been copied up to their end offsets.

    A partition whose lane is not currently copying is always included. So is a partition with unconfirmed records: if
    the lane were drained now, its progress record would show only the confirmed ones.
    """
    return sorted(
        partition
        for lane in lanes
        if (partition := TopicPartition(lane.topic, lane.partition)) in ends and not _has_copied(lane, ends[partition])
    )


def _has_copied(lane: LaneStatus, end: int) -> bool:
    is_at_end = lane.source_offset is not None and lane.source_offset >= end
    return lane.state == "copying" and is_at_end and not lane.unconfirmed_records
