"""Writes the records that MirrorMaker 2's clients read: heartbeats, checkpoints and offset syncs. The daemon that holds
a flow's lease writes that flow's records.

Each kind of record has a separate loop. After a failure, a loop reports a remark and tries again. A failure in one loop
stops neither the other loops nor the copying of records.

No checkpoints or offset syncs are written for a target topic whose name does not follow the flow's naming rule (see
`mirrord.topics.rules.recreated_topic_names`). MirrorMaker 2's clients derive the name of a target topic from the name
of its source topic, so they would apply the offsets to a different topic.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable

import structlog

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.ledger.state import FlowState
from mirrord.mm2.checkpoints import Checkpoints
from mirrord.mm2.heartbeats import Heartbeats
from mirrord.mm2.offset_syncs import OffsetSyncs
from mirrord.mm2.rules.heartbeat_latency import SentBeats
from mirrord.model.errors import PolicyFault, internal_error
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.names import Alias, TopicId
from mirrord.model.status import LatencyStatus
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import run_together
from mirrord.topics.discovery import Discovered
from policies.flow_policies import naming_of
from policies.mm2_names import HEARTBEATS

LONGEST_TRY_S = 10.0
FORGET_S = 3600.0
"""Interval, in seconds, at which checkpoints of deleted topics and of groups that no longer exist are forgotten."""
AGAIN_S = 30.0
"""Pause, in seconds, before a loop is started again after an internal error."""

log = structlog.get_logger()


class Mm2Upkeep:
    """Runs the loops that write one flow's records for MirrorMaker 2's clients."""

    def __init__(
        self, flow: FlowConfig, clusters: dict[Alias, ClusterConfig], timeout_s: float, clock: Clock, sent: SentBeats
    ) -> None:
        patience_s = min(timeout_s, LONGEST_TRY_S)
        self._flow = flow
        self._heartbeats = Heartbeats(flow, clusters, patience_s, clock, sent)
        records = flow.mm2_records
        self._checkpoints = Checkpoints(flow, clusters[flow.target], patience_s) if records.checkpoints else None
        self._syncs = OffsetSyncs(flow, clusters, patience_s) if records.offset_syncs != "off" else None
        self._topics: dict[str, TopicId] = {}
        """The id of each target topic to which checkpoints may belong."""
        self._clock = clock
        self._forget_at = clock.monotonic() + FORGET_S
        self._naming = naming_of(flow)
        self._apart: tuple[str, ...] = ()
        """Target topics whose names do not follow the flow's naming rule."""
        self._failed: dict[str, str] = {}

    def see(self, discovered: Discovered) -> None:
        """Update the topics and lanes for which records are written, from the latest result of topic discovery."""
        apart = {copy for topic, copy in discovered.names.items() if not self._is_named(topic, copy)}
        self._apart = tuple(sorted(apart))
        lanes = [lane for lane in discovered.lanes if lane.target_topic not in apart] if apart else discovered.lanes
        self._heartbeats.carry(next((lane.target_topic for lane in lanes if lane.source_topic == HEARTBEATS), None))
        if self._syncs is not None:
            self._syncs.see(lane.lane for lane in lanes)
        topics = {lane.target_topic: lane.key.target_topic_id for lane in lanes}
        if self._checkpoints is not None:
            for topic in topics.keys() & self._topics.keys():
                if topics[topic] != self._topics[topic]:
                    self._checkpoints.forget(topic)
            if (now := self._clock.monotonic()) >= self._forget_at:
                self._forget_at, known = now + FORGET_S, self._checkpoints.forget_unseen()
                self._topics = {topic: each for topic, each in self._topics.items() if topic in known}
            self._topics |= topics

    def record(self, positions: Iterable[TranslatedPosition]) -> None:
        """Add the current positions of groups, so that checkpoints are written for them. The caller ensures that the
        target has acknowledged all records before these positions."""
        if self._checkpoints is not None:
            self._checkpoints.record(each for each in positions if self._is_named(each.topic, each.target_topic))

    def _is_named(self, topic: str, copy: str) -> bool:
        try:
            return self._naming.target_topic(topic) == copy
        except PolicyFault:
            return False

    @property
    def latency(self) -> LatencyStatus | None:
        """The time that records take to get from the source to the target. None if the flow does not copy
        heartbeats."""
        return self._heartbeats.status()

    @property
    def remarks(self) -> tuple[str, ...]:
        """One line for each operation that is currently failing."""
        parts = (self._heartbeats, self._checkpoints, self._syncs)
        apart = () if self._checkpoints is self._syncs is None else self._apart
        misread = [f"{topic}: no mm2_records, because their readers would misread its name" for topic in apart]
        return (
            *self._failed.values(),
            *misread,
            *(line for part in parts if part is not None for line in part.remarks),
        )

    async def run(self, ledger: Callable[[], FlowState]) -> None:
        """Write the configured kinds of records until cancelled. `ledger` returns the current state from the flow's
        ledger."""
        self._failed.clear()
        work = [self._keep("heartbeats", self._heartbeats.run)]
        if self._checkpoints is not None:
            work.append(self._keep("checkpoints", self._checkpoints.run))
        if (syncs := self._syncs) is not None:
            work.append(self._keep("offset syncs", lambda: syncs.run(ledger)))
        await run_together(*work)

    async def _keep(self, what: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        pause_s = 0.0
        while True:
            try:
                await asyncio.sleep(pause_s)
                await work()
            except Exception as error:
                log.error("upkeep_failed", flow=self._flow.name, what=what, exc_info=error)
                self._failed[what] = f"{what} are not written: {internal_error(error)}"
            pause_s = AGAIN_S
