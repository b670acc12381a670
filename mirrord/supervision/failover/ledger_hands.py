"""What a process without replicators does for the steps of a failover. It holds the flow's lease, because the flow's
daemon is gone. Everything that it knows about the source comes from the ledger and the state topic."""

from collections.abc import Callable, Mapping, Sequence

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.last_seen.source_ends import SeenEnd
from mirrord.ledger.source_ends import CopiedPart, SourcePartition, has_begun
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.runtime.clock import Clock
from mirrord.supervision.failover.cluster_ends import complete, observed, partitions_of, source_ends, target_ends
from mirrord.supervision.failover.final_commits import FinalTarget, commit_final, recorded_positions
from mirrord.supervision.failover.producer_fence import fence_off
from mirrord.supervision.rules.failover_plan import concerned_lanes
from mirrord.supervision.rules.producer_fence import former_producers
from mirrord.supervision.settled_lanes import SettledLanes


class LedgerHands:
    """Implements `FailoverHands` for a process that holds the lease, but runs no replicators."""

    def __init__(
        self,
        flow: FlowConfig,
        clusters: tuple[ClusterConfig, ClusterConfig],
        ledger: Callable[[], FlowState],
        settled: SettledLanes,
        target: TopicAdmin,
        clock: Clock,
        may_write: Callable[[], bool],
    ) -> None:
        """`clusters` are the source and the target. `may_write` says whether this process holds the lease now."""
        self.note = ""
        self._flow = flow
        self._source, self._target = clusters
        self._ledger = ledger
        self._settled = settled
        self._admin = target
        self._clock = clock
        self._may_write = may_write

    async def catch_up(self, recovery: Recovery) -> str:
        """Raise EnvironmentFault: only a daemon can copy what is missing."""
        raise EnvironmentFault(
            f"no daemon copies {self._flow.name}: start it, or cancel failover {recovery.number} and use --source-lost"
        )

    async def stop(self, lanes: Sequence[LaneState]) -> None:
        """Return at once. Replicators of the former holder read in the ledger that they no longer have the lease."""

    async def copied(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, CopiedPart]:
        """See `FailoverHands`."""
        targets = (await self._admin.describe({lane.target_topic for lane in lanes})).topics
        ids = [lane.key.id for lane in lanes]
        return await self._settled.until_settled(self._flow, self._ledger, ids, targets, self._wait_for)

    def _wait_for(self, lanes: int) -> None:
        self.note = f"waiting until no process can write to {lanes} target partitions"

    async def fence(self, recovery: Recovery) -> str:
        """See `FailoverHands`."""
        line = await fence_off(self._flow.target, self._target, former_producers(self._ledger(), recovery))
        self._settled.read_again()
        return line

    async def source_ends(self, recovery: Recovery) -> Mapping[SourcePartition, SeenEnd]:
        """See `FailoverHands`."""
        is_lost = recovery.mode == "source-lost"
        partitions = observed(partitions_of(concerned_lanes(self._ledger(), recovery)), self._ledger())
        ends = await source_ends(self._source, partitions, self._clock, is_lost=is_lost)
        return ends if is_lost else complete(ends, partitions)

    async def target_ends(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, int]:
        """See `FailoverHands`."""
        return await target_ends(self._target, lanes)

    async def finish_groups(self, recovery: Recovery) -> str:
        """Commit the positions that did not match when they were last recorded, according to the records that were
        copied in the end. All other positions that mirrord knows are on the target already."""
        if self._flow.groups.mode == "off":
            return "positions of consumer groups are not synced"
        lanes = concerned_lanes(self._ledger(), recovery)
        await self.copied([lane for lane in lanes if lane.grant and has_begun(self._ledger(), lane)])
        positions, in_step, omitted = recorded_positions(self._ledger(), lanes)
        target = FinalTarget(self._flow, self._target, self._may_write)
        line = await commit_final(target, self._ledger(), lanes, self._settled, positions, in_step)
        return line + (f"; nothing is recorded about {omitted} more" if omitted else "")
