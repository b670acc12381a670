"""Writes pairs of matching source and target offsets to MirrorMaker 2's offset-syncs topic. MirrorMaker 2 checkpoint
tasks that run alongside mirrord use these pairs.

All pairs come from the ledger (`mirrord.ledger.mm2_offset_pairs`). Therefore the target has acknowledged the record
that a pair refers to.
"""

import asyncio
from collections.abc import Callable, Iterable

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.protocol.mm2_records import OffsetSync
from mirrord.ledger.mm2_offset_pairs import PublishedPairs, due_syncs
from mirrord.ledger.state import FlowState
from mirrord.mm2.client_topic import SMALL, Mm2Topic
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias, LaneId
from mirrord.runtime.current_failures import Troubles
from policies.mm2_names import offset_syncs_topic

EVERY_S = 1.0
"""Interval between writes, in seconds. Lanes store their progress records at the same interval."""
RETRY_S = 5.0


class OffsetSyncs:
    """Writes the offset syncs of one flow."""

    def __init__(self, flow: FlowConfig, clusters: dict[Alias, ClusterConfig], timeout_s: float) -> None:
        at_source = flow.mm2_records.offset_syncs == "source"
        self._cluster, other = (flow.source, flow.target) if at_source else (flow.target, flow.source)
        self._config = clusters[self._cluster]
        self._name = offset_syncs_topic(other, flow.mm2_records.separator)
        self._flow = flow
        self._timeout_s = timeout_s
        self._lanes: tuple[LaneId, ...] = ()
        self._published: dict[LaneId, PublishedPairs] = {}
        self._begun: frozenset[LaneId] = frozenset()
        self._troubles = Troubles("offset_syncs", flow=flow.name)

    def see(self, lanes: Iterable[LaneId]) -> None:
        """Set the lanes for which offset syncs are written."""
        self._lanes = tuple(lanes)
        self._published = {lane: self._published[lane] for lane in self._lanes if lane in self._published}

    @property
    def remarks(self) -> list[str]:
        """One line for each operation that is currently failing."""
        return self._troubles.lines

    async def run(self, ledger: Callable[[], FlowState]) -> None:
        """Write offset syncs until cancelled. `ledger` returns the current state from the flow's ledger."""
        topic = Mm2Topic(self._name, self._config, self._timeout_s)
        self._published.clear()
        # At this point, the topic can contain offset syncs only for lanes that have already copied records.
        self._begun = frozenset(ledger().progress)
        try:
            while True:
                try:
                    await topic.create(self._flow.mm2_records.offset_syncs_replication_factor, SMALL)
                    while True:
                        await self._write(topic, ledger())
                        await asyncio.sleep(EVERY_S)
                except EnvironmentFault as fault:
                    self._troubles.report(f"offset syncs are not written to {self._cluster}: {fault}")
                    await asyncio.sleep(RETRY_S)
        finally:
            await topic.end()

    async def _write(self, topic: Mm2Topic, state: FlowState) -> None:
        due: list[OffsetSync] = []
        published: dict[LaneId, PublishedPairs] = {}
        for lane in self._lanes:
            known, progress = state.lanes.get(lane), state.progress.get(lane)
            if known is None or progress is None:
                continue
            before = self._published.get(lane, None if lane in self._begun else PublishedPairs(0))
            next_ordinal = progress.ordinal
            if before is not None and before.considered_below == next_ordinal and before.last == next_ordinal - 1:
                continue
            syncs, published[lane] = due_syncs(known, next_ordinal, before, self._flow.mm2_records.offset_lag_max)
            due += syncs
        if due:
            await topic.write([(sync.key, sync.value) for sync in due])
        self._published |= published
        self._troubles.report("")
