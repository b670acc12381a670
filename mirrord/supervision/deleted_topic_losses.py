"""Writes verdicts on lost records to the ledger. The records are lost because they had not been copied when their
source topic was deleted. They are lost even if a topic with the same name has been created since."""

from collections.abc import Callable, Iterable, Mapping

import structlog
from msgspec.structs import replace

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.folding.failovers import has_ended
from mirrord.ledger.source_ends import (
    CopiedPart,
    ended_lanes,
    has_begun,
    lane_end,
    left_behind,
    merged_losses,
    settled_records,
)
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.supervision.settled_lanes import SettledLanes, is_at_end
from mirrord.supervision.shared_services import Services
from mirrord.topics.discovery import Discovered
from mirrord.topics.rules.ledger_start_evidence import start_offsets
from policies.flow_policies import selection_of

_NO_SUCH_TOPIC = ErrorCode.name_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

log = structlog.get_logger()


class DeletedTopicLosses:
    """Tracks the topics of one flow that the ledger contains but the source no longer lists.

    A topic that is missing from the list of all topics may still exist. mirrord may lack the permission to see it, or
    the broker's metadata may lag. Therefore, mirrord asks the source about the topic by name. The topic counts as
    deleted only if the source answers that it does not exist.
    """

    def __init__(self, services: Services) -> None:
        runtime = services.config.runtime
        self._clock = services.clock
        times = (runtime.lease_ttl_ms, runtime.request_timeout_ms)
        self._settled = SettledLanes(times, services.find_written, services.clock)
        self.hidden: dict[str, str] = {}
        """Selected topics that mirrord is no longer permitted to see, with one line for operators about each."""
        self._absent: set[str] = set()

    async def record_lost(
        self,
        flow: FlowConfig,
        recorder: Recorder,
        source: TopicAdmin,
        found: Discovered,
        reports: Iterable[ReplicatorReport],
    ) -> None:
        """Append verdicts on the records that had not been copied when their topics were deleted.

        Verdicts that cannot be recorded now are recorded by a later call.
        """
        state, shown = recorder.state, found.source.topics
        hosted = {lane.lane for report in reports for lane in report.lanes}
        try:
            await self._ask(flow, state, source, shown)
        except EnvironmentFault:
            return  # `ClusterWatch` reports that the source does not answer

        def is_gone(topic: str, topic_id: TopicId) -> bool:
            if has_ended(state.recoveries, topic):
                return False  # the failover has recorded what was lost
            return shown[topic].topic_id != topic_id if topic in shown else topic in self._absent

        lanes = [lane for lane in ended_lanes(state, is_gone, hosted) if has_begun(state, lane)]
        unknown = [lane for lane in lanes if not is_at_end(state, lane)]
        await self._settled.settle(flow, state, unknown, found.target.topics)
        await self._record(flow, recorder, hosted, is_gone)

    async def _record(
        self, flow: FlowConfig, recorder: Recorder, hosted: set[LaneId], is_gone: Callable[[str, TopicId], bool]
    ) -> None:
        state = recorder.state
        start_offset = start_offsets(state, flow.start_at)

        def settled(lane: LaneState) -> CopiedPart | None:
            return self._settled.of(lane.key.id)

        def or_recorded(lane: LaneState) -> CopiedPart:
            return settled(lane) or CopiedPart(state.standing(lane.key.id).position)

        await recorder.save(self._copied_all(state))
        verdicts = left_behind(state, is_gone, hosted, start_offset, settled)
        for fact in verdicts:
            lost = ", ".join(f"[{each.start}, {each.end})" for each in fact.verdicts)
            log.error("records_lost", flow=flow.name, lane=fact.lane, source_offsets=lost, line=fact.note)
        await recorder.write(verdicts)
        unrecorded = left_behind(state, is_gone, (), start_offset, or_recorded)
        unsettled = [*(hosted & state.lanes.keys()), *(each.lane for each in unrecorded)]
        kept, removed = settled_records(state, is_gone, unsettled, start_offset, self._clock.wall_ms())
        for record in kept:
            if record.source is not None:
                line, source = "the topic was deleted before any of these records was copied", record.source
                ranges = {"ends": source.ends, "starts": source.starts}
                log.error("records_lost", flow=flow.name, topic=source.topic, **ranges, line=line)
        merged, counted = merged_losses(state, state.lease_epoch)
        if await recorder.save([*kept, *merged]):
            await recorder.remove([*removed, *counted])

    def _copied_all(self, state: FlowState) -> list[Progress]:
        """Return progress records for the lanes that have copied everything, although their progress records do not
        show this. A daemon that starts later no longer has to read the target, which may have removed the batches."""
        found: list[Progress] = []
        for lane_id, copied in self._settled.known.items():
            lane, progress = state.lanes.get(lane_id), state.progress.get(lane_id)
            if lane is None or progress is None or copied.missing:
                continue
            if progress.source_offset < copied.position and lane_end(state, lane) <= copied.position:
                found.append(replace(progress, lease_epoch=state.lease_epoch, source_offset=copied.position))
        return found

    async def _ask(self, flow: FlowConfig, state: FlowState, source: TopicAdmin, shown: Mapping[str, Topic]) -> None:
        known = {lane.source_topic for lane in state.lanes.values()}
        ends = (each.source for each in state.source_ends.values())
        known |= {source.topic for source in ends if source is not None and not source.lost and source.seen is None}
        self._absent = (self._absent & known) - shown.keys()
        missing = known - shown.keys() - self._absent
        seen = await source.describe(missing) if missing else None
        refused = {} if seen is None else {name: why for name, why in seen.refused.items() if name not in seen.topics}
        self._absent |= {name for name, why in refused.items() if why == _NO_SUCH_TOPIC}
        selection = selection_of(flow)
        hidden = {
            name: f"{flow.source} no longer shows {name} ({why}), so none of its records are copied: allow READ on it"
            for name, why in refused.items()
            if why != _NO_SUCH_TOPIC and selection.refusal(name) is None
        }
        for name in hidden.keys() - self.hidden.keys():
            log.warning("topic_hidden", flow=flow.name, topic=name, reason=hidden[name])
        self.hidden = hidden
